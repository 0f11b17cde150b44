"""Linear programmes over the simplex of class probabilities."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog

from firmbound.arrays import Floats


def highest_minimum(slopes: Floats, offsets: Floats) -> float | None:
    """max over the simplex of min_q <slope_q, x> + offset_q.  (P, K), (P,) -> float; None if the solver fails."""
    count, classes = slopes.shape
    objective = np.append(np.zeros(classes), -1.0)
    # height - <slope_q, x> <= offset_q
    upper = np.column_stack([-slopes, np.ones(count)])
    simplex = np.append(np.ones(classes), 0.0)[None, :]
    bounds = [(0.0, None)] * classes + [(None, None)]
    solved = linprog(objective, A_ub=upper, b_ub=offsets, A_eq=simplex, b_eq=[1.0], bounds=bounds)
    return None if solved.fun is None else -float(solved.fun)
