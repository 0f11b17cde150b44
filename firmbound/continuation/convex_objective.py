"""Convex function learning, the objective: one function that every solver minimises and reports.

    (1 / sum w) sum_i w_i (f_i - y_i)^2 + lambda sum_l max_i |a_il|
    subject to f_j >= f_i + <a_i, x_j - x_i> for all i, j

f_i is the fitted value at x_i and a_i a subgradient there. These solvers know nothing of risks: they fit *convex*
functions, and whoever wants a concave one flips the sign.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from firmbound.arrays import Floats


@dataclass(frozen=True)
class ConvexFit:
    """A solution: max over rows of <slopes, x> + offsets, and how good it is.

    `values` (m,) are the fitted f_i; `violation` is the largest amount by which a piece exceeds another point's value;
    `gap` is the solver's relative duality gap; `rounds` counts the quadratic programmes solved.
    """

    values: Floats
    slopes: Floats
    offsets: Floats
    objective: float
    violation: float
    gap: float
    rounds: int


def objective_value(values: Floats, slopes: Floats, targets: Floats, weights: Floats, regularisation: float) -> float:
    """(1 / sum w) sum_i w_i (f_i - y_i)^2 + lambda sum_l max_i |a_il|."""
    misfit = float(np.average((values - targets) ** 2, weights=weights))
    return misfit + regularisation * float(np.abs(slopes).max(axis=0).sum())


def excess_over_values(values: Floats, slopes: Floats, points: Floats) -> Floats:
    """[i, j] = f_i + <a_i, x_j - x_i> - f_j: positive where piece i breaks convexity at point j."""
    offsets = values - np.einsum("ij,ij->i", slopes, points)
    return np.asarray(slopes @ points.T + offsets[:, None] - values[None, :], dtype=np.float64)
