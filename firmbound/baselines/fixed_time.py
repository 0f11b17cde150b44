"""Rules that look at the clock alone: decide after so many observations, or after a number drawn by lot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firmbound.arrays import Floats, Ints
from firmbound.baselines.rival import OperatingPoint, at_decision, ends_of, evidence_of, picked
from firmbound.errors import InvalidInput
from firmbound.posterior import posterior
from firmbound.trajectories import Batch, Decisions


def decide_at(evidence: NDArray[Any], times: Ints) -> Decisions:
    """The likeliest class of (n, T, K) evidence after so many observations each (n,)."""
    return Decisions(times, evidence[np.arange(len(evidence)), times - 1].argmax(axis=1), evidence.shape[1])


@dataclass(frozen=True)
class FixedTime:
    """One point a time step: every sequence is decided then, or where it ends."""

    prior: Floats

    def fit(self, train: Batch, validation: Batch, *, seed: int) -> FixedTime:
        """There is nothing to learn."""
        return self

    def points(self, test: Batch, only: int | None = None) -> list[OperatingPoint]:
        evidence = evidence_of(test)
        ends, times = ends_of(test, evidence.shape[1]), range(1, evidence.shape[1] + 1)
        return [_point(evidence, np.minimum(t, ends), float(t), self.prior) for t in picked(times, only)]


@dataclass(frozen=True)
class RandomTime:
    """The level of chance: times drawn evenly from 1 to where a sequence ends, several times over."""

    prior: Floats
    repeats: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        if self.repeats < 1:
            raise InvalidInput("repeats", "be at least 1", self.repeats)

    def fit(self, train: Batch, validation: Batch, *, seed: int) -> RandomTime:
        """There is nothing to learn; draws depend on the seed."""
        return RandomTime(self.prior, self.repeats, seed)

    def points(self, test: Batch, only: int | None = None) -> list[OperatingPoint]:
        evidence = evidence_of(test)
        ends = ends_of(test, evidence.shape[1])
        draws = [(draw, np.random.default_rng((self.seed, draw))) for draw in range(self.repeats)]
        return [
            _point(evidence, random.integers(1, ends, endpoint=True), float(draw), self.prior)
            for draw, random in picked(draws, only)
        ]


def _point(evidence: NDArray[Any], times: Ints, setting: float, prior: Floats) -> OperatingPoint:
    chosen = decide_at(evidence, times)
    return OperatingPoint(setting, chosen, posterior(at_decision(evidence, chosen), prior))
