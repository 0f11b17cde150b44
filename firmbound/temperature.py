"""One number that makes beliefs as sure as they should be: evidence is divided by it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from firmbound.arrays import Floats, Ints, mean_over_time

# Natural logarithm of the largest temperature that is looked for, and of the smallest, with a minus.
REACH = 3.0
# Sequences below which a temperature is not judged.
ENOUGH = 20


def fit_temperature(evidence: NDArray[Any], labels: Ints, prior: Floats, lengths: Ints | None = None) -> float:
    """The temperature that makes labels likeliest, over all t; above 1 for beliefs that are too sure.

    Fit it on sequences that the evidence was not learned from. Labels that are all guessed right would be likelier
    still the surer they are called, without end: then, as with any answer beyond exp(+-3), it is 1.
    """

    def loss(log_temperature: float) -> float:
        return float(_losses(evidence, labels, prior, lengths, np.exp(log_temperature)).mean())

    found = optimize.minimize_scalar(loss, bounds=(-REACH, REACH), method="bounded", options={"xatol": 1e-4})
    return float(np.exp(found.x)) if abs(found.x) < REACH - 0.01 else 1.0


def helpful_temperature(evidence: NDArray[Any], labels: Ints, prior: Floats, lengths: Ints | None = None) -> float:
    """As `fit_temperature`, but 1 unless a temperature helps on sequences that it was not fitted on.

    Each half of the sequences is scored with the temperature of the other. It helps if the mean negative log-likelihood
    falls by more than one standard error.
    """
    if len(labels) < ENOUGH:
        return 1.0
    half = np.random.default_rng(0).permutation(len(labels)) % 2 == 0
    gains = np.empty(len(labels))
    for own, other in ((half, ~half), (~half, half)):
        ends = None if lengths is None else lengths[own]
        found = fit_temperature(evidence[other], labels[other], prior, None if lengths is None else lengths[other])
        before, after = (_losses(evidence[own], labels[own], prior, ends, value) for value in (1.0, found))
        gains[own] = before - after
    helps = gains.mean() > gains.std(ddof=1) / np.sqrt(len(gains))
    return fit_temperature(evidence, labels, prior, lengths) if helps else 1.0


def _losses(evidence: NDArray[Any], labels: Ints, prior: Floats, lengths: Ints | None, temperature: float) -> Floats:
    """(n,) negative log-likelihood of the true class, mean over t."""
    scores = evidence.astype(np.float64) / temperature + np.log(prior)
    scores -= scores.max(axis=-1, keepdims=True)
    own = scores[np.arange(len(labels)), :, labels]
    return mean_over_time(np.log(np.exp(scores).sum(axis=-1)) - own, lengths)
