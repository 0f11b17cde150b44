"""The constraints that the interior-point solver holds, and their normal equations.

Unknowns: values f (m), slopes a (m, p), bounds B (p) on the slopes. Constraints, all >= 0, in this order:

    convexity   f_j - f_i - <a_i, x_j - x_i>   for the pairs (i, j) held
    above       B_l - a_il
    below       B_l + a_il

A slope a_i meets only its own row's constraints, so it is eliminated by a p x p factorisation, all rows at once. What
is left is a dense system for (f, B): m + p unknowns instead of the m + m p + p of a general sparse solver.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from firmbound.arrays import Floats, Ints
from firmbound.errors import NumericalError


@dataclass(frozen=True)
class Unknowns:
    """values (m,), slopes (m, p), bounds (p,): a point or a direction."""

    values: Floats
    slopes: Floats
    bounds: Floats

    def moved(self, step: float, direction: Unknowns) -> Unknowns:
        return Unknowns(
            self.values + step * direction.values,
            self.slopes + step * direction.slopes,
            self.bounds + step * direction.bounds,
        )


class WorkingSet:
    """Some of the convexity constraints and all bounds on slopes, as a linear map and its transpose."""

    def __init__(self, points: Floats, pairs: Ints) -> None:
        """`pairs` (P, 2) are distinct (i, j), i != j, sorted by i."""
        self.points, self.pairs = points, pairs
        self.m, self.p = points.shape
        self.i, self.j = pairs[:, 0], pairs[:, 1]
        counts = np.bincount(self.i, minlength=self.m)
        # Rows hold different numbers of constraints; batched algebra wants them padded to the longest.
        self.width = max(int(counts.max(initial=0)), 1)
        first = np.cumsum(counts) - counts
        self.place = self.i * self.width + np.arange(len(pairs)) - first[self.i]
        slots = np.repeat(np.arange(self.m), self.width)
        slots[self.place] = self.j
        self.slots = slots.reshape(self.m, self.width)
        self.differences = points[self.slots] - points[:, None, :]
        own = np.arange(self.m)[:, None]
        shared = np.broadcast_to(self.m + np.arange(self.p), (self.m, self.p))
        self.columns = np.concatenate([self.slots, own, shared], axis=1)
        self.cells = (self.columns[:, :, None] * (self.m + self.p) + self.columns[:, None, :]).ravel()

    def forward(self, x: Unknowns) -> Floats:
        """Left-hand sides of all constraints: (P + 2 m p,)."""
        along = np.matmul(self.differences, x.slopes[:, :, None]).ravel()[self.place]
        convexity = x.values[self.j] - x.values[self.i] - along
        return np.concatenate([convexity, (x.bounds - x.slopes).ravel(), (x.bounds + x.slopes).ravel()])

    def transpose(self, multipliers: Floats) -> Unknowns:
        convexity, above, below = self.split(multipliers)
        values, slopes = self.forces(convexity)
        return Unknowns(values, -slopes - above + below, (above + below).sum(axis=0))

    def forces(self, convexity: Floats) -> tuple[Floats, Floats]:
        """What multipliers of the pairs do to values (m,) and slopes (m, p); see `dual_bound`."""
        ends, starts = (np.bincount(side, convexity, self.m) for side in (self.j, self.i))
        values = np.asarray(ends - starts, dtype=np.float64)
        slopes = np.matmul(self._padded(convexity)[:, None, :], self.differences)[:, 0]
        return values, slopes

    def split(self, vector: Floats) -> tuple[Floats, Floats, Floats]:
        count, size = len(self.pairs), self.m * self.p
        above, below = vector[count : count + size], vector[count + size :]
        return vector[:count], above.reshape(self.m, self.p), below.reshape(self.m, self.p)

    def normal_equations(self, curvature: Floats, weights: Floats, ridge: float) -> NormalEquations:
        """Factor diag(curvature on values) + G' diag(weights) G.

        `ridge`, as a share of the diagonal, is added so that rounding does not make a factor indefinite.
        """
        convexity, above, below = self.split(weights)
        padded, both = self._padded(convexity), above + below
        pulled = (padded[:, :, None] * self.differences).transpose(0, 2, 1)
        diagonal = np.arange(self.p)
        blocks = np.matmul(pulled, self.differences)
        blocks[:, diagonal, diagonal] += both
        blocks[:, diagonal, diagonal] += ridge * np.trace(blocks, axis1=1, axis2=2)[:, None]
        tilt = (above - below)[:, :, None] * np.eye(self.p)
        coupling = np.concatenate([pulled, -pulled.sum(axis=2, keepdims=True), tilt], axis=2)
        try:
            inverse_root = np.linalg.inv(np.linalg.cholesky(blocks))
            eliminated = np.matmul(inverse_root, coupling)
            local = -np.matmul(eliminated.transpose(0, 2, 1), eliminated)
            slot, own = np.arange(self.width), self.width
            local[:, slot, slot] += padded
            local[:, slot, own] -= padded
            local[:, own, slot] -= padded
            local[:, own, own] += padded.sum(axis=1)
            size = self.m + self.p
            matrix = np.bincount(self.cells, local.ravel(), size * size).reshape(size, size)
            matrix[np.arange(size), np.arange(size)] += np.concatenate([curvature, (1.0 + ridge) * both.sum(axis=0)])
            factor = cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
        except (LinAlgError, np.linalg.LinAlgError) as found:
            raise NumericalError("normal equations lost their definiteness", residual=np.nan, tolerance=0.0) from found
        return NormalEquations(self, factor, inverse_root, eliminated)

    def _padded(self, convexity: Floats) -> Floats:
        padded = np.zeros(self.m * self.width)
        padded[self.place] = convexity
        return padded.reshape(self.m, self.width)


@dataclass(frozen=True)
class NormalEquations:
    working: WorkingSet
    factor: tuple[Floats, bool]
    inverse_root: Floats
    eliminated: Floats

    def solve(self, right: Unknowns) -> Unknowns:
        work = self.working
        half = np.matmul(self.inverse_root, right.slopes[:, :, None])
        load = np.concatenate([right.values, right.bounds])
        back = np.matmul(half.transpose(0, 2, 1), self.eliminated)
        load += np.bincount(work.columns.ravel(), back.ravel(), len(load))
        found = cho_solve(self.factor, load, check_finite=False)
        half += np.matmul(self.eliminated, found[work.columns][:, :, None])
        slopes = np.matmul(self.inverse_root.transpose(0, 2, 1), half)[:, :, 0]
        return Unknowns(found[: work.m], slopes, found[work.m :])
