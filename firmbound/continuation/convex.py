"""Convex function learning as an estimator of continuation risk (method "cfl").

The continuation risk is concave in the posterior, so its negative is fitted and a *minimum* of affine pieces returned.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from firmbound.arrays import Bools, Floats, Ints
from firmbound.continuation.affine import MinAffineSurface
from firmbound.continuation.compression import Compression, bin_line, random_subsample, split_cells
from firmbound.continuation.convex_objective import ConvexFit
from firmbound.continuation.cross_validation import FOLDS, Fold, choose_regularisation, fold_numbers
from firmbound.continuation.pruning import prune
from firmbound.continuation.solvers import (
    Admm,
    ConvexSolver,
    InteriorPoint,
    Line,
    MaxAffine,
    SolverName,
    choose_solver,
)
from firmbound.continuation.surface import RiskSurface, Statistic, check_targets
from firmbound.devices import Device
from firmbound.errors import InvalidInput
from firmbound.posterior import RANKS


@dataclass(frozen=True)
class Defaults:
    """What a solver works best with; measured in benchmarks/results/{convex_options,many_classes}.json.

    corner_share: weight of all corners together as a share of the data's. Surfaces that can bend pin the corners' known
    values at no loss elsewhere; a few strongly regularised pieces would be drawn away from the data.
    """

    points: int
    regularisation: float
    corner_share: float
    sequences_a_point: int = 1

    def points_for(self, sequences: int) -> int:
        """Fewer where there are few sequences: a point that stands for one or two follows noise, slowly."""
        return min(self.points, max(FEWEST, sequences // self.sequences_a_point))


FEWEST = 30
ConvexStatistic = Literal["posterior", "ranked", "memory"]
STATISTICS = get_args(ConvexStatistic)
DEFAULTS = {
    "line": Defaults(points=1_000, regularisation=1e-8, corner_share=0.1),
    "interior-point": Defaults(points=400, regularisation=1e-8, corner_share=0.1, sequences_a_point=10),
    "admm": Defaults(points=400, regularisation=1e-8, corner_share=0.1, sequences_a_point=10),
    "max-affine": Defaults(points=600, regularisation=1e-3, corner_share=1e-4),
}
# First-order methods stop at a residual so many times the tolerance; each further digit costs ten times the work.
RESIDUALS = {"admm": 10.0, "max-affine": 100.0}


@dataclass(frozen=True)
class ConvexOptions:
    """How the continuation risk is fitted; risks are in units of the largest penalty.

    points: weighted points a time step. regularisation: weight of the largest slopes; "cv" finds one at each time step
    by five-fold cross-validation. None for either: the solver's measured default. tolerance: largest broken constraint
    and relative gap at which a solver may stop. solver: see `solvers`; "auto" chooses by the number of classes.
    pieces: of the max-affine solver (None: one a class). compression: "cells" uses all sequences, "subsample" `points`
    random ones as the paper does. statistic: what surfaces are functions of; "memory" puts summaries of the past beside
    the posterior, and the surface is concave in it whatever the past; "ranked" is the largest posteriors, whatever
    classes they are of; None: what suits the problem ("posterior", for a fitter made by hand). device: where torch
    solvers run.
    """

    points: int | None = None
    regularisation: float | Literal["cv"] | None = None
    tolerance: float = 1e-5
    solver: SolverName = "auto"
    pieces: int | None = None
    compression: Literal["cells", "subsample"] = "cells"
    statistic: ConvexStatistic | None = None
    device: Device = "cpu"

    def __post_init__(self) -> None:
        value = self.regularisation
        for name, holds, rule in (
            ("points", self.points is None or self.points >= 2, "be at least 2"),
            ("regularisation", value in (None, "cv") or _is_positive(value), "be positive, None or 'cv'"),
            ("tolerance", 0 < self.tolerance < 0.1, "lie in (0, 0.1)"),
            ("solver", self.solver in get_args(SolverName), f"be one of {get_args(SolverName)}"),
            ("pieces", self.pieces is None or self.pieces >= 1, "be at least 1"),
            ("compression", self.compression in ("cells", "subsample"), "be 'cells' or 'subsample'"),
            ("statistic", self.statistic in (None, *STATISTICS), f"be one of {STATISTICS}"),
            ("device", self.device in ("cpu", "cuda", "auto"), "be cpu, cuda or auto"),
        ):
            if not holds:
                raise InvalidInput(name, rule, repr(getattr(self, name)))

    def check_classes(self, classes: int) -> None:
        if self.solver == "line" and classes != 2:
            raise InvalidInput("solver", "be another than 'line' above two classes", f"{classes} classes")


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and bool(0 < value < np.inf)


@dataclass(frozen=True)
class ConvexFitter:
    """Concave least squares on compressed posteriors, for any number of classes; `MemoryFitter` puts the past beside.

    `corner_risk` (K,) is the risk where class k is certain. More looks change nothing there, so the continuation risk
    without cost is known exactly, and the corners join the data as heavy points: where no sequence has been, as near
    the corners at small t, the surface leads to the known value instead of wherever the last piece points. Of ranked
    beliefs the first alone can be certain, so there `corner_risk` is of that one, (1,).
    """

    corner_risk: Floats
    options: ConvexOptions = ConvexOptions()
    seed: int = 0

    def __post_init__(self) -> None:
        self.options.check_classes(RANKS + 1 if self.statistic == "ranked" else len(self.corner_risk))

    @property
    def statistic(self) -> Statistic:
        return "ranked" if self.options.statistic == "ranked" else "posterior"

    def with_points(self, points: int) -> ConvexFitter:
        """The same with another number of points."""
        return replace(self, options=replace(self.options, points=points))

    def prepare(self, statistic: Floats) -> PreparedConvex:
        name = choose_solver(self.options.solver, statistic.shape[1])
        usual = DEFAULTS[name]
        cells = self._compress(statistic, self.options.points or usual.points_for(len(statistic)))
        anchored = AnchoredPoints.around(cells, self.corner_risk, usual.corner_share)
        solver = self._solver(name, anchored.points)
        value = self.options.regularisation
        if value == "cv":
            return PreparedConvex(anchored, solver, usual.regularisation, self.seed)
        return PreparedConvex(anchored, solver, value or usual.regularisation, None)

    def _compress(self, posterior: Floats, points: int) -> Compression:
        if self.options.compression == "subsample":
            return random_subsample(posterior, points, self.seed)
        return bin_line(posterior, points) if posterior.shape[1] == 2 else split_cells(posterior, points)

    def _solver(self, name: SolverName, points: Floats) -> ConvexSolver:
        tolerance = self.options.tolerance * RESIDUALS.get(name, 1.0)
        if name == "line":
            return Line(points)
        if name == "interior-point":
            return InteriorPoint.around(points, tolerance)
        if name == "admm":
            return Admm(points, tolerance, self.options.device)
        owner = split_cells(points, self.options.pieces or points.shape[1]).cell.astype(np.int64)
        return MaxAffine(points, owner, tolerance, self.options.device)


@dataclass(frozen=True)
class AnchoredPoints:
    """Weighted points with targets: cells of data and the corners of the simplex, sorted by the first posterior."""

    cells: Compression
    corner_risk: Floats
    corner_weight: float
    points: Floats
    weights: Floats
    order: Ints

    @classmethod
    def around(cls, cells: Compression, corner_risk: Floats, corner_share: float) -> AnchoredPoints:
        corners = np.eye(cells.points.shape[1])[: len(corner_risk)]
        corner_weight = corner_share / len(corners) * float(cells.weights.sum())
        points = np.concatenate([cells.points[_inside(cells)], corners])
        order = np.argsort(points[:, 0], kind="stable")
        weights = np.append(cells.weights[_inside(cells)], np.full(len(corners), corner_weight))
        return cls(cells, corner_risk, corner_weight, points[order], weights[order], order)

    def targets(self, next_risk: Floats) -> Floats:
        """(n, C) risks of the sequences -> (m, C) of the points."""
        return self._with_corners(self.cells.average(check_targets(next_risk)))

    def folds(self, next_risk: Floats, seed: int) -> list[Fold]:
        """The same for cross-validation: without each fold's sequences, and for them alone."""
        fold = fold_numbers(len(next_risk), seed)
        sums = self.cells.sums(check_targets(next_risk), fold, FOLDS)
        counts = self.cells.sums(np.ones((len(next_risk), 1)), fold, FOLDS)[:, :, 0]
        # A cell with no sequence left keeps its place with a weight that does not count.
        least = 1e-6
        inside, corners, total = _inside(self.cells), np.ones(len(self.corner_risk)), sums.sum(axis=0)
        parts = []
        for number in range(FOLDS):
            rest, held = self.cells.weights - counts[number], counts[number]
            means = (total - sums[number]) / np.maximum(rest, least)[:, None]
            weights = np.append(np.maximum(rest, least)[inside], self.corner_weight * corners)[self.order]
            held_weights = np.append(held[inside], 0.0 * corners)[self.order]
            held_means = sums[number] / np.maximum(held, least)[:, None]
            parts.append(Fold(-self._with_corners(means), weights, -self._with_corners(held_means), held_weights))
        return parts

    def _with_corners(self, means: Floats) -> Floats:
        corners = np.repeat(self.corner_risk[:, None], means.shape[1], axis=1)
        return np.concatenate([means[_inside(self.cells)], corners])[self.order]


def _inside(cells: Compression) -> Bools:
    """Cells that are no corner; those at a corner hold certain sequences only and say nothing new."""
    return np.asarray(cells.points.max(axis=1) < 1.0, dtype=np.bool_)


@dataclass(frozen=True)
class PreparedConvex:
    """Weighted points and a solver that knows them; with `fold_seed` the regularisation is cross-validated."""

    anchored: AnchoredPoints
    solver: ConvexSolver
    regularisation: float
    fold_seed: int | None

    def fit(self, next_risk: Floats, later: RiskSurface | None = None) -> MinAffineSurface:
        targets = -self.anchored.targets(next_risk)
        value = self.regularisation
        if self.fold_seed is not None:
            choice = choose_regularisation(self.solver, self.anchored.folds(next_risk, self.fold_seed))
            value = choice.regularisation if choice else value
        fits = self.solver(targets, self.anchored.weights, value)
        quality = np.array([[fit.objective, fit.violation, fit.gap, value] for fit in fits])
        return MinAffineSurface.from_pieces([self._pieces(fit) for fit in fits], quality)

    def _pieces(self, fit: ConvexFit) -> tuple[Floats, Floats]:
        """What the surface needs: -max(pieces) = min(-pieces), each once, and none that is nowhere the lowest."""
        if isinstance(self.solver, Line):
            return -fit.slopes, -fit.offsets  # the segments of a curve: each is needed
        pieces = np.unique(np.column_stack([-fit.slopes, -fit.offsets]), axis=0)
        return prune(pieces[:, :-1], pieces[:, -1], self.anchored.points)
