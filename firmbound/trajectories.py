"""The values that pass between stages; each checks itself at birth, so nothing later needs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from firmbound.arrays import Ints, check_lengths, class_labels, finite_array
from firmbound.errors import InvalidInput


def check_evidence(evidence: ArrayLike, *, horizon: int | None = None, classes: int | None = None) -> NDArray[Any]:
    """(n, T, K) evidence: finite, n >= 1, T >= 2, K >= 2, or the T and K asked for; its precision is kept."""
    array = finite_array("evidence", evidence, ndim=3, shape_words="(n, T, K)")
    if array.shape[0] < 1:
        raise InvalidInput("evidence", "hold at least one sequence", f"shape {array.shape}")
    if array.shape[1] < 2:
        raise InvalidInput("evidence", "span at least 2 observations (T >= 2)", f"shape {array.shape}")
    if array.shape[2] < 2:
        raise InvalidInput("evidence", "hold at least 2 classes (K >= 2)", f"shape {array.shape}")
    wanted = (horizon or array.shape[1], classes or array.shape[2])
    if array.shape[1:] != wanted:
        rule = f"have shape (n, {wanted[0]}, {wanted[1]}), as it was fitted"
        raise InvalidInput("evidence", rule, f"shape {array.shape}")
    return array


def check_step_evidence(evidence: ArrayLike, classes: int) -> NDArray[Any]:
    """(n, K) evidence after some number of observations: finite; its precision is kept."""
    words = f"(n, {classes}), the evidence after t observations"
    array = finite_array("evidence", evidence, ndim=2, shape_words=words)
    if array.shape[1] != classes:
        raise InvalidInput("evidence", f"have shape {words}", f"shape {array.shape}")
    return array


@dataclass(frozen=True)
class Batch:
    """Labelled sequences: labels (n,) with features (n, T, d), evidence (n, T, K) or both.

    lengths: (n,) observations of each, where some end before T; what stands after an end is not data.
    """

    labels: Ints
    classes: int
    features: NDArray[Any] | None = None
    evidence: NDArray[Any] | None = None
    lengths: Ints | None = None

    def __post_init__(self) -> None:
        if self.features is None and self.evidence is None:
            raise InvalidInput("batch", "hold features, evidence or both", "neither")
        count = len(self.labels)
        object.__setattr__(self, "labels", class_labels("labels", self.labels, count=count, classes=self.classes))
        if self.features is not None:
            object.__setattr__(
                self, "features", finite_array("features", self.features, ndim=3, shape_words="(n, T, d)")
            )
        if self.evidence is not None:
            object.__setattr__(self, "evidence", check_evidence(self.evidence))
            if self.evidence.shape[2] != self.classes:
                raise InvalidInput("evidence", f"have {self.classes} classes", f"shape {self.evidence.shape}")
        for name in ("features", "evidence"):
            array = getattr(self, name)
            if array is not None and array.shape[0] != count:
                raise InvalidInput(name, f"have one row a label ({count})", f"shape {array.shape}")
            if array is not None and self.lengths is not None:
                ends = check_lengths(self.lengths, count=count, horizon=array.shape[1])
                object.__setattr__(self, "lengths", ends)

    def part(self, rows: slice) -> Batch:
        """Some neighbouring sequences."""
        features, evidence, lengths = (
            None if whole is None else whole[rows] for whole in (self.features, self.evidence, self.lengths)
        )
        return Batch(self.labels[rows], self.classes, features, evidence, lengths)


def join(batches: Sequence[Batch]) -> Batch:
    """Batches of the same kind, one after the other."""
    first = batches[0]

    def together(name: str) -> NDArray[Any] | None:
        return None if getattr(first, name) is None else np.concatenate([getattr(batch, name) for batch in batches])

    labels = np.concatenate([batch.labels for batch in batches])
    return Batch(labels, first.classes, together("features"), together("evidence"), together("lengths"))


@dataclass(frozen=True)
class Decisions:
    """When each sequence was decided, and what: time (n,) in 1..T observations used, label (n,) in 0..K-1."""

    time: Ints
    label: Ints
    horizon: int

    def __post_init__(self) -> None:
        time, label = np.asarray(self.time), np.asarray(self.label)
        if time.ndim != 1 or time.shape != label.shape:
            raise InvalidInput("decisions", "hold as many times as labels", f"shapes {time.shape} and {label.shape}")
        if time.size and (time.min() < 1 or time.max() > self.horizon):
            raise InvalidInput("time", f"lie in 1..{self.horizon}", f"values from {time.min()} to {time.max()}")
        object.__setattr__(self, "time", time.astype(np.int64))
        object.__setattr__(self, "label", label.astype(np.int64))

    def __len__(self) -> int:
        return len(self.time)
