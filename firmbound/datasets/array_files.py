"""Features that somebody made already: named arrays in a .npz file, in a folder of .npy files or in a Zarr group.

Arrays of a part are called <name>_<part>: X_train, y_train, len_train, X_test, .. ; without parts just X, y, len.
Nothing is loaded whole: files are mapped into memory, members of a compressed .npz are unpacked beside first.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firmbound.datasets.recordings import ArrayRecordings, SourceError

PARTS = {"train": ("train",), "validation": ("validation", "val", "valid"), "test": ("test",)}


@dataclass(frozen=True)
class ArrayNames:
    """What arrays are called, before the part's name."""

    features: str = "X"
    labels: str = "y"
    lengths: str = "len"
    groups: str = "group"


def array_recordings(path: str | Path, names: ArrayNames | None = None) -> dict[str, ArrayRecordings]:
    """Parts of a data set in a container of arrays: "train", "test" and perhaps "validation", or "all".

    >>> array_recordings("features.npz")["train"].labels
    """
    place, called = Path(path), names or ArrayNames()
    there, fetch = _container(place)
    found = {part: _recordings(place, there, fetch, called, end) for part, end in _ends(there, called).items()}
    if not found:
        rule = f"hold arrays {called.features}_train and {called.features}_test, or {called.features}"
        raise SourceError(f"{place} must {rule}; got {sorted(there)[:12]}. Say what they are called under `arrays`.")
    for name in ("lengths", "groups"):
        having = [part for part, ends in _ends(there, called).items() if getattr(called, name) + ends in there]
        if having and len(having) < len(found):
            raise SourceError(f"{place} must hold {name} of every part or of none; got those of {having} alone.")
    if "all" not in found and not {"train", "test"} <= found.keys():
        raise SourceError(f"{place} must hold a training and a test part; got {sorted(found)} alone.")
    return found


def _ends(there: set[str], called: ArrayNames) -> dict[str, str]:
    """How names of arrays end, for each part there is."""
    found = {
        part: f"_{suffix}" for part, ends in PARTS.items() for suffix in ends if f"{called.features}_{suffix}" in there
    }
    return found or ({"all": ""} if called.features in there else {})


def _recordings(
    place: Path, there: set[str], fetch: Callable[[str], Any], called: ArrayNames, end: str
) -> ArrayRecordings:
    if called.labels + end not in there:
        raise SourceError(f"{place} must hold labels, {called.labels + end}; got {sorted(there)[:12]}.")
    values, labels = fetch(called.features + end), np.asarray(fetch(called.labels + end))
    origin = f"{place}, {called.features + end}" if end else str(place)
    if labels.ndim != 1:
        raise SourceError(f"{origin}: labels must be one a series; got an array of shape {labels.shape}.")
    lengths = np.full(len(labels), values.shape[1] if len(values.shape) > 1 else 0)
    if called.lengths + end in there:
        lengths = np.asarray(fetch(called.lengths + end))
        if lengths.dtype.kind not in "iu":
            raise SourceError(f"{origin}: lengths must be whole numbers; got dtype {lengths.dtype}.")
    groups = np.asarray(fetch(called.groups + end)) if called.groups + end in there else None
    return ArrayRecordings(origin, _plain(origin, labels), lengths.astype(np.int64), values, groups)


def _plain(origin: str, labels: NDArray[Any]) -> NDArray[Any]:
    """Text of any kind as NumPy's."""
    try:
        return np.char.decode(labels, "utf-8") if labels.dtype.kind == "S" else labels
    except UnicodeDecodeError as problem:
        raise SourceError(f"{origin}: labels must be text in UTF-8; {problem}.") from None


def _container(place: Path) -> tuple[set[str], Callable[[str], Any]]:
    """Names of the arrays at a path, and what fetches one by name."""
    if place.suffix == ".npz" and place.is_file():
        return _members(place)
    if (place / "zarr.json").is_file() or (place / ".zgroup").is_file():
        return _zarr_group(place)
    if place.is_dir():
        files = {file.stem: file for file in place.glob("*.npy")}
        if not files:
            raise SourceError(f"{place} must hold .npy files or be a Zarr group; got a folder without either.")
        return set(files), lambda name: _mapped(files[name])
    if place.exists():
        raise SourceError(f"{place} must be a .npz file, a folder of .npy files or a Zarr group.")
    raise SourceError(f"{place} must exist; there is no such file or folder.")


def _mapped(file: Path, called: str = "") -> NDArray[Any]:
    """called: what messages name instead of the file."""
    try:
        return np.asanyarray(np.load(file, mmap_mode="r"))
    except (ValueError, OSError, EOFError) as problem:
        reason = str(problem).split(". ")[0].rstrip(".")
        raise SourceError(f"{called or file} must be an array of NumPy without objects: {reason}.") from None


def _zarr_group(place: Path) -> tuple[set[str], Callable[[str], Any]]:
    import zarr

    _refuse_pickles(place)
    try:
        group = zarr.open_group(place, mode="r")
        return set(group.array_keys()), lambda name: _StoredArray(place, group[name])
    except (ValueError, KeyError, OSError, RuntimeError) as problem:
        raise SourceError(f"{place} must be a Zarr group of arrays; {problem}.") from None


def _refuse_pickles(place: Path) -> None:
    """Zarr's older format knows a codec that runs whatever a file says; no version of Zarr is asked to be careful."""
    for name in (".zarray", ".zmetadata", "zarr.json"):
        for file in place.rglob(name):
            try:
                described = json.loads(file.read_text())
            except (ValueError, RecursionError, OSError):
                continue  # Zarr says what is wrong with it
            if any("pickle" in codec for codec in _codecs(described)):
                raise SourceError(f"{file} asks for pickle, which can run code when it is read; save plain numbers.")


def _codecs(tree: Any) -> Iterator[str]:
    """Names of codecs anywhere in a description."""
    if isinstance(tree, dict):
        yield from (str(value) for key, value in tree.items() if key in ("id", "name", "object_codec_id"))
        tree = list(tree.values())
    if isinstance(tree, list):
        for part in tree:
            yield from _codecs(part)


class _StoredArray:
    """An array of Zarr whose damage is named with its path."""

    def __init__(self, place: Path, array: Any) -> None:
        self._place, self._array = place, array
        self.shape, self.dtype = array.shape, array.dtype

    def __getitem__(self, rows: Any) -> NDArray[Any]:
        try:
            return np.asarray(self._array.oindex[rows])
        except (RuntimeError, ValueError, OSError) as problem:
            raise SourceError(f"{self._place}, {self._array.basename}, cannot be read: {problem}.") from None

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype=dtype)


def _members(place: Path) -> tuple[set[str], Callable[[str], Any]]:
    try:
        with zipfile.ZipFile(place) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
    except (zipfile.BadZipFile, OSError) as problem:
        raise SourceError(f"{place} must be a .npz file; {problem}.") from None
    return set(members), lambda name: _member(place, members[name])


def _member(place: Path, info: zipfile.ZipInfo) -> NDArray[Any]:
    """One array of a .npz, mapped from a copy without a name: it is gone when nobody looks at it any more."""
    try:
        with zipfile.ZipFile(place) as archive, tempfile.NamedTemporaryFile(suffix=".npy") as copy:
            with archive.open(info) as packed:
                shutil.copyfileobj(packed, copy, 1 << 20)
            copy.flush()
            return _mapped(Path(copy.name), f"{place}, {info.filename},")
    except (zipfile.BadZipFile, OSError, EOFError) as problem:
        raise SourceError(f"{place}: {info.filename} cannot be read; {problem}.") from None
