"""What was found: labelled series as their owner has them, in memory or on disk, before anything is cut or scaled."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from firmbound.arrays import Ints
from firmbound.errors import FirmboundError, InvalidInput


class SourceError(FirmboundError):
    """Files of a data set are missing, damaged or do not say what they should; the message names the path."""


class Recordings(Protocol):
    """n series of one part of a data set. origin: the path, or whatever names it in messages.

    labels (n,): classes in the owner's words. groups (n,): who or what each comes from, None where nobody knows.
    lengths (n,): samples of each. dimension: numbers a sample.
    """

    @property
    def origin(self) -> str: ...

    @property
    def labels(self) -> NDArray[Any]: ...

    @property
    def groups(self) -> NDArray[Any] | None: ...

    @property
    def lengths(self) -> Ints: ...

    @property
    def dimension(self) -> int: ...

    def read(self, rows: Ints) -> NDArray[Any]:
        """(m, L, d) samples of some series, rows rising; what stands after an end is not looked at."""
        ...


@dataclass(frozen=True)
class ArrayRecordings:
    """Series that lie in one array (n, L, d), or (n, L) with a number a sample: of NumPy, mapped to disk, or Zarr's."""

    origin: str
    labels: NDArray[Any]
    lengths: Ints
    values: Any
    groups: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        shape, count = tuple(self.values.shape), len(self.labels)
        if len(shape) not in (2, 3) or min(shape) < 1:
            raise SourceError(f"{self.origin}: features must have shape (n, T, d) or (n, T); got {shape}.")
        if np.dtype(self.values.dtype).kind not in "fiub":
            raise SourceError(f"{self.origin}: features must be numbers; got dtype {self.values.dtype}.")
        for name, found in (("labels", self.labels), ("lengths", self.lengths), ("groups", self.groups)):
            if found is not None and found.shape != (shape[0],):
                raise SourceError(f"{self.origin}: {name} must be {shape[0]}, one a series; got {found.shape}.")
        if count and (self.lengths.min() < 1 or self.lengths.max() > shape[1]):
            got = f"values from {self.lengths.min()} to {self.lengths.max()}"
            raise SourceError(f"{self.origin}: lengths must lie in 1..{shape[1]}; got {got}.")
        if self.labels.dtype.kind == "f" and not np.isfinite(self.labels).all():
            raise SourceError(f"{self.origin}: labels must be known for every series; got NaN or infinite ones.")
        if self.labels.dtype.kind not in "iufUb":
            raise SourceError(f"{self.origin}: labels must be numbers or text; got dtype {self.labels.dtype}.")

    @property
    def dimension(self) -> int:
        return int(self.values.shape[2]) if len(self.values.shape) == 3 else 1

    def read(self, rows: Ints) -> NDArray[Any]:
        first, last = int(rows[0]), int(rows[-1]) + 1
        found = np.array(self.values[slice(first, last) if last - first == len(rows) else rows])
        if isinstance(self.values, np.memmap) and self.values.mode == "r":
            _release(self.values)
        return found if found.ndim == 3 else found[:, :, None]


def _release(mapped: np.memmap[Any, Any]) -> None:
    """Pages of the file that were looked at count as ours until they are given back."""
    pages: mmap.mmap | None = getattr(mapped, "_mmap", None)
    if pages is not None and hasattr(mmap, "MADV_DONTNEED"):
        pages.madvise(mmap.MADV_DONTNEED)


def class_names(parts: Sequence[Recordings]) -> list[str | int]:
    """Classes in order; what one part has and another lacks is refused, with the paths."""
    known = [np.unique(part.labels) for part in parts]
    first = known[0]
    if len(first) < 2:
        raise SourceError(f"{parts[0].origin} must hold two classes at least; got {_words(first)}.")
    for part, found in zip(parts[1:], known[1:], strict=True):
        if (first.dtype.kind == "U") != (found.dtype.kind == "U"):
            got = f"{first.dtype} in {parts[0].origin} and {found.dtype} in {part.origin}"
            raise SourceError(f"Labels must be numbers in every part, or text in every part; got {got}.")
        if not np.array_equal(first, found):
            here, there = (sorted(set(a.tolist()) - set(b.tolist())) for a, b in ((found, first), (first, found)))
            raise SourceError(
                f"Labels of {parts[0].origin} and {part.origin} must be of the same classes; "
                f"only the former has {there[:5]}, only the latter {here[:5]}."
            )
    if first.dtype.kind == "f" and np.array_equal(first, np.floor(first)):
        first = first.astype(np.int64)
    return [label if isinstance(label, int) and not isinstance(label, bool) else str(label) for label in first.tolist()]


def _words(labels: NDArray[Any]) -> str:
    return f"{len(labels)}: {labels.tolist()[:5]}" if len(labels) else "none"


def check_together(parts: Sequence[Recordings]) -> None:
    """All parts have samples of as many numbers."""
    first = parts[0]
    for part in parts[1:]:
        if part.dimension != first.dimension:
            raise InvalidInput(
                "channels",
                "be as many in every part",
                f"{first.dimension} in {first.origin} and {part.dimension} in {part.origin}",
            )
