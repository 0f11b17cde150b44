"""Cells of sequences with nearly the same belief: what their next risks say of the mean, and of the noise around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firmbound.arrays import Bools, Floats, Ints
from firmbound.continuation.compression import Compression, split_cells
from firmbound.continuation.sparse_process import CellTargets

# Cells are pooled to so many groups of equal noise: single cells are too small to tell noise from luck.
NOISE_GROUPS = 24
# A group starts from the usual noise, believed as if so many sequences had shown it.
NOISE_FREEDOM = 30.0
# No group is taken to be more precise than this share of the usual one.
LEAST_LEVEL = 1e-4
# Sequences whose scale is below this are as good as certain: their shares would be quotients of roundings.
SMALLEST_SCALE = 1e-30


@dataclass(frozen=True)
class RiskCells:
    """k cells of sequences that are not certain, and the cell (n,) of each sequence, -1 where it is.

    points (k, K): mean posteriors. beside (k, M): mean summaries of the past, or None. inputs (k, d): of a kernel.
    size, first, second (k,): numbers of sequences, sums of their scales, of the scales' squares. group (k,): of equal
    noise. scale (n,): of each sequence; floor (n,) too, or None where it is 0. One of these is kept for every t, so
    what each sequence takes is kept short.
    """

    points: Floats
    beside: Floats | None
    inputs: Floats
    size: Floats
    first: Floats
    second: Floats
    group: Ints
    cell: NDArray[np.int32]
    scale: NDArray[np.float32]
    floor: Floats | None

    @classmethod
    def of(
        cls, cells: Compression, inputs: Floats, scale: Floats, floor: Floats, memory: Floats | None = None
    ) -> RiskCells | None:
        """None if all sequences are certain: there is nothing to learn."""
        uncertain = _uncertain(cells, scale)
        if not uncertain.any():
            return None
        cell = np.where(uncertain, np.cumsum(uncertain) - 1, -1)[cells.cell].astype(np.int32)
        count = int(uncertain.sum())
        size, first, second = (_sums(cell, count, each)[:, 0] for each in (np.ones_like(scale), scale, scale**2))
        # Where the scale changes within a cell, its sequences count as they do in the sum of risks.
        means = _sums(cell, count, inputs * scale[:, None]) / first[:, None]
        points = cells.points[uncertain]
        beside = None if memory is None else cells.average(memory)[uncertain]
        group = split_cells(points, NOISE_GROUPS, size, beside).cell.astype(np.int64)
        kept = floor if floor.any() else None
        return cls(points, beside, means, size, first, second, group, cell, scale.astype(np.float32), kept)

    def spread_points(self, inputs: Floats, count: int) -> Floats:
        """At most `count` of the cells' inputs, or means of neighbours among them, spread as the sequences are."""
        owner = split_cells(self.points, count, self.size, self.beside).cell.astype(np.int64)
        total = np.bincount(owner, self.first)
        return _sums(owner, len(total), inputs * self.first[:, None]) / total[:, None]

    def targets(self, inputs: Floats, next_risk: Floats, local_noise: bool) -> CellTargets:
        """Shares of the largest possible risk, and the noise that sequences of one cell show."""
        residual = next_risk if self.floor is None else next_risk - self.floor[:, None]
        means = _sums(self.cell, len(self.first), residual) / self.first[:, None]
        misfit = residual - means[self.cell] * self.scale[:, None]  # rows of cell -1 are not counted
        squares = _sums(self.cell, len(self.first), misfit**2)
        variance = self._sequence_variance(squares, local_noise)
        spread = variance * self.size / self.first**2
        within = (squares / variance[:, None]).sum(axis=0)
        # Shares beyond 1 are of beliefs that were too sure, by up to the inverse of their scale; a few such cells would
        # make a process that goes astray wherever no sequence has been.
        return CellTargets(inputs, np.minimum(means, 1.0), spread, within, float((self.size - 1.0).sum()))

    def _sequence_variance(self, squares: Floats, local: bool) -> Floats:
        """Noise variance of a cell's sequences, up to a factor for each cost, from sums of squares (k, C) -> (k,).

        It is modelled as level * scale^2 + rest with a level for each group and one rest, the variance of the group
        that varies least: nearly 0 for calibrated evidence, but beliefs that are surer than they should be leave
        risks in the tails that no scale predicts.
        """
        square_scale = self.second / self.size
        free = np.bincount(self.group, self.size - 1.0)
        sums, shares = (_sums(self.group, len(free), each) for each in (squares, squares / square_scale[:, None]))
        known = free > 0
        usual = np.median(shares[known] / free[known, None], axis=0) if known.any() else np.zeros(squares.shape[1])
        if not local or not usual.all() or free.sum() < NOISE_FREEDOM:
            return square_scale
        level = (shares + NOISE_FREEDOM * usual) / (free + NOISE_FREEDOM)[:, None]
        rest = (sums[known] / free[known, None]).min(axis=0)
        relative = np.maximum((level / usual).mean(axis=1), LEAST_LEVEL)
        return np.asarray(relative[self.group] * square_scale + (rest / usual).mean())


def _uncertain(cells: Compression, scale: Floats) -> Bools:
    """Cells whose usual scale is not too small to say anything."""
    return np.asarray(np.bincount(cells.cell, scale**2) > SMALLEST_SCALE**2 * cells.weights, dtype=np.bool_)


def _sums(cell: NDArray[np.integer[Any]], cells: int, values: Floats) -> Floats:
    """Sums of (n,) or (n, C) values over the rows of each cell -> (cells, C); rows of cell -1 are left out."""
    kept = cell >= 0
    columns = values.reshape(len(values), -1).T
    if kept.all():
        return np.stack([np.bincount(cell, column, cells) for column in columns], axis=1)
    return np.stack([np.bincount(cell[kept], column[kept], cells) for column in columns], axis=1)
