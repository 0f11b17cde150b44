"""Convex function learning as an estimator of continuation risk (method "cfl").

The continuation risk is concave in the posterior, so its negative is fitted and a *minimum* of affine pieces returned.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from firmbound.arrays import Bools, Floats, Ints
from firmbound.continuation.affine import MinAffineSurface
from firmbound.continuation.compression import Compression, bin_line, split_cells
from firmbound.continuation.cutting_planes import fit_cutting_planes, near_pairs
from firmbound.continuation.line_solver import fit_line
from firmbound.continuation.surface import Statistic
from firmbound.errors import InvalidInput

NEIGHBOURS = 8
# Weight of all corners together as a share of the data: enough to pin known values, too little to drown the data.
CORNER_SHARE = 0.1


@dataclass(frozen=True)
class ConvexOptions:
    """points: weighted points a time step (None: 1,000 for two classes, 200 above).

    regularisation: weight of the largest slopes, on risks in units of the largest penalty. tolerance: largest broken
    constraint that is accepted, in the same units.
    """

    points: int | None = None
    regularisation: float = 1e-8
    tolerance: float = 1e-5

    def __post_init__(self) -> None:
        if self.points is not None and self.points < 2:
            raise InvalidInput("points", "be at least 2", self.points)
        if not (np.isfinite(self.regularisation) and self.regularisation > 0):
            raise InvalidInput("regularisation", "be positive", self.regularisation)
        if not 0 < self.tolerance < 0.1:
            raise InvalidInput("tolerance", "lie in (0, 0.1)", self.tolerance)


@dataclass(frozen=True)
class ConvexFitter:
    """Concave least squares on compressed posteriors, for any number of classes.

    `corner_risk` (K,) is the risk where class k is certain. More looks change nothing there, so the continuation risk
    without cost is known exactly, and the corners join the data as heavy points: where no sequence has been, as near
    the corners at small t, the surface leads to the known value instead of wherever the last piece points.
    """

    corner_risk: Floats
    options: ConvexOptions = ConvexOptions()

    @property
    def statistic(self) -> Statistic:
        return "posterior"

    def prepare(self, statistic: Floats) -> PreparedLine | PreparedSimplex:
        classes = statistic.shape[1]
        if classes == 2:
            cells = bin_line(statistic, self.options.points or 1_000)
            return PreparedLine(AnchoredPoints.around(cells, self.corner_risk), self.options)
        anchored = AnchoredPoints.around(split_cells(statistic, self.options.points or 200), self.corner_risk)
        return PreparedSimplex(anchored, near_pairs(np.sqrt(anchored.points), NEIGHBOURS), self.options)


@dataclass(frozen=True)
class AnchoredPoints:
    """Weighted points with targets: cells of data and the corners of the simplex, sorted by the first posterior."""

    cells: Compression
    corner_risk: Floats
    points: Floats
    weights: Floats
    order: Ints

    @classmethod
    def around(cls, cells: Compression, corner_risk: Floats) -> AnchoredPoints:
        corners = np.eye(len(corner_risk))
        points = np.concatenate([cells.points[_inside(cells)], corners])
        certainty = np.full(len(corners), CORNER_SHARE / len(corners) * cells.weights.sum())
        weights = np.concatenate([cells.weights[_inside(cells)], certainty])
        order = np.argsort(points[:, 0], kind="stable")
        return cls(cells, corner_risk, points[order], weights[order], order)

    def targets(self, next_risk: Floats) -> Floats:
        """(n, C) risks of the sequences -> (m, C) of the points."""
        averages = self.cells.average(check_targets(next_risk))[_inside(self.cells)]
        corners = np.repeat(self.corner_risk[:, None], averages.shape[1], axis=1)
        return np.concatenate([averages, corners])[self.order]


def _inside(cells: Compression) -> Bools:
    """Cells that are no corner; those at a corner hold certain sequences only and say nothing new."""
    return np.asarray(cells.points.max(axis=1) < 1.0, dtype=np.bool_)


@dataclass(frozen=True)
class PreparedLine:
    """Two classes: the posterior lies on a line, pi_1 in [0, 1]."""

    anchored: AnchoredPoints
    options: ConvexOptions

    def fit(self, next_risk: Floats) -> MinAffineSurface:
        x, weights = self.anchored.points[:, 0], self.anchored.weights
        pieces, kinks = [], np.empty(0, dtype=np.int64)
        for target in self.anchored.targets(next_risk).T:
            fit = fit_line(x, -target, weights, self.options.regularisation, kinks)
            kinks = fit.kinks
            slopes = np.column_stack([-fit.slopes[:, 0], np.zeros(len(fit.slopes))])
            pieces.append((slopes, -fit.offsets))
        return MinAffineSurface.from_pieces(pieces)


@dataclass(frozen=True)
class PreparedSimplex:
    """Three classes or more: weighted points on the simplex and the constraints to start from."""

    anchored: AnchoredPoints
    pairs: Ints
    options: ConvexOptions

    def fit(self, next_risk: Floats) -> MinAffineSurface:
        points, weights = self.anchored.points, self.anchored.weights
        pieces, pairs = [], self.pairs
        for target in self.anchored.targets(next_risk).T:
            fit, holding = fit_cutting_planes(
                points, -target, weights, self.options.regularisation, pairs, self.options.tolerance
            )
            # Costs share the points, so what bound for one cost is a good start for the next.
            pairs = np.unique(np.concatenate([self.pairs, holding]), axis=0)
            pieces.append((-fit.slopes, -fit.offsets))
        return MinAffineSurface.from_pieces(pieces)


def check_targets(next_risk: Floats) -> Floats:
    """(n, C) finite targets."""
    if next_risk.ndim != 2:
        raise InvalidInput("next_risk", "have shape (n, C)", f"shape {next_risk.shape}")
    if not np.all(np.isfinite(next_risk)):
        raise InvalidInput(
            "next_risk", "be finite", f"{np.count_nonzero(~np.isfinite(next_risk))} NaN or infinite values"
        )
    return next_risk
