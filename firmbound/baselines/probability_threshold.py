"""The strongest simple rule: stop once the largest posterior reaches a threshold that does not move.

It is as good as the posteriors are; with two equally likely classes it is a static threshold on their ratio.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from firmbound.arrays import Floats, Ints, is_count
from firmbound.baselines.rival import OperatingPoint, at_decision, ends_of, picked
from firmbound.errors import InvalidInput
from firmbound.trajectories import Batch, Decisions

# Thresholds that are tried: mean times that they lead to lie evenly enough from 1 to T.
COUNT = 60
# No posterior is so large: wait to the end.
BEYOND = 1.01


class PosteriorModel(Protocol):
    """A classifier that says what it believes after every observation."""

    def posteriors(self, batch: Batch) -> NDArray[np.float32]:
        """(n, T, K); what stands after the end of a sequence means nothing."""
        ...


class PosteriorLearner(Protocol):
    def fit(self, train: Batch, validation: Batch, *, seed: int) -> PosteriorModel: ...


def sweep(posteriors: NDArray[Any], thresholds: ArrayLike, ends: Ints) -> list[Decisions]:
    """Decisions of (n, T, K) posteriors for each threshold on the largest of them, at the latest at the ends (n,)."""
    grid = np.atleast_1d(np.asarray(thresholds, dtype=np.float64))
    if not np.isfinite(grid).all():
        raise InvalidInput("thresholds", "be finite", grid.tolist()[:20])
    reached, horizon = np.maximum.accumulate(posteriors.max(axis=2), axis=1), posteriors.shape[1]
    rows, found = np.arange(len(posteriors)), []
    for threshold in grid:
        time = np.minimum((reached < threshold).sum(axis=1) + 1, ends)
        found.append(Decisions(time, posteriors[rows, time - 1].argmax(axis=1), horizon))
    return found


def threshold_grid(posteriors: NDArray[Any], ends: Ints, count: int = COUNT) -> Floats:
    """Thresholds for which decisions on these sequences go from the first observation to the last."""
    rows = np.arange(len(posteriors))
    reached = np.maximum.accumulate(posteriors.max(axis=2), axis=1)
    there = np.concatenate(
        [reached[:, 0], reached[rows, ends - 1], reached[np.arange(reached.shape[1]) < ends[:, None]]]
    )
    # Certainty is what most posteriors tend to, and single precision rounds to it: the last threshold is beyond it.
    inner = np.quantile(there.astype(np.float64), np.linspace(0.0, 1.0, count - 1))
    return np.append(inner, BEYOND)


@dataclass(frozen=True)
class ProbabilityThreshold:
    """A rival made of any classifier with posteriors: all thresholds on its largest one."""

    model: PosteriorModel
    grid: Floats

    def points(self, test: Batch, only: int | None = None) -> list[OperatingPoint]:
        believed = self.model.posteriors(test)
        ends, grid = ends_of(test, believed.shape[1]), picked(self.grid.tolist(), only)
        return [
            OperatingPoint(threshold, one, at_decision(believed, one))
            for threshold, one in zip(grid, sweep(believed, grid, ends), strict=True)
        ]


@dataclass(frozen=True)
class ThresholdOn:
    """`learner` with a threshold: the grid is that of validation sequences."""

    learner: PosteriorLearner
    count: int = COUNT

    def __post_init__(self) -> None:
        if not is_count(self.count, 2):
            raise InvalidInput("count", "be a whole number from 2", self.count)

    def fit(self, train: Batch, validation: Batch, *, seed: int) -> ProbabilityThreshold:
        model = self.learner.fit(train, validation, seed=seed)
        believed = model.posteriors(validation)
        return ProbabilityThreshold(model, threshold_grid(believed, ends_of(validation, believed.shape[1]), self.count))
