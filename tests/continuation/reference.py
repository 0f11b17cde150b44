"""An independent answer for all solvers: the whole problem as one programme, for a general-purpose solver."""

import clarabel
import numpy as np
from scipy import sparse

from firmbound.continuation.convex_objective import objective_value


def dense_optimum(points, targets, weights, regularisation):
    """The least objective, all m^2 constraints at once, by an interior-point solver."""
    m, p = points.shape
    i, j = np.nonzero(~np.eye(m, dtype=bool))
    row, size = np.arange(len(i)), m + m * p + p
    convexity = np.zeros((len(i), size))
    convexity[row, i], convexity[row, j] = 1.0, -1.0
    for axis in range(p):
        convexity[row, m + i * p + axis] = points[j, axis] - points[i, axis]
    bounds = np.hstack([np.zeros((m * p, m)), np.eye(m * p), -np.tile(np.eye(p), (m, 1))])
    mirrored = np.hstack([np.zeros((m * p, m)), -np.eye(m * p), -np.tile(np.eye(p), (m, 1))])
    rows = sparse.csc_array(np.vstack([convexity, bounds, mirrored]))
    share = weights / weights.sum()
    quadratic = sparse.diags_array(np.concatenate([2 * share, np.zeros(m * p + p)]), format="csc")
    linear = np.concatenate([-2 * share * targets, np.zeros(m * p), np.full(p, regularisation)])
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_threads = False, 1
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    cones = [clarabel.NonnegativeConeT(rows.shape[0])]
    x = np.asarray(clarabel.DefaultSolver(quadratic, linear, rows, np.zeros(rows.shape[0]), cones, settings).solve().x)
    return objective_value(x[:m], x[m : m + m * p].reshape(m, p), targets, weights, regularisation)
