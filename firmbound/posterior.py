"""Evidence and prior to posteriors, and back.

Evidence e_k = log p(x_1..t | y = k) up to a constant shared by all k. Everything is computed from differences, so the
shared constant never matters, and small posteriors keep their digits because no one is subtracted from 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from firmbound.arrays import Floats, finite_array
from firmbound.errors import InvalidInput

SUM_TOLERANCE = 1e-6
# Contenders that a ranked belief keeps apart.
RANKS = 2


def class_prior(prior: ArrayLike | None, classes: int) -> Floats:
    """Class prior as (K,) probabilities; None is uniform."""
    if prior is None:
        return np.full(classes, 1.0 / classes)
    array = finite_array("prior", prior, ndim=1, shape_words=f"({classes},)").astype(np.float64)
    if array.shape != (classes,):
        raise InvalidInput("prior", f"have shape ({classes},), one probability a class", f"shape {array.shape}")
    if array.min() <= 0:
        raise InvalidInput("prior", "be positive", array.tolist(), "Leave a class out if it never occurs.")
    if abs(array.sum() - 1.0) > SUM_TOLERANCE:
        raise InvalidInput("prior", "sum to 1", f"sum {array.sum():.8g}", "Divide by the sum.")
    return np.asarray(array / array.sum(), dtype=np.float64)


def posterior(evidence: ArrayLike, prior: Floats) -> Floats:
    """pi_k = softmax(e + log prior)_k; small ones keep their digits.  (..., K) -> (..., K)."""
    return softmax(np.asarray(evidence, dtype=np.float64) + np.log(prior))


def softmax(scores: Floats) -> Floats:
    """exp(s_k) / sum exp(s), over the last axis."""
    if scores.ndim == 1:  # one sequence at one step, where every microsecond counts
        weights = np.exp(scores - scores.max())
        return np.asarray(weights / weights.sum())
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True), dtype=np.float64)


def log_likelihood_ratios(evidence: ArrayLike) -> Floats:
    """The K - 1 differences e_k - e_K that hold all K x K log-likelihood ratios.  (..., K) -> (..., K - 1)."""
    values = np.asarray(evidence, dtype=np.float64)
    return np.asarray(values[..., :-1] - values[..., -1:], dtype=np.float64)


def ranked(belief: Floats) -> Floats:
    """The RANKS largest posteriors, the largest first, and what the others have together.  (.., K) -> (.., RANKS + 1).

    Whatever the number of classes, this says how sure a belief is and who contends; which classes they are it forgets.
    """
    rising = np.sort(belief, axis=-1)
    first = rising[..., : -RANKS - 1 : -1]
    rest = rising[..., :-RANKS].sum(axis=-1, keepdims=True)  # of small numbers, so it keeps its digits
    return np.concatenate([first, rest], axis=-1)


def check_posteriors(posteriors: ArrayLike) -> Floats:
    """(n, T, K) posteriors, each non-negative and summing to 1."""
    array = finite_array("posteriors", posteriors, ndim=3, shape_words="(n, T, K)").astype(np.float64)
    if array.size and array.min() < 0:
        raise InvalidInput("posteriors", "be non-negative", f"minimum {array.min():.6g}")
    worst = float(np.abs(array.sum(axis=-1) - 1.0).max(initial=0.0))
    if worst > SUM_TOLERANCE * 10:
        raise InvalidInput(
            "posteriors",
            "sum to 1 over classes",
            f"a sum that is off by {worst:.6g}",
            "Apply a softmax to scores before handing them over.",
        )
    return array


def evidence_from_posteriors(posteriors: ArrayLike, prior: ArrayLike | None = None) -> Floats:
    """Evidence of posteriors that come from any model: log pi_k - log prior_k.  (n, T, K) -> (n, T, K).

    A posterior of exactly 0 becomes the smallest positive number, so the evidence stays finite.
    """
    array = check_posteriors(posteriors)
    floor = np.finfo(np.float64).tiny
    return np.asarray(np.log(np.maximum(array, floor)) - np.log(class_prior(prior, array.shape[-1])), dtype=np.float64)
