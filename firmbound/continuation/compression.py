"""Many sequences to few weighted points, without throwing any away.

Posteriors are compared by the square roots of their entries. On that scale a point near a corner of the simplex, where
the decision boundary lies, keeps its distance to the corner, and the crowd that is already certain takes one cell.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firmbound.arrays import Floats, Ints


@dataclass(frozen=True)
class Compression:
    """`points` (m, p) are the means of m cells, `weights` (m,) their sizes, `cell` (n,) the cell of each row.

    Rows that were left out have cell -1.
    """

    points: Floats
    weights: Floats
    cell: NDArray[np.int32]

    def average(self, targets: Floats) -> Floats:
        """Cell means of (n, C) targets -> (m, C)."""
        return np.asarray(self.sums(targets, np.zeros(len(targets), dtype=np.int64), 1)[0] / self.weights[:, None])

    def sums(self, targets: Floats, fold: Ints, folds: int) -> Floats:
        """Sums over each cell's rows of (n, C) targets, fold by fold -> (folds, m, C)."""
        kept = self.cell >= 0
        m = len(self.weights)
        index = (fold * m + self.cell)[kept]
        columns = [np.bincount(index, column[kept], folds * m).reshape(folds, m) for column in targets.T]
        return np.stack(columns, axis=2)


def bin_line(posterior: Floats, points: int) -> Compression:
    """Two classes: even bins of the angle arcsin sqrt(pi_1).  (n, 2) -> at most `points` cells, in order of pi_1."""
    angle = np.arctan2(np.sqrt(posterior[:, 0]), np.sqrt(posterior[:, 1]))
    index = np.minimum((angle * (points / (np.pi / 2))).astype(np.int64), points - 1)
    return _from_cells(posterior, index)


def split_cells(
    posterior: Floats, points: int, weights: Floats | None = None, beside: Floats | None = None
) -> Compression:
    """Any number of classes: cut the cell of largest spread until there are `points`.  (n, K) -> m <= points cells.

    Spread is the summed squared distance to the cell's mean, in square roots of the posterior; the cut is at the mean
    of the widest axis. Cells of equal rows are never cut. `weights` (n,): how many sequences each row stands for.
    `beside` (n, M): what else rows are compared by, in the units of the roots.
    """
    roots = np.sqrt(posterior) if beside is None else np.concatenate([np.sqrt(posterior), beside], axis=1)
    sizes = np.ones(len(roots)) if weights is None else weights
    cell = np.zeros(len(roots), dtype=np.int64)
    rows_of = {0: np.arange(len(roots))}
    heap = [_spread_of(roots, sizes, rows_of[0], 0)]
    while len(rows_of) < points:
        spread, index, axis, threshold = heapq.heappop(heap)
        if spread == 0.0:
            break
        rows = rows_of[index]
        above = roots[rows, axis] > threshold
        new = len(rows_of)
        rows_of[index], rows_of[new] = rows[~above], rows[above]
        cell[rows_of[new]] = new
        for part in (index, new):
            heapq.heappush(heap, _spread_of(roots, sizes, rows_of[part], part))
    return _from_cells(posterior, cell)


def _spread_of(roots: Floats, sizes: Floats, rows: Ints, index: int) -> tuple[float, int, int, float]:
    """(minus the spread, cell, widest axis, its mean): the order of the heap, ties broken by the cell's number."""
    part, size = roots[rows], sizes[rows]
    total = float(size.sum())
    mean = (size @ part) / total
    squares = (size @ (part - mean) ** 2) / total
    axis = int(squares.argmax())
    low, high = float(part[:, axis].min()), float(part[:, axis].max())
    if low == high:
        return 0.0, index, axis, low
    # Rounding may put the mean of nearly equal rows outside of them; a cut must leave rows on both sides.
    cut = float(mean[axis])
    return -total * float(squares.sum()), index, axis, cut if low <= cut < high else low


def random_subsample(posterior: Floats, points: int, seed: int) -> Compression:
    """The paper's way: `points` sequences at random, all others left out. Equal rows become one point."""
    chosen = np.random.default_rng(seed).permutation(len(posterior))[:points]
    distinct, inverse = np.unique(posterior[chosen], axis=0, return_inverse=True)
    cell = np.full(len(posterior), -1, dtype=np.int32)
    cell[chosen] = inverse
    return Compression(distinct, np.bincount(inverse).astype(np.float64), cell)


def _from_cells(posterior: Floats, index: Ints) -> Compression:
    _, cell = np.unique(index, return_inverse=True)
    weights = np.bincount(cell).astype(np.float64)
    sums = [np.bincount(cell, weights=column, minlength=len(weights)) for column in posterior.T]
    # int32: one of these is kept for every t, so its size matters
    return Compression(np.stack(sums, axis=1) / weights[:, None], weights, cell.astype(np.int32))
