"""Time series archives (UCR, UEA): <name>_TRAIN and <name>_TEST as .ts, .tsv or .arff, read by aeon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firmbound.arrays import Bools, Ints
from firmbound.datasets.recordings import ArrayRecordings, SourceError

SUFFIXES = (".ts", ".tsv", ".arff")


def archive_recordings(path: str | Path, name: str, *, download: bool = False) -> dict[str, ArrayRecordings]:
    """Training and test part of a set, from the files <path>/<name>_TRAIN.* or <path>/<name>/<name>_TRAIN.*.

    download: fetch the set into `path` where it is not there, from where aeon knows that it lies.

    >>> archive_recordings("archives", "FordA")["train"].labels
    """
    folder = Path(path)
    if Path(name).name != name:
        raise SourceError(f"`name` must be that of a set, without folders; got {name!r}.")
    if _find(folder, name, "TRAIN") is None and download:
        _download(folder, name)
    found = {}
    for part in ("train", "test"):
        file = _find(folder, name, part.upper())
        if file is None:
            there = "no such folder" if not folder.is_dir() else _listed(folder)
            raise SourceError(
                f"{folder} must hold {name}_{part.upper()} as {', '.join(SUFFIXES)}, or in a folder {name}; "
                f"got {there}. With `download: true` and a network it is fetched."
            )
        found[part] = _read(file)
    return found


def _find(folder: Path, name: str, part: str) -> Path | None:
    places = [base / f"{name}_{part}{suffix}" for base in (folder, folder / name) for suffix in SUFFIXES]
    return next((place for place in places if place.is_file()), None)


def _listed(folder: Path) -> str:
    names = sorted(entry.name for entry in folder.iterdir())
    return f"{len(names)} entries, {names[:5]}" if names else "an empty folder"


def _download(folder: Path, name: str) -> None:
    from aeon.datasets import load_classification

    folder.mkdir(parents=True, exist_ok=True)
    try:
        load_classification(name, extract_path=str(folder))
    except Exception as problem:  # whatever a download may fail with
        reason = (str(problem).splitlines() or [repr(problem)])[0]
        raise SourceError(
            f"{name} cannot be fetched into {folder}: {reason} Get its files elsewhere and put them there."
        ) from None


def _read(file: Path) -> ArrayRecordings:
    try:
        series, labels = _parse(file)
        if len(labels):
            values, lengths = _laid_out(file, series)
    except SourceError:
        raise
    except ImportError:
        raise SourceError(f"{file} is read by aeon, which is not installed: pip install 'firmbound[aeon]'.") from None
    except Exception as problem:  # a parser of text fails in many ways
        reason = (str(problem).splitlines() or [repr(problem)])[0]
        raise SourceError(f"{file} cannot be read as {file.suffix}: {reason}") from None
    if not len(labels):
        raise SourceError(f"{file} must hold a series at least; got none.")
    return ArrayRecordings(str(file), np.asarray(labels), lengths, values)


def _parse(file: Path) -> tuple[Any, NDArray[Any]]:
    from aeon.datasets import load_from_arff_file, load_from_ts_file, load_from_tsv_file

    load = {".ts": load_from_ts_file, ".tsv": load_from_tsv_file, ".arff": load_from_arff_file}[file.suffix]
    series, labels = load(str(file))
    return series, labels


def _laid_out(file: Path, series: Any) -> tuple[NDArray[np.float32], Ints]:
    """(channels, time) for each series, as (n, T, channels) with NaN after the ends, and the lengths (n,).

    Where a file pads its series to one length, it does so with NaN: what is NaN in all channels up to the end is
    taken for the end. NaN before it is a missing number.
    """
    channels = {one.shape[0] for one in series}
    if len(channels) > 1:
        raise SourceError(f"{file}: every series must have as many channels; got {sorted(channels)}.")
    longest = max(one.shape[1] for one in series)
    values = np.full((len(series), longest, channels.pop()), np.nan, dtype=np.float32)
    for row, one in enumerate(series):
        values[row, : one.shape[1]] = one.T
    there: Bools = np.asarray(~np.isnan(values).all(axis=2))
    lengths = longest - there[:, ::-1].argmax(axis=1)
    empty = np.flatnonzero(~there.any(axis=1))
    if len(empty):
        raise SourceError(f"{file}: every series must hold a sample; series {empty[0]} has none.")
    return values, lengths.astype(np.int64)
