"""Thresholds that sink to 0 at the horizon along a curve that somebody drew: the economical rival of App. ablation.

f(t) = A (1 - t / T)^exp(kappa):  concave for kappa = -1.5, a line for 0, convex for 1.5
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firmbound.arrays import Floats, Ints
from firmbound.baselines.fixed_time import decide_at
from firmbound.baselines.rival import OperatingPoint, at_decision, ends_of, evidence_of, picked
from firmbound.baselines.static_threshold import lead
from firmbound.errors import InvalidInput
from firmbound.posterior import posterior
from firmbound.trajectories import Batch, Decisions

KAPPAS = (-1.5, 0.0, 1.5)
# Of the largest lead that a training sequence ends with. The paper prints 2/a for the second where a/2 is meant.
MAGNITUDES = (1.0, 0.5, 0.0)


def tapering_threshold(horizon: int, magnitude: float, kappa: float) -> Floats:
    """(T,) thresholds on the lead of the first class over the second; 0 at the horizon."""
    if horizon < 2:
        raise InvalidInput("horizon", "be at least 2", horizon)
    if not (np.isfinite(magnitude) and magnitude >= 0 and np.isfinite(kappa)):
        raise InvalidInput("magnitude", "be non-negative and finite, with a finite kappa", (magnitude, kappa))
    return np.asarray(magnitude * (1.0 - np.arange(1, horizon + 1) / horizon) ** np.exp(kappa))


def decide(evidence: NDArray[Any], thresholds: Floats, ends: Ints) -> Decisions:
    """Stop at the first t at which the lead is no smaller than the threshold (T,), or at the end."""
    reached = lead(evidence) >= thresholds
    reached[np.arange(len(evidence)), ends - 1] = True
    return decide_at(evidence, np.minimum(reached.argmax(axis=1) + 1, ends))


@dataclass(frozen=True)
class TaperingThreshold:
    """Nine points: three curves, each in three sizes. setting: place in that order. largest: lead that A = a is."""

    prior: Floats
    kappas: tuple[float, ...] = KAPPAS
    magnitudes: tuple[float, ...] = MAGNITUDES
    largest: float = 0.0

    def fit(self, train: Batch, validation: Batch, *, seed: int) -> TaperingThreshold:
        evidence = evidence_of(train)
        last = evidence[np.arange(len(evidence)), ends_of(train, evidence.shape[1]) - 1]
        return TaperingThreshold(self.prior, self.kappas, self.magnitudes, float(lead(last[:, None]).max()))

    def points(self, test: Batch, only: int | None = None) -> list[OperatingPoint]:
        evidence = evidence_of(test)
        ends, found = ends_of(test, evidence.shape[1]), []
        ways = list(enumerate(product(self.kappas, self.magnitudes)))
        for place, (kappa, magnitude) in picked(ways, only):
            curve = tapering_threshold(evidence.shape[1], magnitude * self.largest, kappa)
            chosen = decide(evidence, curve, ends)
            belief = posterior(at_decision(evidence, chosen), self.prior)
            found.append(OperatingPoint(float(place), chosen, belief))
        return found
