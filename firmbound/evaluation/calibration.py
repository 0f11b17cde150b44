"""Whether beliefs are as often right as they say, at each number of observations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from firmbound.arrays import Floats, Ints, check_lengths, class_labels
from firmbound.errors import InvalidInput
from firmbound.posterior import class_prior, posterior
from firmbound.trajectories import check_evidence

BINS = 15
# Ratios beyond this many nats are hardly ever seen in training; estimates of them saturate or run away.
SATURATION = 100.0


@dataclass(frozen=True)
class Reliability:
    """Bins of confidence: how many sequences, how sure on average, how often right.  Each (bins,).

    variance: (bins,) of the number of right ones, if beliefs were honest.
    """

    count: Ints
    confidence: Floats
    accuracy: Floats
    variance: Floats

    @property
    def error(self) -> float:
        """Expected calibration error: mean |accuracy - confidence| over sequences."""
        return float(self.count @ np.abs(self.accuracy - self.confidence) / self.count.sum())

    @property
    def chance(self) -> float:
        """The error that honest beliefs would show on so few sequences: E|x| = sqrt(2 / pi) deviations in each bin."""
        return float(np.sqrt(2.0 / np.pi * self.variance).sum() / self.count.sum())


def reliability(belief: Floats, labels: Ints, bins: int = BINS) -> Reliability:
    """Confidence in the likeliest class against how often it is right; (n, K) posteriors, bins of equal width."""
    if bins < 1 or len(belief) == 0:
        raise InvalidInput("bins", "be positive, with sequences to fill them", (bins, len(belief)))
    sure = belief.max(axis=1)
    place = np.minimum((sure * bins).astype(np.int64), bins - 1)
    count = np.bincount(place, minlength=bins)
    right = np.bincount(place, belief.argmax(axis=1) == labels, bins)
    filled = np.maximum(count, 1)
    variance: Floats = np.asarray(np.bincount(place, sure * (1.0 - sure), bins), dtype=np.float64)
    return Reliability(count, np.bincount(place, sure, bins) / filled, right / filled, variance)


@dataclass(frozen=True)
class Calibration:
    """At t = 1..T: expected calibration error, how much of it honest beliefs would show by chance, and mean negative
    log-likelihood of the true class; and the largest difference of evidence between two classes, in nats."""

    error: Floats
    chance: Floats
    negative_log_likelihood: Floats
    largest_ratio: float

    @property
    def saturated(self) -> bool:
        return self.largest_ratio > SATURATION


def calibration(
    evidence: ArrayLike, labels: ArrayLike, prior: ArrayLike | None = None, lengths: ArrayLike | None = None
) -> Calibration:
    """Of (n, T, K) evidence with (n,) labels; prior None: all classes equally likely.

    lengths: (n,) observations of each sequence, where they differ; at t those count that have so many.
    """
    given = check_evidence(evidence)
    count, horizon, classes = given.shape
    known, weights = class_labels("labels", labels, count=count, classes=classes), class_prior(prior, classes)
    ends = check_lengths(lengths, count=count, horizon=horizon)
    errors, chances, losses, ratio = [], [], [], 0.0
    for t in range(ends.max()):
        there = ends > t
        now, truth = given[there, t], known[there]
        belief = posterior(now, weights)
        found = reliability(belief, truth)
        errors.append(found.error)
        chances.append(found.chance)
        own = belief[np.arange(len(truth)), truth]
        losses.append(float(-np.log(np.maximum(own, np.finfo(np.float64).tiny)).mean()))
        ratio = max(ratio, float((now.max(axis=-1) - now.min(axis=-1)).max()))
    return Calibration(np.array(errors), np.array(chances), np.array(losses), ratio)
