"""Series from files, and decisions into files, for the command line."""

import csv
import sys
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from firmbound.early_classifier import EarlyDecisions
from firmbound.errors import InvalidInput
from firmbound.publishing import whole_file
from firmbound.store import TrajectoryStore

WORDS = ".npz with X (n, T, d), y (n,) and lengths (n,), .npy with X, or a .zarr store"


def read_data(path: Path, *, labels: bool) -> tuple[Any, Any, Any]:
    """X, y and lengths; the last two may be None. labels: without them nothing can be done."""
    if not path.exists():
        raise InvalidInput("data", f"be a file: {WORDS}", f"{path}, which does not exist")
    X, y, lengths = _read(path)
    if labels and y is None:
        raise InvalidInput("data", "hold labels, an array y", f"{path} without")
    return X, y, lengths


def _read(path: Path) -> tuple[Any, Any, Any]:
    if (path / "zarr.json").is_file():
        store = TrajectoryStore(path)
        about = store.description
        return store.read("features" if about.dimension else "evidence"), store.labels, store.lengths
    try:
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return found, None, None
        with found:
            arrays = {name: found[name] for name in found.files}
    except (ValueError, OSError, EOFError, BadZipFile, KeyError) as problem:
        raise InvalidInput("data", f"be readable: {WORDS}", f"{path} ({problem})") from None
    unknown = set(arrays) - {"X", "y", "lengths"}
    if "X" not in arrays or unknown:
        raise InvalidInput("data", "hold X, and of others y and lengths alone", f"{path} with {sorted(arrays)}")
    return arrays["X"], arrays.get("y"), arrays.get("lengths")


def write_decisions(chosen: EarlyDecisions, out: Path | None) -> None:
    rows = zip(range(len(chosen)), chosen.time.tolist(), chosen.label.tolist(), strict=True)
    if out is None:
        _write(sys.stdout, rows)
        return
    with whole_file(out) as file:
        _write(file, rows)


def _write(file: Any, rows: Any) -> None:
    writer = csv.writer(file)
    writer.writerow(["series", "time", "label"])
    writer.writerows(rows)
