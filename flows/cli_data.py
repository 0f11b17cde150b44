"""Series from files, and decisions into files, for the command line."""

import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np

from firmbound.early_classifier import EarlyClassifier, EarlyDecisions
from firmbound.errors import InvalidInput
from firmbound.publishing import whole_file
from firmbound.store import TrajectoryStore

WORDS = ".npz with X (n, T, d), y (n,) and lengths (n,), .npy with X, or a .zarr store"


def reads_beliefs(classifier: EarlyClassifier) -> bool:
    """Whether what goes in is evidence or posteriors; of a store, its evidence."""
    return isinstance(classifier.evidence, str) and classifier.evidence in ("given", "posteriors")


def read_data(path: Path, *, labels: bool, beliefs: bool) -> tuple[Any, Any, Any]:
    """X, y and lengths; the last two may be None. labels: without them nothing can be done."""
    if not path.exists():
        raise InvalidInput("data", f"be a file: {WORDS}", f"{path}, which does not exist")
    X, y, lengths = _read_store(path, beliefs) if (path / "zarr.json").is_file() else _read_file(path)
    if X.ndim != 3 or not len(X):
        raise InvalidInput("X", "have shape (n, T, d)", f"shape {X.shape}")
    if labels and y is None:
        raise InvalidInput("data", "hold labels, an array y", f"{path} without")
    return X, y, lengths


def _read_store(path: Path, beliefs: bool) -> tuple[Any, Any, Any]:
    store = TrajectoryStore(path)
    values = store.read("evidence" if beliefs else "features")
    about, labels = store.description, store.labels
    named = np.array(about.names)[labels] if about.names else labels
    return values, named, store.lengths if about.unequal else None


def _read_file(path: Path) -> tuple[Any, Any, Any]:
    try:
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return found, None, None
        with found:
            arrays = {name: found[name] for name in found.files}
    except Exception as problem:  # a damaged file makes NumPy, zip and the parser of headers raise what they like
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
