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
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firmbound.arrays import Floats, Ints
from firmbound.continuation.surface import PreparedFit, RiskSurface, Statistic, SurfaceFitter
from firmbound.costs import DecisionProblem
from firmbound.memory import Summaries, remember
from firmbound.posterior import log_likelihood_ratios, posterior, ranked
from firmbound.schedule import Handle, InOrder, Schedule
from firmbound.steps import InMemory, Place, Step, Steps
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
    steps: Steps | None = None,
    progress: Progress | None = None,
) -> list[RiskSurface]:
    """Continuation-risk surfaces of t = 1..T-1, without the cost of the next observation, in units of the scale.

    `evidence_at(t)` gives the (n, K) evidence after t observations, t in 1..T, so that it may come from memory or disk.
    `lengths` (n,) says where sequences end, if not all at T; at least one goes on to T. `steps` may hold finished ones.
    """
    run, kept, horizon = schedule or InOrder(), steps or InMemory(), problem.horizon
    surfaces: dict[int, RiskSurface | None] = {}
    later: Step | None = None
    while len(surfaces) < horizon - 1 and (found := kept.find(horizon - 1 - len(surfaces))) is not None:
        surfaces[horizon - 1 - len(surfaces)], later = found.surface, found
    if later is not None and not later.minimum.is_there():  # a later step was damaged: nothing can be built on these
        surfaces, later = {}, None
    missing = range(horizon - 1 - len(surfaces), 0, -1)
    material = _material(evidence_at, prior, problem, fitter, lengths, kept) if missing else None
    prepared: dict[int, Handle[PreparedFit]] = {
        t: run.submit(f"prepare t={t}", _prepare, material, fitter, t) for t in reversed(missing)
    }
    later = later or Step(None, kept.lay(f"minimum-{horizon}", _last_minimum(evidence_at, prior, problem)))
    for t in missing:
        later = run.submit(f"fit t={t}", _fit, prepared.pop(t), later, material, kept, t).result()
        kept.forget_minimum(t + 1)
        surfaces[t] = later.surface
        if progress is not None:
            progress(horizon - t, horizon - 1)
    return [surface for t in range(1, horizon) if (surface := surfaces[t]) is not None]


@dataclass(frozen=True)
class Material:
    """What every step reads. lengths: where sequences end; memory: for each t, their past, if it matters."""

    evidence_at: Callable[[int], NDArray[Any]]
    prior: Floats
    problem: DecisionProblem
    statistic: Statistic
    lengths: Place | None
    memory: list[Place] | None

    def past(self, t: int) -> Summaries | None:
        return None if self.memory is None else self.memory[t - 1].read()

    def going_on(self, t: int) -> Any:
        """Which sequences have more than t observations, as an index."""
        return slice(None) if self.lengths is None else np.flatnonzero(self.lengths.read() > t)


def _material(
    evidence_at: Callable[[int], NDArray[Any]],
    prior: Floats,
    problem: DecisionProblem,
    fitter: SurfaceFitter,
    lengths: Ints | None,
    steps: Steps,
) -> Material:
    ends = None if lengths is None else steps.lay("lengths", lengths)
    memory = None
    if fitter.statistic == "memory":
        pasts = remember(evidence_at, problem.horizon - 1, problem.classes)
        memory = [steps.lay(f"memory-{t}", past) for t, past in enumerate(pasts, start=1)]
    return Material(evidence_at, prior, problem, fitter.statistic, ends, memory)


def _last_minimum(evidence_at: Callable[[int], NDArray[Any]], prior: Floats, problem: DecisionProblem) -> Floats:
    """(n, C) at the horizon, where there is nothing but to stop."""
    final = check_step_evidence(evidence_at(problem.horizon), problem.classes)
    stopping = problem.stopping_risk(posterior(final, prior))
    return np.asfortranarray(np.repeat(stopping[:, None], len(problem.costs), axis=1))


def statistic_of(evidence: NDArray[Any], belief: Floats, statistic: Statistic, memory: Any = None) -> Floats:
    """What surfaces are functions of, from evidence (n, K), its posterior (n, K) and summaries (n, M) -> (n, p)."""
    if statistic == "memory":
        return np.concatenate([belief, memory], axis=-1)
    if statistic == "ranked":
        return ranked(belief)
    return belief if statistic == "posterior" else log_likelihood_ratios(evidence)


def expected_minimum(surface: RiskSurface, statistic: Floats, belief: Floats, problem: DecisionProblem) -> Floats:
    """The minimum risk to expect one step later, never below what knowing the class would leave.  -> (n, C)."""
    return np.maximum(surface(statistic), problem.least_risk(belief)[:, None])


def _prepare(material: Material, fitter: SurfaceFitter, t: int) -> PreparedFit:
    going_on, past = material.going_on(t), material.past(t)
    evidence = check_step_evidence(material.evidence_at(t), len(material.prior))[going_on]
    belief = posterior(evidence, material.prior)
    return fitter.prepare(statistic_of(evidence, belief, fitter.statistic, None if past is None else past[going_on]))


def _fit(prepared: PreparedFit, later: Step, material: Material, steps: Steps, t: int) -> Step:
    """One backward step: the surface at t, and the minimum risk (n, C) of every sequence at t."""
    problem, going_on = material.problem, material.going_on(t)
    surface = prepared.fit(later.minimum.read()[going_on], later.surface)
    evidence = material.evidence_at(t)
    belief = posterior(evidence, material.prior)
    known = statistic_of(evidence, belief, material.statistic, material.past(t))
    continuation = expected_minimum(surface, known, belief, problem) + problem.next_cost(t)
    stopping = problem.stopping_risk(belief)[:, None]
    if isinstance(going_on, slice):
        return steps.keep(t, surface, np.minimum(stopping, continuation))
    minimum = np.repeat(stopping, continuation.shape[1], axis=1)
    minimum[going_on] = np.minimum(minimum[going_on], continuation[going_on])
    return steps.keep(t, surface, minimum)
