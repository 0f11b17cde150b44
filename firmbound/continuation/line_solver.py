"""Convex function learning on a line, exactly: an active set of kinks instead of m^2 constraints.

A convex function that is linear between the points is a line plus hinges, f(x) = a + b x + sum_k g_k (x - x_k)^+ with
g_k >= 0. At the optimum few g_k are positive. So: least squares with the kinks held so far, which is a tridiagonal
system; drop kinks whose g would turn negative; add those where a hinge would lower the objective; until none would.

The penalty on the largest slope, lambda max(-first slope, last slope), equals the largest value over mu in [0, 1] of
lambda (mu * -first slope + (1 - mu) * last slope): a tilt of the ends with the right mu, found by regula falsi.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.linalg.lapack import dptsv

from firmbound.arrays import Bools, Floats, Ints
from firmbound.continuation.convex_objective import ConvexFit
from firmbound.errors import NotConvergedWarning, NumericalError

# A hinge is worth adding if it lowers the objective faster than this; for targets of order 1 on a line of length 1.
TOLERANCE = 1e-12
MAX_ROUNDS = 2_000
MAX_TILTS = 150
# The tilt is right when what it leaves undone is worth less than this share of the misfit.
BALANCE = 1e-7
UNBALANCED = 1e-3
FLAT = 1e-4  # what is fitted is of order one: where it hardly varies, no slope can be much wrong
NO_KINKS: Ints = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class LineFit(ConvexFit):
    """A ConvexFit with a start for a similar problem: where the slope rises, and how the penalty tilts the ends."""

    kinks: Ints
    tilt: float


def fit_line(
    x: Floats,
    y: Floats,
    weights: Floats,
    regularisation: float = 0.0,
    start: Sequence[int] | Ints = (),
    tilt: float = 0.5,
) -> LineFit:
    """Convex least squares on distinct, rising x (m,) with penalty regularisation * (largest |slope|).

    slopes (pieces, 1) and offsets (pieces,) are the segments between kinks; `start` may name kinks to begin with,
    `tilt` the share of the penalty on the first slope.
    """
    if len(x) == 1:
        return LineFit(y.copy(), np.zeros((1, 1)), y.copy(), 0.0, 0.0, 0.0, 0, NO_KINKS, 0.5)
    problem = _Hinges(x, y, weights / weights.sum())
    spline, tilt = _balance(problem, regularisation, np.asarray(start, dtype=np.int64), tilt)
    slopes = spline.slopes
    offsets = spline.heights[:-1] - slopes * x[spline.nodes[:-1]]
    values = np.interp(x, x[spline.nodes], spline.heights)
    penalty = regularisation * float(np.abs(slopes).max())
    objective = float(problem.share @ (values - y) ** 2) + penalty
    # A convex function of total curvature c undercuts the objective by at most 2 c * best gain: the gap, for those that
    # bend no more than twice as much as this one.
    curvature = 2.0 * float(slopes[-1] - slopes[0])
    first, last = -float(slopes[0]), float(slopes[-1])
    unbalanced = regularisation * max(0.0, max(first, last) - tilt * first - (1.0 - tilt) * last)
    if unbalanced > UNBALANCED * max(objective, problem.least_misfit) and np.ptp(y) > FLAT:
        warnings.warn(
            f"line fit ended with {unbalanced / objective:.2g} of its objective out of balance, wanted {BALANCE:.2g}",
            NotConvergedWarning,
            stacklevel=2,
        )
    gap = (unbalanced - 2.0 * spline.best_gain * curvature) / max(objective, np.finfo(float).tiny)
    return LineFit(values, slopes[:, None], offsets, objective, 0.0, gap, problem.rounds, spline.kinks, tilt)


def _balance(problem: _Hinges, regularisation: float, proposal: Ints, middle: float) -> tuple[_Spline, float]:
    """The tilt mu in [0, 1] at which the bound on slopes holds at both ends, or at the end that needs it."""
    low, high, at_low, at_high, side = 0.0, 1.0, np.inf, -np.inf, 0
    spline = problem.flat()
    for turn in range(MAX_TILTS):
        spline = problem.minimise(regularisation * middle, regularisation * (1.0 - middle), spline, proposal)
        proposal, steeper = NO_KINKS, spline.steeper_first
        # mu = 1 penalises the first slope alone: right if that one is steeper still; mu = 0 likewise for the last.
        at_end = (middle == 1.0 and steeper >= 0) or (middle == 0.0 and steeper <= 0)
        balanced = regularisation * abs(steeper) <= BALANCE * problem.misfit(spline)
        if at_end or balanced or high - low <= 1e-15 or turn == MAX_TILTS - 1:
            break
        # Regula falsi on a falling function; an end that stays twice loses half its height, so that it moves too.
        if steeper > 0:
            low, at_low, at_high, side = middle, steeper, at_high / (2 if side > 0 else 1), 1
        else:
            high, at_high, at_low, side = middle, steeper, at_low / (2 if side < 0 else 1), -1
        if np.isinf(at_high) or np.isinf(at_low):
            middle = high if np.isinf(at_high) else low
        elif turn > 12 and turn % 2:  # slow so far: every other time in the middle, whatever the curve's shape
            middle = (low + high) / 2
        else:
            middle = low + (high - low) * at_low / (at_low - at_high)
    return spline, middle


@dataclass(frozen=True)
class _Spline:
    """Continuous and linear between nodes; `best_gain` <= 0 is the rate at which the best further hinge would help."""

    nodes: Ints
    heights: Floats
    slopes: Floats
    best_gain: float

    @property
    def kinks(self) -> Ints:
        return self.nodes[1:-1]

    @property
    def steeper_first(self) -> float:
        """How much steeper the first segment falls than the last one rises."""
        return float(-self.slopes[0] - self.slopes[-1])


class _Hinges:
    """Least squares over lines plus non-negative hinges at the interior points."""

    def __init__(self, x: Floats, y: Floats, share: Floats) -> None:
        self.x, self.y, self.share = x, y, share
        self.gaps = np.diff(x)
        self.rounds = 0
        # What matters less than this share of the variance is not worth balancing.
        self.least_misfit = 1e-4 * float(share @ (y - share @ y) ** 2)

    def flat(self) -> _Spline:
        """Where to begin when nothing is known: no kink at all."""
        return _Spline(np.array([0, len(self.x) - 1]), np.zeros(2), np.zeros(1), 0.0)

    def misfit(self, spline: _Spline) -> float:
        values = np.interp(self.x, self.x[spline.nodes], spline.heights)
        return max(float(self.share @ (values - self.y) ** 2), self.least_misfit)

    def minimise(self, first_tilt: float, last_tilt: float, start: _Spline, proposal: Ints = NO_KINKS) -> _Spline:
        """Minimise sum share (f - y)^2 - first_tilt * first slope + last_tilt * last slope, from a convex start.

        Proposed kinks enter with g = 0 and stay if they help.
        """
        nodes, heights = start.nodes, start.heights
        for _ in range(MAX_ROUNDS):
            nodes, heights = self._enter(nodes, heights, proposal, first_tilt, last_tilt)
            gains = self._gains(nodes, heights, last_tilt)
            proposal, best = self._proposals(nodes, gains)
            if len(proposal) == 0:
                return _Spline(nodes, heights, self._slopes(nodes, heights), min(best, 0.0))
        raise NumericalError("line fit did not settle", step=MAX_ROUNDS, residual=-best, tolerance=TOLERANCE)

    def _enter(
        self, nodes: Ints, heights: Floats, proposal: Ints, first_tilt: float, last_tilt: float
    ) -> tuple[Ints, Floats]:
        """Take in the proposed kinks, then drop those that cannot stay, never leaving the convex functions."""
        wider = np.union1d(nodes, proposal)
        heights = np.interp(self.x[wider], self.x[nodes], heights)
        nodes = wider
        while True:
            self.rounds += 1
            wanted = self._least_squares(nodes, first_tilt, last_tilt)
            bend = np.diff(self._slopes(nodes, wanted))
            broken = bend < 0
            if not broken.any():
                return nodes, wanted
            now = np.maximum(np.diff(self._slopes(nodes, heights)), 0.0)
            # Walk towards the wanted spline until the first kink is straight; that one leaves.
            share = now[broken] / (now[broken] - bend[broken])
            step = share.min()
            heights = heights + step * (wanted - heights)
            leaving = np.zeros(len(bend), dtype=np.bool_)
            leaving[np.flatnonzero(broken)[share <= step]] = True
            keep: Bools = np.concatenate([[True], ~leaving, [True]])
            nodes, heights = nodes[keep], heights[keep]

    def _least_squares(self, nodes: Ints, first_tilt: float, last_tilt: float) -> Floats:
        """Heights at the nodes of the best spline: hat functions, so the normal equations are tridiagonal."""
        x = self.x[nodes]
        lengths = np.diff(nodes)
        lengths[-1] += 1  # the last point belongs to the last segment
        segment = np.repeat(np.arange(len(lengths)), lengths)
        right = (self.x - x[segment]) / np.diff(x)[segment]
        left = 1.0 - right
        count = len(nodes)
        weighted_left, weighted_right = self.share * left, self.share * right
        lower, upper = segment, segment + 1
        diagonal = np.bincount(lower, weighted_left * left, count) + np.bincount(upper, weighted_right * right, count)
        beside = np.bincount(lower, weighted_left * right, count)[:-1]
        load = np.bincount(lower, weighted_left * self.y, count) + np.bincount(upper, weighted_right * self.y, count)
        first, last = first_tilt / (2 * (x[1] - x[0])), last_tilt / (2 * (x[-1] - x[-2]))
        load[0] -= first
        load[1] += first
        load[-2] += last
        load[-1] -= last
        _, _, heights, info = dptsv(diagonal, beside, load)
        if info != 0:
            raise NumericalError("line fit lost its definiteness", step=int(info), residual=np.nan, tolerance=0.0)
        return np.asarray(heights, dtype=np.float64)

    def _slopes(self, nodes: Ints, heights: Floats) -> Floats:
        return np.asarray(np.diff(heights) / np.diff(self.x[nodes]), dtype=np.float64)

    def _gains(self, nodes: Ints, heights: Floats, last_tilt: float) -> Floats:
        """Half the rate of change of the objective for a hinge at each interior point; negative helps."""
        residual = self.share * (np.interp(self.x, self.x[nodes], heights) - self.y)
        beyond = np.cumsum(residual[::-1])[::-1]
        # sum_{i > k} r_i (x_i - x_k), summed gap by gap so that short gaps keep their digits
        moments = np.cumsum((self.gaps * beyond[1:])[::-1])[::-1]
        return np.asarray(moments[1:] + last_tilt / 2.0, dtype=np.float64)

    def _proposals(self, nodes: Ints, gains: Floats) -> tuple[Ints, float]:
        """The best hinge inside each segment, if it helps; and the best gain of all."""
        best = float(gains.min(initial=0.0))
        if best >= -TOLERANCE:
            return NO_KINKS, best
        found = []
        for start, end in pairwise(nodes):
            inner = gains[start : end - 1]  # gains[k - 1] belongs to point k
            if len(inner) and (low := inner.min()) < -TOLERANCE and low < 0.1 * best:
                found.append(int(start) + 1 + int(inner.argmin()))
        return np.asarray(found, dtype=np.int64), best
