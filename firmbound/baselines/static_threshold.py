"""The classical rival: a sequential probability ratio test whose threshold does not move."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from firmbound.arrays import Floats, Ints, check_lengths
from firmbound.baselines.rival import OperatingPoint, at_decision, evidence_of, picked
from firmbound.errors import InvalidInput
from firmbound.posterior import posterior
from firmbound.trajectories import Batch, Decisions, check_evidence

AverageRisk = Callable[[Decisions], float]


@dataclass(frozen=True)
class StaticThreshold:
    """Stop at the first t with max_k min_{l != k} lambda_kl >= threshold, and say k; at T, decide anyway."""

    threshold: float

    def __post_init__(self) -> None:
        if not (np.isfinite(self.threshold) and self.threshold >= 0):
            raise InvalidInput(
                "threshold", "be non-negative and finite", self.threshold, "It is a log-likelihood ratio."
            )

    def decide(self, evidence: ArrayLike, lengths: ArrayLike | None = None) -> Decisions:
        """(n, T, K) evidence to decisions, at the latest where sequences end."""
        return sweep(evidence, [self.threshold], lengths)[0]


def sweep(evidence: ArrayLike, thresholds: ArrayLike, lengths: ArrayLike | None = None) -> list[Decisions]:
    """Decisions for each threshold; what they share is computed once."""
    values = check_evidence(evidence)
    reached, ends = running_lead(values), check_lengths(lengths, count=len(values), horizon=values.shape[1])
    grid = np.atleast_1d(np.asarray(thresholds))
    return [_decide(values, reached, ends, StaticThreshold(float(a)).threshold) for a in grid]


def threshold_grid(evidence: ArrayLike, count: int, lengths: ArrayLike | None = None) -> Floats:
    """`count` thresholds from 0 to where almost no sequence gets before its end."""
    reached = running_lead(check_evidence(evidence))
    return _grid(reached, check_lengths(lengths, count=len(reached), horizon=reached.shape[1]), count)


def tune_threshold(
    evidence: ArrayLike,
    average_risk: AverageRisk,
    count: int,
    lengths: ArrayLike | None = None,
) -> StaticThreshold:
    """The threshold of least average risk: a grid of `count`, then twice a finer one around the best.

    A rival deserves its best form: on a coarse grid a static threshold looks worse than it is.
    """
    return tune_thresholds(evidence, [average_risk], count, lengths)[0]


def tune_thresholds(
    evidence: ArrayLike, average_risks: Sequence[AverageRisk], count: int, lengths: ArrayLike | None = None
) -> list[StaticThreshold]:
    """The best threshold for each of several measures, as `tune_threshold` finds them; what they share is done once."""
    values = check_evidence(evidence)
    reached, ends = running_lead(values), check_lengths(lengths, count=len(values), horizon=values.shape[1])
    grid = _grid(reached, ends, count)
    first = np.array([_averages(_decide(values, reached, ends, float(a)), average_risks) for a in grid])
    found = []
    for average_risk, averages in zip(average_risks, first.T, strict=True):
        tried, risks = grid, averages
        for _ in range(2):
            best = int(np.argmin(risks))
            tried = np.linspace(tried[max(best - 1, 0)], tried[min(best + 1, len(tried) - 1)], 11)
            risks = np.array([average_risk(_decide(values, reached, ends, float(a))) for a in tried])
        found.append(StaticThreshold(float(tried[int(np.argmin(risks))])))
    return found


@dataclass(frozen=True)
class StaticSprt:
    """All static thresholds as a rival; on validation sequences their mean times lie evenly from 1 to T."""

    prior: Floats
    count: int = 80
    grid: Floats | None = None

    def fit(self, train: Batch, validation: Batch, *, seed: int) -> StaticSprt:
        reached = running_lead(check_evidence(evidence_of(validation)))
        ends = check_lengths(validation.lengths, count=len(reached), horizon=reached.shape[1])
        # The mean time of a threshold is 1 and the number of steps below it: even shares of steps are even times.
        there = reached[np.arange(reached.shape[1]) < ends[:, None]]
        return StaticSprt(self.prior, self.count, np.quantile(np.append(there, 0.0), np.linspace(0.0, 1.0, self.count)))

    def points(self, test: Batch, only: int | None = None) -> list[OperatingPoint]:
        if self.grid is None:
            raise InvalidInput("thresholds", "be fitted before they decide", "none")
        evidence, grid = evidence_of(test), np.asarray(picked(self.grid.tolist(), only))
        return [
            OperatingPoint(float(threshold), one, posterior(at_decision(evidence, one), self.prior))
            for threshold, one in zip(grid, sweep(evidence, grid, test.lengths), strict=True)
        ]


def _averages(decisions: Decisions, average_risks: Sequence[AverageRisk]) -> list[float]:
    return [average_risk(decisions) for average_risk in average_risks]


def _grid(reached: Floats, ends: Ints, count: int) -> Floats:
    if count < 2:
        raise InvalidInput("count", "be at least 2", count)
    top = float(np.quantile(reached[np.arange(len(reached)), ends - 1], 0.999))
    return np.linspace(0.0, top, count)


def lead(evidence: NDArray[Any]) -> Floats:
    """Of the first class over the second at every step, which is max_k min_l lambda_kl.  (n, T, K) -> (n, T)."""
    top = np.partition(evidence, -2, axis=-1)[..., -2:]
    return np.asarray(top[..., 1] - top[..., 0], dtype=np.float64)


def running_lead(evidence: NDArray[Any]) -> Floats:
    """The largest lead so far.  (n, T, K) -> (n, T)."""
    return np.asarray(np.maximum.accumulate(lead(evidence), axis=1))


def _decide(evidence: NDArray[Any], reached: Floats, ends: Ints, threshold: float) -> Decisions:
    n, horizon, _ = evidence.shape
    time: Ints = np.minimum((reached < threshold).sum(axis=1) + 1, ends)
    return Decisions(time, evidence[np.arange(n), time - 1].argmax(axis=1), horizon)
