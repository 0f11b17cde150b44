"""THE HEART: backward induction with an estimator of the conditional expectation.

    minimum_T      = stopping risk
    continuation_t = E[minimum_{t+1} | statistic_t] + cost of an observation
    minimum_t      = min(stopping risk, continuation_t)                          t = T - 1, .., 1

What needs no future is prepared for every t at once; the fits run in order, T - 1 first, all costs together.

Where sequences end at different times, one that ends at t is decided there, minimum_t = stopping risk, and the
expectation at t is over those that go on: who is asked whether to look once more knows that there is more to see.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firmbound.arrays import Floats, Ints
from firmbound.continuation.surface import PreparedFit, RiskSurface, Statistic, SurfaceFitter
from firmbound.costs import DecisionProblem
from firmbound.memory import Summaries, remember
from firmbound.posterior import log_likelihood_ratios, posterior
from firmbound.schedule import Handle, InOrder, Schedule
from firmbound.trajectories import check_step_evidence

Progress = Callable[[int, int], None]


def induce(
    evidence_at: Callable[[int], NDArray[Any]],
    prior: Floats,
    problem: DecisionProblem,
    fitter: SurfaceFitter,
    *,
    lengths: Ints | None = None,
    schedule: Schedule | None = None,
    progress: Progress | None = None,
) -> list[RiskSurface]:
    """Continuation-risk surfaces of t = 1..T-1, without the cost of the next observation, in units of the scale.

    `evidence_at(t)` gives the (n, K) evidence after t observations, t in 1..T, so that it may come from memory or disk.
    `lengths` (n,) says where sequences end, if not all at T; at least one goes on to T.
    """
    run = schedule or InOrder()
    steps = range(1, problem.horizon)
    memory = remember(evidence_at, len(steps), problem.classes) if fitter.statistic == "memory" else [None] * len(steps)
    prepared: dict[int, Handle[PreparedFit]] = {
        t: run.submit(f"prepare t={t}", _prepare, fitter, evidence_at, prior, t, memory[t - 1], _going_on(lengths, t))
        for t in steps
    }
    final = check_step_evidence(evidence_at(problem.horizon), problem.classes)
    last = problem.stopping_risk(posterior(final, prior))
    minimum = np.asfortranarray(np.repeat(last[:, None], len(problem.costs), axis=1))
    surfaces: dict[int, RiskSurface] = {}
    for t in reversed(steps):
        fitted = run.submit(
            f"fit t={t}",
            _fit,
            prepared.pop(t),
            minimum,
            surfaces.get(t + 1),
            evidence_at,
            prior,
            problem,
            fitter.statistic,
            t,
            memory[t - 1],
            _going_on(lengths, t),
        )
        surfaces[t], minimum = fitted.result()
        if progress is not None:
            progress(problem.horizon - t, problem.horizon - 1)
    return [surfaces[t] for t in steps]


def statistic_of(evidence: NDArray[Any], belief: Floats, statistic: Statistic, memory: Any = None) -> Floats:
    """What surfaces are functions of, from evidence (n, K), its posterior (n, K) and summaries (n, M) -> (n, p)."""
    if statistic == "memory":
        return np.concatenate([belief, memory], axis=-1)
    return belief if statistic == "posterior" else log_likelihood_ratios(evidence)


def expected_minimum(surface: RiskSurface, statistic: Floats, belief: Floats, problem: DecisionProblem) -> Floats:
    """The minimum risk to expect one step later, never below what knowing the class would leave.  -> (n, C)."""
    return np.maximum(surface(statistic), problem.least_risk(belief)[:, None])


def _going_on(lengths: Ints | None, t: int) -> Any:
    """Which sequences have more than t observations, as an index."""
    return slice(None) if lengths is None else np.flatnonzero(lengths > t)


def _prepare(
    fitter: SurfaceFitter,
    evidence_at: Callable[[int], NDArray[Any]],
    prior: Floats,
    t: int,
    memory: Summaries | None,
    going_on: Any,
) -> PreparedFit:
    evidence = check_step_evidence(evidence_at(t), len(prior))[going_on]
    past = None if memory is None else memory[going_on]
    return fitter.prepare(statistic_of(evidence, posterior(evidence, prior), fitter.statistic, past))


def _fit(
    prepared: PreparedFit,
    next_minimum: Floats,
    later: RiskSurface | None,
    evidence_at: Callable[[int], NDArray[Any]],
    prior: Floats,
    problem: DecisionProblem,
    statistic: Statistic,
    t: int,
    memory: Summaries | None,
    going_on: Any,
) -> tuple[RiskSurface, Floats]:
    """One backward step: the surface at t, and the minimum risk (n, C) of every sequence at t."""
    surface = prepared.fit(next_minimum[going_on], later)
    evidence = evidence_at(t)
    belief = posterior(evidence, prior)
    known = statistic_of(evidence, belief, statistic, memory)
    continuation = expected_minimum(surface, known, belief, problem) + problem.next_cost(t)
    stopping = problem.stopping_risk(belief)[:, None]
    if isinstance(going_on, slice):
        return surface, np.minimum(stopping, continuation)
    minimum = np.repeat(stopping, continuation.shape[1], axis=1)
    minimum[going_on] = np.minimum(minimum[going_on], continuation[going_on])
    return surface, minimum
