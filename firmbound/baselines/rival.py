"""What rivals have in common: they learn from labelled sequences, and decide on new ones in one way or in several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from firmbound.arrays import Floats, Ints
from firmbound.errors import InvalidInput
from firmbound.trajectories import Batch, Decisions

Way = TypeVar("Way")


@dataclass(frozen=True)
class OperatingPoint:
    """One way in which a method decides. setting: of the number that it has instead of a cost, a threshold for one.

    belief (n, K): its posterior where it decided; None for a method that has none.
    """

    setting: float
    decisions: Decisions
    belief: Floats | None = None


class FittedRival(Protocol):
    """A method that has learned."""

    def points(self, test: Batch, only: int | None = None) -> list[OperatingPoint]:
        """All its ways to decide on new sequences, or one; it looks at features, evidence and lengths alone."""
        ...


class Rival(Protocol):
    """A method with its options. Whatever it tunes, it tunes on validation sequences."""

    def fit(self, train: Batch, validation: Batch, *, seed: int) -> FittedRival: ...


def picked(ways: Sequence[Way], only: int | None) -> Sequence[Way]:
    """All ways, or the one at a place."""
    return ways if only is None else ways[only : only + 1]


def features_of(batch: Batch) -> NDArray[Any]:
    """(n, T, d), for methods that learn from features."""
    if batch.features is None:
        raise InvalidInput("features", "be there: this method learns from them", "evidence alone")
    return batch.features


def evidence_of(batch: Batch) -> NDArray[Any]:
    """(n, T, K), for methods that stop by evidence."""
    if batch.evidence is None:
        raise InvalidInput("evidence", "be there: this method stops by it", "features alone")
    return batch.evidence


def ends_of(batch: Batch, horizon: int) -> Ints:
    """(n,) observations of each sequence."""
    return np.full(len(batch.labels), horizon) if batch.lengths is None else batch.lengths


def at_decision(posteriors: NDArray[Any], decisions: Decisions) -> Floats:
    """(n, T, K) posteriors -> (n, K) where each sequence was decided."""
    return np.asarray(posteriors[np.arange(len(decisions)), decisions.time - 1], dtype=np.float64)
