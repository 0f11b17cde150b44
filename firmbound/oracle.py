"""The exact optimum of the Gaussian problem: the limit that every estimator is measured against.

The statistic is z_k = (e_k + log prior_k) - (e_K + log prior_K), k < K: K - 1 posterior log-odds that walk with
Gaussian steps whose mean depends on the true class. On an even grid of z the dynamic programme of the backward
induction theorem is run without estimation:

    continuation_t(z) = sum_j pi_j(z) E[minimum_{t+1}(z + step) | class j] + cost

Convolution with a Gaussian is done by FFT. Sampling the minimum risk at the nodes would cost an error of h^2, because
it has kinks (two decisions, or stopping and going on, are equally good). So the grid holds *cell means* of the minimum
risk, with the kinks resolved inside their cells, and the kernel is divided by the transform of a cell, which undoes the
mean: what is left is of higher order in h. Beyond the grid, classes that are less likely than exp(-reach) are held at
exp(-reach).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import fft
from scipy.ndimage import map_coordinates, spline_filter

from firmbound.arrays import Bools, Floats
from firmbound.costs import DecisionProblem
from firmbound.datasets.gaussian import GaussianProblem
from firmbound.errors import InvalidInput
from firmbound.posterior import class_prior, posterior
from firmbound.trajectories import Decisions, check_evidence, check_step_evidence

KERNEL_DEVIATIONS = 8.5
SUBCELLS = 8
# Grid steps as a fraction of a step's smallest deviation; both give a Bayes risk that is stable to 1e-5 (benchmarks).
DEFAULT_FINENESS = {1: 1 / 64, 2: 1 / 6}
# Risks bend over z on a scale of 1, so a grid for large steps may not be coarser than this.
COARSEST = {1: 0.02, 2: 0.1}
LARGEST_GRID_BYTES = 8 * 2**30


@dataclass(frozen=True)
class _Grid:
    """Even grid of z with spacing h, 2 m + 1 nodes an axis, and the map from its padded form to itself."""

    h: float
    m: int
    pad: int
    dimensions: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (2 * self.m + 1,) * self.dimensions

    def nodes(self) -> Floats:
        """(*shape, D) coordinates."""
        axis = self.h * np.arange(-self.m, self.m + 1)
        return np.stack(np.meshgrid(*[axis] * self.dimensions, indexing="ij"), axis=-1)

    def padding(self, nodes: int) -> tuple[NDArray[np.intp], ...]:
        """Index arrays that extend a grid by some nodes on every side, holding classes at the reach."""
        axis = np.arange(-self.m - nodes, self.m + nodes + 1)
        outside = np.stack(np.meshgrid(*[axis] * self.dimensions, indexing="ij"), axis=-1)
        held = hold_at_reach(outside, self.m)
        return tuple((held[..., d] + self.m).astype(np.intp) for d in range(self.dimensions))


def hold_at_reach(z: NDArray[Any], reach: float) -> NDArray[Any]:
    """Raise classes that are more than `reach` below the most likely one to that bound.  (..., D) -> (..., D)."""
    full = np.concatenate([z, np.zeros((*z.shape[:-1], 1), dtype=z.dtype)], axis=-1)
    held = np.maximum(full, full.max(axis=-1, keepdims=True) - reach)
    return np.asarray(held[..., :-1] - held[..., -1:])


class Oracle:
    """Exact continuation risks, decisions and Bayes risk of a Gaussian problem with K = 2 or 3 classes."""

    def __init__(self, problem: DecisionProblem, prior: Floats, grid: _Grid, surfaces: NDArray[Any], risk: Floats):
        self.problem = problem
        self.prior = prior
        self.bayes_risk = risk  # (C,) what an optimal observer pays on average, first observation included
        self._grid = grid
        self._surfaces = surfaces  # (T - 1, C, *grid) spline coefficients of the continuation risk, units of scale

    def continuation_risk(self, evidence: ArrayLike, *, t: int, cost: float | None = None) -> Floats:
        """Exact expected risk of observing once more after t, cost included.  (n, K) -> (n,)."""
        if not 1 <= t < self.problem.horizon:
            raise InvalidInput("t", f"lie in 1..{self.problem.horizon - 1}", t)
        values = check_step_evidence(evidence, self.problem.classes)
        return self.problem.scale * self._unit_continuation(values, t, self.problem.cost_index(cost))

    def stops(self, evidence: ArrayLike, *, t: int, cost: float | None = None) -> Bools:
        """Whether it is best to decide after t observations, t in 1..T-1.  (n, K) -> (n,)."""
        going_on = self.continuation_risk(evidence, t=t, cost=cost)
        return self.problem.scale * self._stopping_risk(np.asarray(evidence)) <= going_on

    def decide(self, evidence: ArrayLike, *, cost: float | None = None) -> Decisions:
        """Optimal decisions on (n, T, K) evidence."""
        values = check_evidence(evidence, horizon=self.problem.horizon, classes=self.problem.classes)
        index = self.problem.cost_index(cost)
        n, horizon, _ = values.shape
        time, waiting = np.full(n, horizon), np.arange(n)
        for t in range(1, horizon):
            now = values[waiting, t - 1]
            stop = self._stopping_risk(now) <= self._unit_continuation(now, t, index)
            time[waiting[stop]] = t
            waiting = waiting[~stop]
        final = posterior(values[np.arange(n), time - 1], self.prior)
        return Decisions(time, self.problem.best_label(final), horizon)

    def regret(self, evidence: ArrayLike, decisions: Decisions, *, cost: float | None = None) -> Floats:
        """What each sequence's decision time is expected to lose against the optimum.  -> (n,) non-negative.

        Going on where stopping is better loses continuation - stopping, stopping where going on is better loses
        stopping - continuation, and an excess of Bayes risk is the mean of these losses over the states visited. It is
        the excess of AAPR without the noise of what happened after the two rules parted.
        """
        values = check_evidence(evidence, horizon=self.problem.horizon, classes=self.problem.classes)
        if len(decisions) != len(values):
            raise InvalidInput("decisions", f"be one a sequence ({len(values)})", len(decisions))
        index = self.problem.cost_index(cost)
        loss = np.zeros(len(values))
        for t in range(1, self.problem.horizon):
            here = np.flatnonzero(decisions.time >= t)
            wait = self._unit_continuation(values[here, t - 1], t, index) - self._stopping_risk(values[here, t - 1])
            loss[here] += np.maximum(np.where(decisions.time[here] == t, -wait, wait), 0.0)
        return np.asarray(self.problem.scale * loss, dtype=np.float64)

    def _stopping_risk(self, evidence: NDArray[Any]) -> Floats:
        return self.problem.stopping_risk(posterior(evidence, self.prior))

    def _unit_continuation(self, evidence: NDArray[Any], t: int, index: int) -> Floats:
        z = log_odds(evidence, self.prior)
        place = hold_at_reach(z, self._grid.h * self._grid.m) / self._grid.h + self._grid.m
        coefficients = self._surfaces[t - 1, index]
        return np.asarray(map_coordinates(coefficients, place.T, order=3, prefilter=False, mode="nearest"), dtype=float)


def log_odds(evidence: NDArray[Any], prior: Floats) -> Floats:
    """Posterior log-odds against the last class.  (..., K) -> (..., K - 1)."""
    full = np.asarray(evidence, dtype=np.float64) + np.log(prior)
    return np.asarray(full[..., :-1] - full[..., -1:], dtype=np.float64)


def solve_gaussian(
    gaussian: GaussianProblem,
    *,
    costs: ArrayLike,
    penalty: ArrayLike = 10.0,
    delay: ArrayLike | None = None,
    fineness: float | None = None,
) -> Oracle:
    """Run the exact dynamic programme for all costs.

    `fineness` is the grid step in units of the smallest deviation of a step; smaller is finer (for large steps the
    grid is finer than that, in the same proportion). The size of the data
    set does not matter: the description of its distribution is all that is used.
    """
    if gaussian.classes not in (2, 3):
        raise InvalidInput("classes", "be 2 or 3 for the exact dynamic programme", gaussian.classes)
    problem = DecisionProblem.create(
        classes=gaussian.classes, horizon=gaussian.horizon, penalty=penalty, costs=costs, delay=delay
    )
    prior = class_prior(gaussian.prior, gaussian.classes)
    contrast = np.hstack([np.eye(gaussian.classes - 1), -np.ones((gaussian.classes - 1, 1))])
    means = gaussian.step_means @ contrast.T
    covariance = contrast @ gaussian.step_covariance @ contrast.T
    grid = _make_grid(problem, means, covariance, fineness)
    programme = _Programme(problem, grid, means, covariance)
    surfaces = np.empty((problem.horizon - 1, problem.costs.size, *grid.shape), dtype=np.float32)
    minimum = programme.last_minimum()
    for t in range(problem.horizon - 1, 0, -1):
        continuation = programme.expect(minimum) + _column(problem.next_cost(t), grid.dimensions)
        for index, surface in enumerate(continuation):
            surfaces[t - 1, index] = spline_filter(surface, order=3, mode="nearest")
        minimum = programme.minimum(continuation)
    start = hold_at_reach(log_odds(np.zeros(gaussian.classes), prior), grid.h * grid.m) / grid.h + grid.m
    before = [map_coordinates(c, start[:, None], order=3, mode="nearest")[0] for c in programme.expect(minimum)]
    risk = problem.scale * (np.array(before) + problem.unit_costs * problem.delay[0])
    return Oracle(problem, prior, grid, surfaces, risk)


def _make_grid(problem: DecisionProblem, means: Floats, covariance: Floats, fineness: float | None) -> _Grid:
    dimensions = covariance.shape[0]
    deviation = float(np.sqrt(np.linalg.eigvalsh(covariance)[0]))
    usual = DEFAULT_FINENESS[dimensions]
    # `fineness` refines the usual grid, also where the bound on coarseness made that.
    h = min(deviation * usual, COARSEST[dimensions]) * (fineness or usual) / usual
    # At exp(-reach) the risk of stopping is far below the price of an observation, so nothing beyond can matter.
    prices = problem.delay[1:]
    reach = 11.0 - np.log(float(problem.unit_costs.min() * prices[prices > 0].min()))
    pad = int(np.ceil((np.abs(means).max() + KERNEL_DEVIATIONS * np.sqrt(covariance.max())) / h))
    grid = _Grid(h=h, m=int(np.ceil(reach / h)), pad=pad, dimensions=dimensions)
    needed = 4 * (problem.horizon - 1) * problem.costs.size * float(np.prod(grid.shape, dtype=float))
    if needed > LARGEST_GRID_BYTES:
        raise InvalidInput(
            "fineness",
            f"leave the exact surfaces below {LARGEST_GRID_BYTES / 2**30:.0f} GiB",
            f"{needed / 2**30:.0f} GiB for steps of deviation {deviation:.3g}",
            "Ask for fewer costs or a coarser grid.",
        )
    return grid


def _column(values: Floats, dimensions: int) -> Floats:
    return values.reshape(-1, *[1] * dimensions)


class _Programme:
    """One backward step on the grid; everything that does not change between steps is computed once."""

    def __init__(self, problem: DecisionProblem, grid: _Grid, means: Floats, covariance: Floats) -> None:
        self.grid = grid
        self.axes = tuple(range(-grid.dimensions, 0))
        z = np.concatenate([grid.nodes(), np.zeros((*grid.shape, 1))], axis=-1)
        belief = posterior(z, np.ones(z.shape[-1]))  # z holds the prior already
        self.posterior = np.moveaxis(belief, -1, 0)  # (K, *grid)
        self.padding, self.border = grid.padding(grid.pad), grid.padding(1)
        self.decisions = self._cell_means(np.moveaxis(problem.decision_risk(belief), -1, 0))  # (K, *grid)
        self.decision_slopes = self._slopes(self.decisions)  # (D, K, *grid)
        self.costs = problem.costs.size
        self.length = tuple(fft.next_fast_len(n + 2 * grid.pad, real=True) for n in grid.shape)
        self.kernels = self._kernels(means, covariance)
        self.inner: tuple[Any, ...] = (..., *[slice(grid.pad, grid.pad + n) for n in grid.shape])

    def _kernels(self, means: Floats, covariance: Floats) -> list[NDArray[np.complex128]]:
        """E[exp(i k . step) | class j] over the transform of a cell, at the frequencies of a real FFT."""
        full = [2 * np.pi * fft.fftfreq(n, self.grid.h) for n in self.length[:-1]]
        half = 2 * np.pi * fft.rfftfreq(self.length[-1], self.grid.h)
        k = np.stack(np.meshgrid(*full, half, indexing="ij"), axis=-1)
        decay = -0.5 * np.einsum("...i,ij,...j->...", k, covariance, k)
        cell = np.prod(np.sinc(k * self.grid.h / (2 * np.pi)), axis=-1)
        return [np.exp(decay + 1j * (k @ mean)) / cell for mean in means]

    def expect(self, minimum: Floats) -> Floats:
        """sum_j pi_j(z) E[minimum(z + step) | j].  (C, *grid) -> (C, *grid)."""
        padded = np.stack([surface[self.padding] for surface in minimum])
        spectrum = fft.rfftn(padded, s=self.length, axes=self.axes, workers=2)
        total = np.zeros_like(minimum)
        for weight, kernel in zip(self.posterior, self.kernels, strict=True):
            total += weight * fft.irfftn(spectrum * kernel, s=self.length, axes=self.axes, workers=2)[self.inner]
        return total

    def last_minimum(self) -> Floats:
        """At the horizon one must decide: the stopping risk for every cost."""
        once = self._mean_of_minimum(self.decisions, self.decision_slopes)
        return np.repeat(once[None], self.costs, axis=0)

    def minimum(self, continuation: Floats) -> Floats:
        """min(stopping risk, continuation risk), cell means where it has a kink.  (C, *grid) -> (C, *grid)."""
        result = np.empty_like(continuation)
        for index, surface in enumerate(continuation):
            going_on = self._cell_means(surface[None])
            candidates = np.concatenate([self.decisions, going_on])
            slopes = np.concatenate([self.decision_slopes, self._slopes(going_on)], axis=1)
            result[index] = self._mean_of_minimum(candidates, slopes)
        return result

    def _cell_means(self, values: Floats) -> Floats:
        """Cell means of smooth functions, f + h^2 / 24 * sum of second derivatives.  (A, *grid) -> (A, *grid)."""
        return np.asarray(values + sum(after - 2 * values + before for before, after in self._beside(values)) / 24.0)

    def _slopes(self, values: Floats) -> Floats:
        """(A, *grid) -> (D, A, *grid) derivative along each axis."""
        return np.stack([(after - before) / (2 * self.grid.h) for before, after in self._beside(values)])

    def _beside(self, values: Floats) -> list[tuple[Floats, Floats]]:
        """The values one node before and one after, along each axis; beyond the grid, classes are held at the reach."""
        wider = np.stack([surface[self.border] for surface in values])
        inside = [slice(1, -1)] * self.grid.dimensions
        pairs = []
        for axis in range(self.grid.dimensions):
            before, after = inside.copy(), inside.copy()
            before[axis], after[axis] = slice(None, -2), slice(2, None)
            pairs.append((wider[(slice(None), *before)], wider[(slice(None), *after)]))
        return pairs

    def _mean_of_minimum(self, candidates: Floats, slopes: Floats) -> Floats:
        """Cell means of the minimum of locally linear functions, (A, *grid) with slopes (D, A, *grid) -> (*grid)."""
        smallest = candidates.min(axis=0)
        half = self.grid.h / 2
        # A candidate can undercut the smallest somewhere in the cell only if it is this close at the node.
        lead = candidates.argmin(axis=0)[None]
        own = np.take_along_axis(slopes, lead[None], axis=1)
        within = candidates - smallest < half * np.abs(slopes - own).sum(axis=0)
        kinked = np.nonzero(within.any(axis=0))
        everywhere: tuple[Any, ...] = (slice(None),)
        at = candidates[everywhere + kinked]
        slope = slopes[everywhere + everywhere + kinked]
        offsets = self.grid.h * ((np.arange(SUBCELLS) + 0.5) / SUBCELLS - 0.5)
        mean = np.zeros(at.shape[1])
        for corner in np.stack(np.meshgrid(*[offsets] * self.grid.dimensions), axis=-1).reshape(
            -1, self.grid.dimensions
        ):
            mean += (at + np.tensordot(corner, slope, axes=1)).min(axis=0)
        result: Floats = smallest.copy()
        result[kinked] = mean / SUBCELLS**self.grid.dimensions
        return result
