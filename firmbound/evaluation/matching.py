"""Rules compared where they take the same mean time, on curves that are straight between neighbouring points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from firmbound.arrays import Floats, Ints
from firmbound.errors import InvalidInput
from firmbound.evaluation.estimates import Estimate
from firmbound.evaluation.hitting_time import time_variance
from firmbound.evaluation.speed_accuracy import macro_error
from firmbound.trajectories import Decisions

Measure = Callable[[Decisions], Estimate]


@dataclass(frozen=True)
class Curve:
    """time (S,) in ascending order, value (S,) and its standard error (S,)."""

    time: Floats
    value: Floats
    error: Floats

    @classmethod
    def of(cls, ways: Sequence[Decisions], measure: Measure) -> Curve:
        """Of the ways in which a method decides on the same sequences."""
        if not ways:
            raise InvalidInput("ways", "hold one at least", "none")
        times = np.array([float(one.time.mean()) for one in ways])
        found = [measure(one) for one in ways]
        order = np.argsort(times, kind="stable")
        value, error = (np.array([getattr(one, name) for one in found]) for name in ("value", "standard_error"))
        return cls(times[order], value[order], error[order])

    def covers(self, time: float) -> bool:
        return bool(self.time[0] <= time <= self.time[-1])

    def at(self, time: float) -> Estimate:
        """Straight between neighbours: what one gets who tosses a coin between two ways; nan beyond both ends."""
        if not self.covers(time):
            return Estimate(float("nan"), float("nan"))
        value, error = (float(np.interp(time, self.time, part)) for part in (self.value, self.error))
        return Estimate(value, error)


def error_curve(ways: Sequence[Decisions], labels: Ints, classes: int) -> Curve:
    """Speed and accuracy: macro error against mean time."""
    return Curve.of(ways, lambda one: macro_error(one, labels, classes))


def variance_at(ways: Sequence[Decisions], time: float) -> float:
    """Variance of the hitting time at a mean time: of the coin toss between the two ways around it.

    A toss adds the spread of the two means; neighbouring thresholds are so close that it is next to nothing.
    """
    means = np.array([float(one.time.mean()) for one in ways])
    order = np.argsort(means, kind="stable")
    if not means[order[0]] <= time <= means[order[-1]]:
        return float("nan")
    behind = int(np.clip(np.searchsorted(means[order], time, side="left"), 1, max(len(order) - 1, 1)))
    low, high = order[behind - 1], order[min(behind, len(order) - 1)]
    gap = means[high] - means[low]
    share = 0.0 if gap == 0 else (time - means[low]) / gap
    within = (1 - share) * time_variance(ways[low]).value + share * time_variance(ways[high]).value
    return float(within + share * (1 - share) * gap**2)
