"""How long decisions take, and how much that varies."""

from __future__ import annotations

import numpy as np

from firmbound.evaluation.estimates import Estimate, mean_of
from firmbound.trajectories import Decisions


def mean_time(decisions: Decisions) -> Estimate:
    """Mean number of observations used."""
    return mean_of(decisions.time.astype(np.float64))


def time_variance(decisions: Decisions) -> Estimate:
    """Variance of the number of observations used; its error from the fourth moment."""
    time = decisions.time.astype(np.float64)
    squares = (time - time.mean()) ** 2
    if len(time) < 2:
        return Estimate(0.0, float("inf"))
    return Estimate(float(time.var(ddof=1)), mean_of(squares).standard_error)
