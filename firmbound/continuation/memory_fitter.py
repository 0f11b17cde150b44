"""Convex function learning with memory: which pasts differ, and a concave fit for each.

What a surface of the posterior alone leaves unexplained has the mean 0 whatever the past, if the past says nothing. A
cut is made where the means of both sides differ by more than chance would make them, the greatest difference first.
Where the posterior says it all there is no cut, and the past costs nothing but the look.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firmbound.arrays import Bools, Floats, Ints
from firmbound.continuation.affine import MinAffineSurface
from firmbound.continuation.convex import DEFAULTS, FEWEST, ConvexFitter, PreparedConvex
from firmbound.continuation.memory_cells import MemoryCellsSurface, MemoryTree
from firmbound.continuation.solvers import choose_solver
from firmbound.continuation.surface import RiskSurface, Statistic, check_targets
from firmbound.errors import InvalidInput

# Each summary may be cut at these many quantiles, less one; more say nothing that sixteen cells could use.
BINS = 16
MOST_CELLS = 16
# A cut is made where means differ by so many standard errors, squared, on average over costs. Some fifty cuts are
# looked at for each cell, and errors of later steps look like differences too.
LEAST_DIFFERENCE = 25.0
# Sequences a cell, for each dimension of the posterior: fewer determine no surface.
FEWEST_SEQUENCES = 300


@dataclass(frozen=True)
class MemoryFitter:
    """Concave least squares in cells of memory; rows are posteriors and summaries, (n, K + M)."""

    plain: ConvexFitter

    @property
    def statistic(self) -> Statistic:
        return "memory"

    def prepare(self, statistic: Floats) -> PreparedMemory:
        classes = len(self.plain.corner_risk)
        if statistic.shape[1] <= classes:
            raise InvalidInput("statistic", f"have {classes} posteriors and summaries a row", statistic.shape)
        belief, memory = statistic[:, :classes], statistic[:, classes:]
        # One of these is kept for every t, so what each sequence takes is kept short.
        return PreparedMemory(self.plain, self.plain.prepare(belief), belief.astype(np.float32), *place_between(memory))


@dataclass(frozen=True)
class PreparedMemory:
    """The plain fit, posteriors (n, K) and the places (n, M) of summaries between their edges (M, BINS - 1)."""

    fitter: ConvexFitter
    plain: PreparedConvex
    belief: NDArray[np.float32]
    places: NDArray[np.uint8]
    edges: Floats

    def fit(self, next_risk: Floats, later: RiskSurface | None = None) -> MemoryCellsSurface:
        """A plain surface for all, then, where the past matters, one for each cell."""
        targets = check_targets(next_risk)
        everywhere = self.plain.fit(targets)
        belief = self.belief.astype(np.float64)
        least = FEWEST_SEQUENCES * (belief.shape[1] - 1)
        tree, cell = grow(self.places, self.edges, targets - everywhere(belief), least)
        if tree.cells == 1:
            return MemoryCellsSurface(tree, [everywhere])
        return MemoryCellsSurface(tree, [self._fit_cell(belief, targets, cell == each) for each in range(tree.cells)])

    def _fit_cell(self, belief: Floats, targets: Floats, rows: Bools) -> MinAffineSurface:
        """With so many points that all cells together take hardly longer than one surface."""
        options = self.fitter.options
        usual = DEFAULTS[choose_solver(options.solver, belief.shape[1])]
        points = (options.points or usual.points_for(len(belief))) * np.sqrt(rows.mean())
        return self.fitter.with_points(max(FEWEST, int(points))).prepare(belief[rows]).fit(targets[rows])


def place_between(memory: Floats) -> tuple[NDArray[np.uint8], Floats]:
    """Places (n, M) of summaries between their quantiles, and those, (M, BINS - 1): x > edge j where place > j."""
    edges = np.quantile(memory, np.arange(1, BINS) / BINS, axis=0).T
    places = [np.searchsorted(edge, column) for edge, column in zip(edges, memory.T, strict=True)]
    return np.stack(places, axis=1).astype(np.uint8), np.ascontiguousarray(edges)


def grow(binned: NDArray[np.uint8], edges: Floats, residual: Floats, least: int) -> tuple[MemoryTree, Ints]:
    """Cut where the means of residuals (n, C) differ, `least` sequences a cell; and the cell (n,) of each row.

    binned (n, M) says between which edges (M, BINS - 1) each summary lies, `place_between` them.
    """
    spread = residual.var(axis=0)
    # What varies by no more than rounding has nothing to explain.
    there = spread > np.finfo(float).eps
    shares = residual[:, there] / np.sqrt(spread[there])
    nodes, rows_of = [(-1, 0.0, 0, 0)], {0: np.arange(len(binned))}
    cuts = {0: _best_cut(binned, shares, rows_of[0], least)}
    while len(rows_of) < MOST_CELLS and cuts:
        node = max(cuts, key=lambda each: cuts[each][0])
        gain, feature, place = cuts.pop(node)
        if gain < LEAST_DIFFERENCE:
            break
        rows = rows_of.pop(node)
        over = binned[rows, feature] > place
        first = len(nodes)
        nodes[node] = (feature, float(edges[feature, place]), first, first + 1)
        nodes += [(-1, 0.0, 0, 0)] * 2
        for part, chosen in ((first, rows[~over]), (first + 1, rows[over])):
            rows_of[part], cuts[part] = chosen, _best_cut(binned, shares, chosen, least)
    cell = np.zeros(len(binned), dtype=np.int64)
    for number, node in enumerate(sorted(rows_of)):
        nodes[node] = (-1, 0.0, number, number)
        cell[rows_of[node]] = number
    features, thresholds, below, above = zip(*nodes, strict=True)
    return MemoryTree(np.array(features), np.array(thresholds), np.array(below), np.array(above)), cell


def _best_cut(binned: NDArray[np.uint8], shares: Floats, rows: Ints, least: int) -> tuple[float, int, int]:
    """(squared difference of means in standard errors, summary, place) of the best cut; difference 0 for none."""
    best = (0.0, 0, 0)
    if len(rows) < 2 * least or not shares.shape[1]:
        return best
    part = shares[rows]
    variance = np.maximum(part.var(axis=0), np.finfo(float).tiny)
    for feature in range(binned.shape[1]):
        where = binned[rows, feature]
        below = np.cumsum(np.bincount(where, minlength=BINS))[:-1]
        sums = np.stack([np.cumsum(np.bincount(where, column, BINS))[:-1] for column in part.T], axis=1)
        wide = np.flatnonzero((below >= least) & (len(rows) - below >= least))
        if len(wide):
            low, high = below[wide, None], len(rows) - below[wide, None]
            apart = sums[wide] / low - (part.sum(axis=0) - sums[wide]) / high
            gains = (apart**2 / variance * (low * high / len(rows))).mean(axis=1)
            top = int(gains.argmax())
            best = max(best, (float(gains[top]), feature, int(wide[top])))
    return best
