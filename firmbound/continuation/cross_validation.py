"""The regularisation by cross-validation, along a path from strong to weak.

Folds are folds of the sequences, not of the points: each cell's mean target is taken without the fold's rows, so folds
and values share the compressed points and whatever a solver prepared for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from firmbound.arrays import Bools, Floats, Ints
from firmbound.continuation.solvers import ConvexSolver

FOLDS = 5
STRONGEST, WEAKEST = 1e1, 1e-10
# Values in a row without a better one after which weaker ones are not tried.
PATIENCE = 3
LEFT_PLATEAU = 0.99


@dataclass(frozen=True)
class Fold:
    """Targets (m, C) and weights (m,) of the points without the fold's sequences, and of those sequences alone."""

    targets: Floats
    weights: Floats
    held_targets: Floats
    held_weights: Floats

    @cached_property
    def held_variance(self) -> Floats:
        mean = np.average(self.held_targets, axis=0, weights=self.held_weights)
        return np.asarray(np.average((self.held_targets - mean) ** 2, axis=0, weights=self.held_weights))

    @cached_property
    def varying(self) -> Bools:
        """Costs whose held-out means differ at all."""
        return np.asarray(self.held_variance > 1e-24, dtype=np.bool_)


@dataclass(frozen=True)
class Choice:
    """The value of least error, and all that were tried: (tried, 2) of value and error as a share of the variance."""

    regularisation: float
    tried: Floats


def fold_numbers(rows: int, seed: int) -> Ints:
    """(n,) fold of each sequence, sizes equal to within one."""
    return np.random.default_rng(seed).permutation(rows) % FOLDS


def choose_regularisation(solver: ConvexSolver, folds: list[Fold]) -> Choice | None:
    """Decade by decade from the strongest until the error has stopped falling, then half a decade to either side.

    None when the folds hold nothing to tell values apart by.
    """
    telling = [fold for fold in folds if fold.held_weights.sum() > 0 and fold.varying.any()]
    if not telling:
        return None
    tried: dict[float, float] = {}

    def error(exponent: float) -> float:
        if exponent not in tried:
            tried[exponent] = sum(held_out_error(solver, fold, 10.0**exponent) for fold in telling) / len(telling)
        return tried[exponent]

    exponents = np.arange(np.log10(STRONGEST), np.log10(WEAKEST) - 0.5, -1.0).tolist()
    best = flat = exponents[0]
    for exponent in exponents:
        if error(exponent) < error(best):
            best = exponent
        # Strong values all give the same flat fit; only after leaving that plateau is standing still a sign.
        if error(best) < LEFT_PLATEAU * error(flat) and best - exponent >= PATIENCE:
            break
    exponent = min((best, best - 0.5, best + 0.5), key=error)
    return Choice(float(10.0**exponent), np.array([[10.0**e, value] for e, value in sorted(tried.items())]))


def held_out_error(solver: ConvexSolver, fold: Fold, regularisation: float) -> float:
    """Mean squared error on the held-out sequences' means, each cost in units of its variance."""
    fits = solver(fold.targets, fold.weights, regularisation)
    values = np.stack([fit.values for fit in fits], axis=1)
    misfit = np.average((values - fold.held_targets) ** 2, axis=0, weights=fold.held_weights)
    return float(np.mean(misfit[fold.varying] / fold.held_variance[fold.varying]))
