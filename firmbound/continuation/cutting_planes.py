"""Convex function learning in any dimension by constraint generation.

Of the m^2 convexity constraints few matter. Start from near neighbours, solve the sparse quadratic programme, add the
worst violations, and solve again until no constraint is broken by more than the tolerance.
"""

from __future__ import annotations

import warnings

import numpy as np
from scipy import sparse
from scipy.spatial import cKDTree

from firmbound.arrays import Floats, Ints
from firmbound.continuation.convex_objective import ConvexFit, excess_over_values, objective_value
from firmbound.continuation.quadratic_programme import QuadraticSolution, solve_quadratic_programme
from firmbound.errors import NotConvergedWarning

MAX_ROUNDS = 40


def near_pairs(points: Floats, neighbours: int) -> Ints:
    """Pairs (i, j), j among the nearest `neighbours` of i.  (m, p) -> (pairs, 2)."""
    m = len(points)
    if m < 2:
        return np.empty((0, 2), dtype=np.int64)
    count = min(neighbours, m - 1)
    _, nearest = cKDTree(points).query(points, k=count + 1)
    first = np.repeat(np.arange(m), count + 1)
    pairs = np.column_stack([first, nearest.ravel()])
    return np.asarray(pairs[pairs[:, 0] != pairs[:, 1]], dtype=np.int64)


def fit_cutting_planes(
    points: Floats, targets: Floats, weights: Floats, regularisation: float, pairs: Ints, tolerance: float
) -> tuple[ConvexFit, Ints]:
    """Convex least squares on points (m, p): the fit, and the pairs that held at the end, a start for the next.

    `regularisation` must be positive: it alone fixes slopes along directions in which the points do not differ.
    """
    share = weights / weights.sum()
    programme = _Programme(points, targets, share, regularisation)
    rounds, violation = 0, np.inf
    while violation > tolerance and rounds < MAX_ROUNDS:
        rounds += 1
        solution = programme.solve(pairs)
        values, slopes = programme.values(solution), programme.slopes(solution)
        excess = excess_over_values(values, slopes, points)
        violation = max(float(excess.max()), 0.0)
        holding = pairs[solution.multipliers[: len(pairs)] > 1e-9]
        pairs = _merge(pairs, worst_pairs(excess, tolerance))
    if violation > tolerance:
        warnings.warn(
            f"cutting planes ended after {MAX_ROUNDS} rounds with violation {violation:.2g}, wanted {tolerance:.2g}",
            NotConvergedWarning,
            stacklevel=2,
        )
    offsets = values - np.einsum("ij,ij->i", slopes, points)
    objective = objective_value(values, slopes, targets, weights, regularisation)
    return ConvexFit(values, slopes, offsets, objective, violation, solution.gap, rounds), holding


def worst_pairs(excess: Floats, tolerance: float) -> Ints:
    """For each point the piece that exceeds it most, and for each piece the point it exceeds most."""
    m = len(excess)
    rows = np.arange(m)
    pairs = np.concatenate(
        [np.column_stack([excess.argmax(axis=0), rows]), np.column_stack([rows, excess.argmax(axis=1)])]
    )
    return np.asarray(pairs[excess[pairs[:, 0], pairs[:, 1]] > tolerance / 2], dtype=np.int64)


def _merge(*groups: Ints) -> Ints:
    return np.asarray(np.unique(np.concatenate(groups), axis=0), dtype=np.int64)


class _Programme:
    """Variables: values (m), slopes (m * p, row by row), and a bound on each slope coordinate (p)."""

    def __init__(self, points: Floats, targets: Floats, share: Floats, regularisation: float) -> None:
        self.points = points
        self.m, self.p = points.shape
        self.size = self.m + self.m * self.p + self.p
        diagonal = np.zeros(self.size)
        diagonal[: self.m] = 2.0 * share
        self.quadratic = sparse.diags_array(diagonal, format="csc")
        self.linear = np.zeros(self.size)
        self.linear[: self.m] = -2.0 * share * targets
        self.linear[-self.p :] = regularisation
        self.slope_rows = self._slope_bounds()

    def values(self, solution: QuadraticSolution) -> Floats:
        return solution.x[: self.m]

    def slopes(self, solution: QuadraticSolution) -> Floats:
        return solution.x[self.m : self.m + self.m * self.p].reshape(self.m, self.p)

    def solve(self, pairs: Ints) -> QuadraticSolution:
        rows = sparse.csc_array(sparse.vstack([self._convexity(pairs), self.slope_rows]))
        return solve_quadratic_programme(self.quadratic, self.linear, rows, np.zeros(rows.shape[0]))

    def _convexity(self, pairs: Ints) -> sparse.coo_array:
        """f_i - f_j + <a_i, x_j - x_i> <= 0 for each pair (i, j)."""
        i, j = pairs[:, 0], pairs[:, 1]
        count = len(pairs)
        row = np.arange(count)
        columns = (self.m + self.p * i[:, None] + np.arange(self.p)).ravel()
        entries = np.concatenate([np.ones(count), -np.ones(count), (self.points[j] - self.points[i]).ravel()])
        places = (np.concatenate([row, row, np.repeat(row, self.p)]), np.concatenate([i, j, columns]))
        return sparse.coo_array((entries, places), shape=(count, self.size))

    def _slope_bounds(self) -> sparse.coo_array:
        """a_il - B_l <= 0 and -a_il - B_l <= 0."""
        slopes = np.arange(self.m * self.p)
        bound = self.m + self.m * self.p + np.tile(np.arange(self.p), self.m)
        count = len(slopes)
        entries = np.concatenate([np.ones(count), -np.ones(count), -np.ones(2 * count)])
        rows = np.concatenate([slopes, slopes + count, slopes, slopes + count])
        columns = np.concatenate([self.m + slopes, self.m + slopes, bound, bound])
        return sparse.coo_array((entries, (rows, columns)), shape=(2 * count, self.size))
