"""Which solver fits which problem: one way to call them all.

line            two classes: the exact optimum
interior-point  up to MOST_CLASSES classes: within a stated duality gap of the optimum, or a warning
admm            any number, all costs at once, on a GPU: the optimum as iterations grow; gap and residuals, or a warning
max-affine      more classes: the optimum among functions with so many pieces, the full one as pieces grow to points

Whatever the solver, what comes back is a maximum of affine pieces, so it is convex without any tolerance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from firmbound.arrays import Floats, Ints
from firmbound.continuation.convex_objective import ConvexFit
from firmbound.continuation.interior_point import fit_interior_point, near_pairs
from firmbound.continuation.line_solver import NO_KINKS, fit_line

SolverName = Literal["auto", "line", "interior-point", "admm", "max-affine"]
# Above this the interior point's slopes outgrow the data: 1,000 points have 12,000 numbers to fit at 12 classes.
MOST_CLASSES = 12


class ConvexSolver(Protocol):
    """Convex least squares on points known beforehand, for every column of targets (m, C)."""

    def __call__(self, targets: Floats, weights: Floats, regularisation: float) -> Sequence[ConvexFit]: ...


def choose_solver(name: SolverName, classes: int) -> SolverName:
    if name != "auto":
        return name
    if classes == 2:
        return "line"
    return "interior-point" if classes <= MOST_CLASSES else "max-affine"


@dataclass(frozen=True)
class Line:
    """Posteriors of two classes lie on a line; slopes come back with a zero for the second class."""

    points: Floats

    def __call__(self, targets: Floats, weights: Floats, regularisation: float) -> list[ConvexFit]:
        fits, kinks, tilt = [], NO_KINKS, 0.5
        for target in targets.T:
            fit = fit_line(self.points[:, 0], target, weights, regularisation, kinks, tilt)
            # Neighbouring costs bend at nearly the same places.
            kinks, tilt = fit.kinks, fit.tilt
            slopes = np.column_stack([fit.slopes[:, 0], np.zeros(len(fit.slopes))])
            quality = (fit.objective, fit.violation, fit.gap, fit.rounds)
            fits.append(ConvexFit(fit.values, slopes, fit.offsets, *quality))
        return fits


@dataclass(frozen=True)
class InteriorPoint:
    """Each cost starts from the constraints that held for the one before."""

    points: Floats
    pairs: Ints
    tolerance: float

    @classmethod
    def around(cls, points: Floats, tolerance: float) -> InteriorPoint:
        # Neighbours on the scale of square roots, which keeps corners apart.
        return cls(points, near_pairs(np.sqrt(points)), tolerance)

    def __call__(self, targets: Floats, weights: Floats, regularisation: float) -> list[ConvexFit]:
        fits, pairs = [], self.pairs
        for target in targets.T:
            fit, binding = fit_interior_point(
                self.points, target, weights, regularisation, pairs=pairs, tolerance=self.tolerance, gap=self.tolerance
            )
            pairs = np.unique(np.concatenate([self.pairs, binding]), axis=0)
            fits.append(fit)
        return fits


@dataclass(frozen=True)
class Admm:
    points: Floats
    tolerance: float
    device: str

    def __call__(self, targets: Floats, weights: Floats, regularisation: float) -> Sequence[ConvexFit]:
        from firmbound.continuation.admm import AdmmOptions, fit_admm  # torch takes seconds to import

        options = AdmmOptions(tolerance=self.tolerance, device=self.device)
        return fit_admm(self.points, targets, weights, regularisation, options)


@dataclass(frozen=True)
class MaxAffine:
    """`owner` (m,): the piece of each point."""

    points: Floats
    owner: Ints
    tolerance: float
    device: str

    def __call__(self, targets: Floats, weights: Floats, regularisation: float) -> Sequence[ConvexFit]:
        from firmbound.continuation.max_affine import fit_max_affine

        return fit_max_affine(
            self.points, targets, weights, regularisation, self.owner, tolerance=self.tolerance, device=self.device
        )
