"""Numbers that make beliefs as sure as they should be: evidence is divided by them, one for all times or one for each.

Networks are often too modest of the first observations and too sure of the last. A stopping rule compares beliefs of
different times, so what one number cannot mend at both ends makes it stop too late, then too early.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from firmbound.arrays import Floats, Ints, mean_over_time
from firmbound.posterior import posterior

# Natural logarithm of the largest temperature that is looked for, and of the smallest, with a minus.
REACH = 3.0
# Sequences below which a temperature is not judged.
ENOUGH = 20
# Of the polynomial in log t that the logarithm of a temperature is.
DEGREE = 2


def fit_temperature(evidence: NDArray[Any], labels: Ints, prior: Floats, lengths: Ints | None = None) -> float:
    """The temperature that makes labels likeliest, over all t; above 1 for beliefs that are too sure.

    Fit it on sequences that the evidence was not learned from. Labels that are all guessed right would be likelier
    still the surer they are called, without end: then, as with any answer beyond exp(+-3), it is 1.
    """

    def loss(log_temperature: float) -> float:
        return float(_losses(evidence, labels, prior, lengths, np.exp(log_temperature)).mean())

    found = optimize.minimize_scalar(loss, bounds=(-REACH, REACH), method="bounded", options={"xatol": 1e-4})
    return float(np.exp(found.x)) if abs(found.x) < REACH - 0.01 else 1.0


def fit_temperatures(evidence: NDArray[Any], labels: Ints, prior: Floats, lengths: Ints | None = None) -> Floats:
    """(T,) temperatures that make labels likeliest, smooth in t: log temperature is a polynomial in log t.

    As `fit_temperature` otherwise, whose one number it gives for all t where no curve within exp(+-3) is best.
    """
    one, times = fit_temperature(evidence, labels, prior, lengths), np.arange(1, evidence.shape[1] + 1)
    basis = np.vander(np.log(times), min(DEGREE + 1, len(times)), increasing=True)

    def loss(weights: Floats) -> tuple[float, Floats]:
        temperature = np.exp(np.clip(basis @ weights, -REACH, REACH))[:, None]
        losses = _losses(evidence, labels, prior, lengths, temperature)
        return float(losses.mean()), basis.T @ _slopes(evidence, labels, prior, lengths, temperature)

    start = np.zeros(basis.shape[1])
    start[0] = np.log(one)
    found = basis @ optimize.minimize(loss, start, jac=True, method="L-BFGS-B").x
    return np.exp(found) if np.abs(found).max() < REACH - 0.01 else np.full(len(times), one)


def helpful_temperature(evidence: NDArray[Any], labels: Ints, prior: Floats, lengths: Ints | None = None) -> float:
    """As `fit_temperature`, but 1 unless a temperature helps on sequences that it was not fitted on.

    Each half of the sequences is scored with the temperature of the other. It helps if the mean negative log-likelihood
    falls by more than one standard error.
    """
    return _one_that_helps(evidence, labels, prior, lengths)[0]


def helpful_temperatures(evidence: NDArray[Any], labels: Ints, prior: Floats, lengths: Ints | None = None) -> Floats:
    """(T,) temperatures, or (1,): one for all t unless one for each helps, in the sense of `helpful_temperature`."""
    one, losses = _one_that_helps(evidence, labels, prior, lengths)
    if len(labels) < ENOUGH or evidence.shape[1] == 1:
        return np.array([one])
    helps = _beyond_chance(losses - _held_out_losses(fit_temperatures, evidence, labels, prior, lengths))
    return fit_temperatures(evidence, labels, prior, lengths) if helps else np.array([one])


def _one_that_helps(evidence: NDArray[Any], labels: Ints, prior: Floats, lengths: Ints | None) -> tuple[float, Floats]:
    """A temperature for all t, 1 where none helps, and the (n,) losses that it was judged by."""
    plain = _losses(evidence, labels, prior, lengths, 1.0)
    if len(labels) >= ENOUGH:
        mended = _held_out_losses(fit_temperature, evidence, labels, prior, lengths)
        if _beyond_chance(plain - mended):
            return fit_temperature(evidence, labels, prior, lengths), mended
    return 1.0, plain


def at_times(temperatures: Floats, times: Ints) -> Floats:
    """The temperature of each time, from 1; times later than any that one was fitted for have the last."""
    return np.asarray(temperatures[np.clip(times, 1, len(temperatures)) - 1])


def in_words(temperatures: Floats) -> str:
    if len(temperatures) == 1:
        return f"a temperature of {temperatures[0]:.3f}"
    first, last = temperatures[0], temperatures[-1]
    return f"temperatures from {first:.3f} at the first observation to {last:.3f} at the last"


def read_temperatures(header: Mapping[str, Any]) -> Floats:
    """Of a saved model's header; models of older versions have one for all times."""
    found = np.asarray(
        header["temperatures"] if "temperatures" in header else [header["temperature"]], dtype=np.float64
    )
    if found.ndim != 1 or not len(found) or not np.all((found > 0) & (found < np.inf)):
        raise ValueError(f"its temperatures are {found.tolist()}")
    return found


def _held_out_losses(
    fit: Callable[..., float | Floats], evidence: NDArray[Any], labels: Ints, prior: Floats, lengths: Ints | None
) -> Floats:
    """(n,) losses of each half of the sequences with what was fitted on the other."""
    half = np.random.default_rng(0).permutation(len(labels)) % 2 == 0
    losses = np.empty(len(labels))
    for own, other in ((half, ~half), (~half, half)):
        ends, theirs = (None if lengths is None else lengths[rows] for rows in (own, other))
        found = np.asarray(fit(evidence[other], labels[other], prior, theirs))
        losses[own] = _losses(evidence[own], labels[own], prior, ends, found[..., None])
    return losses


def _beyond_chance(gains: Floats) -> bool:
    return bool(gains.mean() > gains.std(ddof=1) / np.sqrt(len(gains)))


def _losses(
    evidence: NDArray[Any], labels: Ints, prior: Floats, lengths: Ints | None, temperature: float | Floats
) -> Floats:
    """(n,) negative log-likelihood of the true class, mean over t."""
    scores = evidence.astype(np.float64) / temperature + np.log(prior)
    scores -= scores.max(axis=-1, keepdims=True)
    own = scores[np.arange(len(labels)), :, labels]
    return mean_over_time(np.log(np.exp(scores).sum(axis=-1)) - own, lengths)


def _slopes(evidence: NDArray[Any], labels: Ints, prior: Floats, lengths: Ints | None, temperature: Floats) -> Floats:
    """(T,) derivatives of the mean loss by the logarithm of each temperature (T, 1)."""
    shown = evidence.astype(np.float64) / temperature
    slopes = shown[np.arange(len(labels)), :, labels] - (posterior(shown, prior) * shown).sum(axis=2)
    count, times = slopes.shape
    ends = np.full(count, times) if lengths is None else lengths
    seen = np.arange(times) < ends[:, None]
    return np.asarray(np.where(seen, slopes / ends[:, None], 0.0).sum(axis=0) / count)
