"""A number with its standard error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from firmbound.arrays import Floats
from firmbound.errors import InvalidInput


@dataclass(frozen=True)
class Estimate:
    """A mean over sequences and the standard error of that mean."""

    value: float
    standard_error: float


def mean_of(samples: Floats) -> Estimate:
    """Mean and s / sqrt(n) of independent samples.  (n,) -> Estimate."""
    if samples.ndim != 1 or samples.size == 0:
        raise InvalidInput("samples", "have shape (n,) with n >= 1", f"shape {samples.shape}")
    error = samples.std(ddof=1) / np.sqrt(samples.size) if samples.size > 1 else np.inf
    return Estimate(float(samples.mean()), float(error))


def relative_excess(risks: Floats, reference: Floats) -> Estimate:
    """Mean of `risks` over mean of `reference` less one, for pairs on the same sequences; error by the delta method."""
    if risks.shape != reference.shape:
        raise InvalidInput("risks", "pair with the reference", f"shapes {risks.shape} and {reference.shape}")
    base = float(reference.mean())
    ratio = float(risks.mean()) / base
    return Estimate(ratio - 1.0, mean_of((risks - ratio * reference) / base).standard_error)
