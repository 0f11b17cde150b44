"""Error against time: the speed-accuracy trade-off and the field's habitual summaries of it."""

from __future__ import annotations

import numpy as np

from firmbound.arrays import Ints, class_labels
from firmbound.errors import InvalidInput
from firmbound.evaluation.estimates import Estimate
from firmbound.trajectories import Decisions


def macro_error(decisions: Decisions, labels: Ints, classes: int) -> Estimate:
    """1 - macro-averaged recall over the classes that occur, with its binomial standard error."""
    truth = class_labels("labels", labels, count=len(decisions), classes=classes)
    counts = np.bincount(truth, minlength=classes)
    wrong = np.bincount(truth, weights=decisions.label != truth, minlength=classes)
    present = counts > 0
    if not present.any():
        raise InvalidInput("labels", "hold at least one sequence", "none")
    rate = wrong[present] / counts[present]
    variance = rate * (1.0 - rate) / counts[present]
    return Estimate(float(rate.mean()), float(np.sqrt(variance.sum()) / present.sum()))


def accuracy(decisions: Decisions, labels: Ints) -> float:
    """Share of sequences decided rightly."""
    return float(np.mean(decisions.label == np.asarray(labels)))


def earliness(decisions: Decisions) -> float:
    """Mean share of the horizon that was used: 1/T at the earliest, 1 at the latest."""
    return float(np.mean(decisions.time) / decisions.horizon)


def harmonic_mean(decisions: Decisions, labels: Ints) -> float:
    """Harmonic mean of accuracy and 1 - earliness, the early-classification field's single number."""
    right, saved = accuracy(decisions, labels), 1.0 - earliness(decisions)
    return 0.0 if right + saved == 0 else 2.0 * right * saved / (right + saved)
