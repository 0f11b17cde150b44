"""A thin door to the interior-point solver: minimise x'Px/2 + q'x subject to Ax <= b."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import clarabel
import numpy as np
from scipy import sparse

from firmbound.arrays import Floats
from firmbound.errors import NotConvergedWarning, NumericalError

TOLERANCE = 1e-9
ACCEPTED_GAP = 1e-5


@dataclass(frozen=True)
class QuadraticSolution:
    x: Floats
    multipliers: Floats
    gap: float


def solve_quadratic_programme(
    quadratic: sparse.csc_array, linear: Floats, rows: sparse.csc_array, bounds: Floats
) -> QuadraticSolution:
    """Solve to TOLERANCE; a solution that stays above it is warned of, one above ACCEPTED_GAP is an error."""
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = TOLERANCE
    settings.max_threads = 1
    cones = [clarabel.NonnegativeConeT(rows.shape[0])]
    solved = clarabel.DefaultSolver(sparse.triu(quadratic, format="csc"), linear, rows, bounds, cones, settings).solve()
    gap = abs(solved.obj_val - solved.obj_val_dual) / max(1.0, abs(solved.obj_val))
    if solved.status != clarabel.SolverStatus.Solved:
        advice = f"The solver ended as {solved.status}; scale the targets or raise the regularisation."
        if not np.isfinite(gap) or gap > ACCEPTED_GAP:
            raise NumericalError("quadratic programme failed", residual=gap, tolerance=ACCEPTED_GAP, advice=advice)
        warnings.warn(
            f"quadratic programme ended as {solved.status} with gap {gap:.2g}, wanted {TOLERANCE:.2g}",
            NotConvergedWarning,
            stacklevel=3,
        )
    return QuadraticSolution(np.asarray(solved.x), np.asarray(solved.z), gap)
