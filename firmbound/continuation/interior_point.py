"""Convex function learning in any dimension: an interior-point method that finds its constraints on the way.

Of the m^2 convexity constraints few matter. A general solver is called again and again with more of them; here the set
grows *inside* one solve. After each Newton step all m^2 are looked at (one matrix product), and the worst ones that are
broken join with a slack of the size of their violation. Steps are Mehrotra's predictor and corrector, lengthened by
corrections of the products that lag behind.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial import cKDTree

from firmbound.arrays import Floats, Ints
from firmbound.continuation.convex_objective import ConvexFit, dual_bound, offsets_of, relative_gap, repaired_fit
from firmbound.continuation.working_set import NormalEquations, Unknowns, WorkingSet
from firmbound.errors import NotConvergedWarning, NumericalError

NEIGHBOURS = 8
MAX_ROUNDS = 200
# Rounds without progress after which rounding has the last word, and how much of the wanted gap that may leave.
PATIENCE = 12
ACCEPTED = 100.0
# No constraint may stay broken by more than this share of the targets' spread, however lax the tolerance.
LARGEST_VIOLATION = 1e-3
# Broken constraints that a row may take in after one step.
NEW_PER_ROW = 2
# Start: a bowl of at least this steepness, for targets of unit variance.
LEAST_STEEPNESS = 0.3
CORRECTIONS = 2
SMALLEST = 1e-30
RIDGES = (1e-13, 1e-11, 1e-9, 1e-7)


@dataclass(frozen=True)
class Manner:
    """How a solve begins and goes on: slacks, and their products with multipliers, of at least `least` for targets of
    unit variance, and steps that go so far `towards` the boundary."""

    least: float
    towards: float


# Where nearly all sequences are certain, a solve may run into the boundary and stay there; another seldom does, too.
MANNERS = (Manner(0.1, 0.99), Manner(0.1, 0.9), Manner(1.0, 0.99))


def near_pairs(points: Floats, neighbours: int = NEIGHBOURS) -> Ints:
    """Pairs (i, j), j among the nearest `neighbours` of i.  (m, p) -> (pairs, 2), sorted."""
    m = len(points)
    if m < 2:
        return np.empty((0, 2), dtype=np.int64)
    count = min(neighbours, m - 1)
    _, nearest = cKDTree(points).query(points, k=count + 1)
    pairs = np.column_stack([np.repeat(np.arange(m), count + 1), nearest.ravel()])
    return np.asarray(np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0), dtype=np.int64)


def fit_interior_point(
    points: Floats,
    targets: Floats,
    weights: Floats,
    regularisation: float,
    *,
    pairs: Ints | None = None,
    tolerance: float = 1e-5,
    gap: float = 1e-5,
) -> tuple[ConvexFit, Ints]:
    """Convex least squares on points (m, p): the fit, and the pairs that bind, a start for a similar problem.

    Ends when the objective is known to lie within the share `gap` of the optimum and no constraint is broken by more
    than `tolerance`. `regularisation` must be positive: it alone fixes slopes along directions in which the points do
    not differ. `pairs` must be sorted and distinct.
    """
    problem = _Scaled.of(points, targets, weights, regularisation)
    if np.ptp(targets) <= 1e-12 * np.abs(targets).max():
        level = np.full(len(points), problem.centre)
        flat = repaired_fit(points, targets, weights, regularisation, np.zeros_like(points), level, np.inf, 0)
        return flat, near_pairs(points)
    given = [] if pairs is None else [(MANNERS[0], pairs)]
    found: tuple[ConvexFit, _State] | None = None
    rounds = 0
    for manner, first in [*given, *((manner, None) for manner in MANNERS)]:
        start = near_pairs(points) if first is None else first
        state, taken = _solve(replace(problem, manner=manner), start, tolerance, gap)
        rounds += taken
        fit = _report(problem, state, points, targets, weights, regularisation, rounds)
        if found is None or fit.gap < found[0].gap:
            found = fit, state
        if fit.gap <= ACCEPTED * gap:
            break
    assert found is not None  # there is one start at least
    fit, state = found
    if not fit.gap <= ACCEPTED * gap:
        warnings.warn(
            f"interior point ended after {rounds} rounds with gap {fit.gap:.2g}, wanted {gap:.2g}",
            NotConvergedWarning,
            stacklevel=2,
        )
    convexity = state.multipliers[: len(state.working.pairs)]
    return fit, state.working.pairs[convexity > state.slacks[: len(convexity)]]


def _solve(problem: _Scaled, pairs: Ints, tolerance: float, gap: float) -> tuple[_State, int]:
    """The best state that one manner found, and the rounds it took."""
    tolerance = min(tolerance, LARGEST_VIOLATION * problem.spread)
    state = _State.start(problem, pairs)
    best, least_gap, least_product, rounds, progress = state, np.inf, np.inf, 0, 0
    while least_gap > gap and rounds < MAX_ROUNDS and rounds - progress < PATIENCE:
        rounds += 1
        try:
            state, worst = _take_in(problem, _newton_step(problem, state), tolerance / 2)
        except NumericalError:
            break
        now = problem.gap(state) if worst <= tolerance else np.inf
        if now < least_gap or np.isinf(least_gap):
            best, least_gap, progress = state, now, rounds
        if state.product_sum < least_product:
            least_product, progress = state.product_sum, rounds
    return best, rounds


@dataclass(frozen=True)
class _Scaled:
    """Targets moved to mean 0 and variance 1, the objective multiplied by m: numbers near 1 whatever the units."""

    points: Floats
    targets: Floats
    curvature: Floats
    penalty: float
    centre: float
    spread: float
    manner: Manner = MANNERS[0]

    @classmethod
    def of(cls, points: Floats, targets: Floats, weights: Floats, regularisation: float) -> _Scaled:
        share = weights / weights.sum()
        centre = float(share @ targets)
        spread = float(np.sqrt(share @ (targets - centre) ** 2)) or 1.0
        m = len(points)
        return cls(points, (targets - centre) / spread, 2.0 * m * share, m * regularisation / spread, centre, spread)

    def objective(self, x: Unknowns) -> float:
        misfit = float(self.curvature @ (x.values - self.targets) ** 2) / 2.0
        return misfit + self.penalty * float(np.abs(x.slopes).max(axis=0).sum())

    def gap(self, state: _State) -> float:
        """How far the objective may lie above the optimum, as a share of it, by what the multipliers prove."""
        convexity, _, _ = state.working.split(state.multipliers)
        forces = state.working.forces(convexity / len(self.points))
        bound = dual_bound(self.targets, self.curvature, self.penalty / len(self.points), *forces)
        return relative_gap(self.objective(state.x) / len(self.points), bound)

    def gradient(self, x: Unknowns) -> Unknowns:
        bounds = np.full(len(x.bounds), self.penalty)
        return Unknowns(self.curvature * (x.values - self.targets), np.zeros_like(x.slopes), bounds)


@dataclass(frozen=True)
class _State:
    working: WorkingSet
    x: Unknowns
    slacks: Floats
    multipliers: Floats

    @property
    def product_sum(self) -> float:
        return float(self.slacks @ self.multipliers)

    @classmethod
    def start(cls, problem: _Scaled, pairs: Ints) -> _State:
        """A round bowl through the targets: strictly convex, so no constraint is broken."""
        share = problem.curvature / problem.curvature.sum()
        centred = problem.points - share @ problem.points
        bowl = (centred**2).sum(axis=1)
        bowl -= share @ bowl
        steepest = 2.0 * np.abs(centred).max(axis=0)
        gain = float(share @ (bowl * problem.targets)) - problem.penalty * float(steepest.sum()) / (2 * len(bowl))
        steepness = max(gain / max(float(share @ bowl**2), SMALLEST), LEAST_STEEPNESS)
        x = Unknowns(steepness * bowl, 2.0 * steepness * centred, 1.5 * steepness * steepest + problem.manner.least)
        working = WorkingSet(problem.points, pairs)
        slacks = np.maximum(working.forward(x), problem.manner.least)
        # The bounds' multipliers must sum to the penalty: a product that is too small for that would never catch up.
        product = max(problem.manner.least, problem.penalty * float(x.bounds.mean()) / (2 * len(bowl)))
        return cls(working, x, slacks, product / slacks)


def _newton_step(problem: _Scaled, state: _State) -> _State:
    working, slacks, multipliers = state.working, state.slacks, state.multipliers
    weights = multipliers / slacks
    newton = _Newton(
        _factored(working, problem.curvature, weights),
        weights,
        problem.gradient(state.x),
        working.forward(state.x) - slacks,
        state,
    )
    mean = state.product_sum / len(slacks)
    towards = newton.direction(-multipliers)
    reached = slacks + towards.primal_step * towards.slacks, multipliers + towards.dual_step * towards.multipliers
    aim = mean * max(float(reached[0] @ reached[1]) / (mean * len(slacks)), 0.0) ** 3
    change = -multipliers + (aim - towards.slacks * towards.multipliers) / slacks
    best = newton.direction(change)
    for _ in range(CORRECTIONS):
        change = change + newton.centring(best, aim)
        longer = newton.direction(change)
        if longer.reach < best.reach + 0.03:
            break
        best = longer
    primal, dual = (1.0 if s == 1.0 else problem.manner.towards * s for s in (best.primal_step, best.dual_step))
    return _State(
        working,
        state.x.moved(primal, best.x),
        np.maximum(slacks + primal * best.slacks, SMALLEST),
        np.maximum(multipliers + dual * best.multipliers, SMALLEST),
    )


def _factored(working: WorkingSet, curvature: Floats, weights: Floats) -> NormalEquations:
    """Close to the end weights span twenty orders of magnitude: the least ridge that lets the factorisation pass."""
    for ridge in RIDGES[:-1]:
        try:
            return working.normal_equations(curvature, weights, ridge)
        except NumericalError:
            continue
    return working.normal_equations(curvature, weights, RIDGES[-1])


@dataclass(frozen=True)
class _Direction:
    x: Unknowns
    slacks: Floats
    multipliers: Floats
    primal_step: float
    dual_step: float

    @property
    def reach(self) -> float:
        return self.primal_step + self.dual_step


@dataclass(frozen=True)
class _Newton:
    """The linearised optimality conditions at one state; solving them costs little once they are factored."""

    equations: NormalEquations
    weights: Floats
    gradient: Unknowns
    residual: Floats
    state: _State

    def direction(self, change: Floats) -> _Direction:
        """`change`: what the multipliers would do if slacks stood still and no residual were left."""
        working = self.equations.working
        wanted = change - self.weights * self.residual
        right = working.transpose(self.state.multipliers + wanted).moved(-1.0, self.gradient)
        x = self.equations.solve(right)
        moved = working.forward(x)
        slacks, multipliers = moved + self.residual, wanted - self.weights * moved
        primal = _step_to_boundary(self.state.slacks, slacks)
        return _Direction(x, slacks, multipliers, primal, _step_to_boundary(self.state.multipliers, multipliers))

    def centring(self, direction: _Direction, aim: float) -> Floats:
        """Change that brings outlying products back towards the aim, at a step a little longer than possible now."""
        primal, dual = min(1.0, direction.primal_step + 0.3), min(1.0, direction.dual_step + 0.3)
        slacks = self.state.slacks + primal * direction.slacks
        products = slacks * (self.state.multipliers + dual * direction.multipliers)
        lag = np.maximum(np.clip(products, 0.1 * aim, 10.0 * aim) - products, -10.0 * aim)
        return np.asarray(lag / self.state.slacks, dtype=np.float64)


def _step_to_boundary(now: Floats, change: Floats) -> float:
    fastest = float((-change / now).max())
    if not np.isfinite(fastest):
        raise NumericalError("the Newton step is not finite", residual=fastest, tolerance=0.0)
    return 1.0 / max(1.0, fastest)


def _take_in(problem: _Scaled, state: _State, least: float) -> tuple[_State, float]:
    """Add the worst broken constraints of each row; also the worst violation of all, in the targets' units."""
    x, working, m = state.x, state.working, len(problem.points)
    offsets = offsets_of(x.values, x.slopes, problem.points)
    excess = x.slopes @ problem.points.T
    excess += offsets[:, None]
    excess -= x.values
    worst = max(float(excess.max()), 0.0) * problem.spread
    if worst <= least:
        return state, worst
    excess[working.i, working.j] = -np.inf
    rows, new, amounts = np.arange(m), [], []
    for _ in range(NEW_PER_ROW):
        column = excess.argmax(axis=1)
        amount = excess[rows, column]
        broken = amount * problem.spread > least
        new.append(np.column_stack([rows[broken], column[broken]]))
        amounts.append(amount[broken])
        excess[rows, column] = -np.inf
    fresh, sizes = np.concatenate(new), np.concatenate(amounts)
    if len(fresh) == 0:
        return state, worst
    mean = state.product_sum / len(state.slacks)
    # A slack smaller than the violation would block every step until it is gone.
    slacks = np.maximum(np.sqrt(mean), sizes)
    pairs = np.concatenate([working.pairs, fresh])
    order = np.argsort(pairs[:, 0], kind="stable")
    held = len(working.pairs)
    joined = [
        np.concatenate([np.concatenate([old[:held], added])[order], old[held:]])
        for old, added in ((state.slacks, slacks), (state.multipliers, mean / slacks))
    ]
    return _State(WorkingSet(problem.points, pairs[order]), x, joined[0], joined[1]), worst


def _report(
    problem: _Scaled,
    state: _State,
    points: Floats,
    targets: Floats,
    weights: Floats,
    regularisation: float,
    rounds: int,
) -> ConvexFit:
    """Back to the targets' units, with the bound that the multipliers prove."""
    slopes = problem.spread * state.x.slopes
    offsets = offsets_of(problem.centre + problem.spread * state.x.values, slopes, points)
    convexity, _, _ = state.working.split(state.multipliers)
    value_forces, slope_forces = state.working.forces(convexity * problem.spread / len(points))
    bound = dual_bound(targets, weights, regularisation, value_forces, slope_forces)
    return repaired_fit(points, targets, weights, regularisation, slopes, offsets, bound, rounds)
