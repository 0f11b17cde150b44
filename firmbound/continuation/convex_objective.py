"""Convex function learning, the objective: one function that every solver minimises and reports.

    (1 / sum w) sum_i w_i (f_i - y_i)^2 + lambda sum_l max_i |a_il|
    subject to f_j >= f_i + <a_i, x_j - x_i> for all i, j

f_i is the fitted value at x_i and a_i a subgradient there. These solvers know nothing of risks: they fit *convex*
functions, and whoever wants a concave one flips the sign.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from firmbound.arrays import Floats, Ints


@dataclass(frozen=True)
class ConvexFit:
    """A solution: max over rows of <slopes, x> + offsets, and how good it is.

    `values` (m,) are the fitted f_i; `violation` is the largest amount by which the solver's pieces broke convexity,
    before the maximum over all of them, which breaks none, was taken as the fit; `gap` is how far the objective may lie
    above the least possible, as a share of it; `rounds` counts the solver's iterations.
    """

    values: Floats
    slopes: Floats
    offsets: Floats
    objective: float
    violation: float
    gap: float
    rounds: int


def offsets_of(values: Floats, slopes: Floats, points: Floats) -> Floats:
    """Offsets of the pieces with these slopes through (points, values).  (m,), (m, p), (m, p) -> (m,)."""
    return np.asarray(values - np.einsum("ij,ij->i", slopes, points), dtype=np.float64)


def objective_value(values: Floats, slopes: Floats, targets: Floats, weights: Floats, regularisation: float) -> float:
    """(1 / sum w) sum_i w_i (f_i - y_i)^2 + lambda sum_l max_i |a_il|."""
    misfit = float(np.average((values - targets) ** 2, weights=weights))
    return misfit + regularisation * float(np.abs(slopes).max(axis=0).sum())


def excess_over_values(values: Floats, slopes: Floats, points: Floats) -> Floats:
    """[i, j] = f_i + <a_i, x_j - x_i> - f_j: positive where piece i breaks convexity at point j."""
    offsets = offsets_of(values, slopes, points)
    return np.asarray(slopes @ points.T + offsets[:, None] - values[None, :], dtype=np.float64)


def dual_bound(
    targets: Floats, weights: Floats, regularisation: float, value_forces: Floats, slope_forces: Floats
) -> float:
    """A number that no objective can go below, from any multipliers z_ij >= 0 of the convexity constraints.

    value_forces (m,): sum_j z_ji - sum_j z_ij. slope_forces (m, p): sum_j z_ij (x_j - x_i). Slopes are free up to the
    penalty, so multipliers count only where sum_i |slope_forces_il| <= lambda for every l: they are scaled to that.
    """
    share = weights / weights.sum()
    heaviest = float(np.abs(slope_forces).sum(axis=0).max(initial=0.0))
    largest = regularisation / heaviest if heaviest > 0 else np.inf
    pull, stiffness = -float(value_forces @ targets), float(np.sum(value_forces**2 / share))
    if pull <= 0 or stiffness == 0:
        return 0.0
    scale = min(2.0 * pull / stiffness, largest)
    return float(scale * pull - scale**2 * stiffness / 4.0)


def relative_gap(objective: float, bound: float) -> float:
    """How far `objective` may lie above the optimum, as a share of it; 0 for a perfect fit."""
    return max(objective - bound, 0.0) / max(objective, float(np.finfo(np.float64).tiny))


def repaired_fit(
    points: Floats,
    targets: Floats,
    weights: Floats,
    regularisation: float,
    slopes: Floats,
    offsets: Floats,
    bound: float,
    rounds: int,
    owner: Ints | None = None,
) -> ConvexFit:
    """The convex function that a solver's pieces (P, p), (P,) make, their maximum, with its own objective.

    An iterate breaks constraints a little. The maximum of its pieces breaks none, so that is what is scored and used:
    every point takes the value and the slope of the piece that is highest there. `violation` says by how much the
    highest exceeded the piece that the solver meant for the point: its own, or that of `owner` (m,).
    """
    heights = slopes @ points.T + offsets[:, None]
    highest = heights.argmax(axis=0)
    tops, chosen = heights[highest, np.arange(len(points))], slopes[highest]
    objective = objective_value(tops, chosen, targets, weights, regularisation)
    meant = heights[np.arange(len(points)) if owner is None else owner, np.arange(len(points))]
    violation = max(float((tops - meant).max()), 0.0)
    return ConvexFit(tops, chosen, offsets[highest], objective, violation, relative_gap(objective, bound), rounds)
