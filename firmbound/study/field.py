"""Who takes part: groups of methods that share what they learn, each by name, from what a data set has.

A group is the unit that a study which was killed goes on with.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firmbound.baselines.calimera import Calimera
from firmbound.baselines.fixed_time import FixedTime, RandomTime
from firmbound.baselines.minirocket import MiniRocketRidge
from firmbound.baselines.probability_threshold import (
    COUNT,
    PosteriorLearner,
    PosteriorModel,
    ProbabilityThreshold,
    ThresholdOn,
    threshold_grid,
)
from firmbound.baselines.rival import FittedRival, ends_of, evidence_of
from firmbound.baselines.static_threshold import StaticSprt
from firmbound.baselines.tapering import TaperingThreshold
from firmbound.baselines.training import RivalTraining
from firmbound.continuation.convex import ConvexOptions
from firmbound.continuation.gaussian_process import ProcessOptions
from firmbound.continuation.surface import Statistic
from firmbound.fitting import Method, Options
from firmbound.oracle import Oracle
from firmbound.posterior import posterior
from firmbound.refinement.options import RefinementOptions
from firmbound.study.contest import Contest, Outcome, enter, in_hindsight, outcome_of
from firmbound.study.learned_evidence import TandemOptions, on_learned_evidence
from firmbound.study.rival_spaces import RIVALS, make_gru, make_rival
from firmbound.study.rules import (
    OptimumEntrant,
    fit_refined_rule,
    fit_refined_rule_on_beliefs,
    fit_rule,
    fit_rule_on_beliefs,
)
from firmbound.trajectories import Batch

# A rival deserves its best form: on a coarse grid static thresholds look worse than they are.
STATIC_THRESHOLDS = 200
Group = Callable[[Contest], dict[str, Outcome]]


@dataclass(frozen=True)
class FieldOptions:
    """training: of the rivals' networks. thresholds: of each sweep. convex, process: options of our own rules.

    method: of our rules wherever one stands for both. tandem: of the network that learns evidence where exact evidence
    is given, so that estimated evidence is seen beside it; None: nowhere. tuned: of rivals whose options were searched,
    what was found.
    """

    training: RivalTraining
    thresholds: int = COUNT
    units: int = 128
    hidden: int = 64
    channels: int = 64
    kernels: int = 2_500
    convex: ConvexOptions | None = None
    process: ProcessOptions | None = None
    method: Method = "cfl"
    tandem: TandemOptions | None = None
    refinement: RefinementOptions | None = None
    tuned: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def own(self) -> Options | None:
        return self.convex if self.method == "cfl" else self.process


def groups(contest: Contest, options: FieldOptions, optimum: Callable[[], Oracle] | None = None) -> dict[str, Group]:
    """All groups that this data set has what it takes for. optimum: finds the exact one."""
    found: dict[str, Group] = {}
    if contest.test.evidence is not None:
        found |= {
            "thresholds": lambda one: _thresholds(one, options),
            "cfl": lambda one: {"firmbound-cfl": _rule(one, lambda: fit_rule(one, "cfl", options.convex))},
            "gp": lambda one: {"firmbound-gp": _rule(one, lambda: fit_rule(one, "gp", options.process))},
            "refined": lambda one: _refined(one, options),
        }
    if contest.test.features is not None and not contest.learned and options.tandem is not None:
        found["tandem"] = lambda one: _tandem(one, options)
    if contest.test.features is not None:
        found |= {
            "gru": lambda one: _believer(one, "gru", make_gru(options.tuned.get("gru", {}), options), options),
            "minirocket": lambda one: _believer(one, "minirocket", MiniRocketRidge(options.kernels, first=1), options),
            "calimera": lambda one: {"calimera": enter(Calimera(kernels=options.kernels), one)},
        }
        found |= {name: _network(name, options) for name in RIVALS if name != "gru"}
    if optimum is not None:
        found["optimum"] = lambda one: {"optimum": _timed(one, lambda: OptimumEntrant(optimum(), one.prior))}
    return found


def _network(name: str, options: FieldOptions) -> Group:
    rival = make_rival(name, options.tuned.get(name, {}), options)
    return lambda contest: {name: enter(rival, contest)}


def _thresholds(contest: Contest, options: FieldOptions) -> dict[str, Outcome]:
    """All that decide on the contest's evidence without backward induction."""
    prior, learned = contest.prior, contest.evidence_seconds
    static = _static(contest, options)
    return {
        "static": static,
        "static-in-hindsight": in_hindsight(static, contest),
        "posterior-threshold": _posterior_threshold(contest, options),
        "tapering": enter(TaperingThreshold(prior), contest, learned),
        "fixed": enter(FixedTime(prior), contest, learned),
        "random": enter(RandomTime(prior), contest, learned),
    }


def _tandem(contest: Contest, options: FieldOptions) -> dict[str, Outcome]:
    """Estimated evidence where exact evidence is known: what the estimate costs, and whether rules bear it."""
    assert options.tandem is not None  # there is no such group otherwise
    learned = on_learned_evidence(contest, options.tandem)
    return {
        "tandem-static": _static(learned, options),
        "tandem-threshold": _posterior_threshold(learned, options),
        "tandem-firmbound": _rule(learned, lambda: fit_rule(learned, options.method, options.own)),
        "tandem-refined": _rule(learned, lambda: fit_refined_rule(learned, options.method, options.own)),
    }


def _static(contest: Contest, options: FieldOptions) -> Outcome:
    sprt = StaticSprt(contest.prior, max(options.thresholds, STATIC_THRESHOLDS))
    return enter(sprt, contest, contest.evidence_seconds)


def _posterior_threshold(contest: Contest, options: FieldOptions) -> Outcome:
    rival = ThresholdOn(_EvidencePosteriors(contest), options.thresholds)
    return enter(rival, contest, contest.evidence_seconds)


def _refined(contest: Contest, options: FieldOptions) -> dict[str, Outcome]:
    def fit(statistic: Statistic | None) -> FittedRival:
        return fit_refined_rule(
            contest, options.method, options.own, refinement=options.refinement, statistic=statistic
        )

    return {
        "firmbound-refined": _rule(contest, lambda: fit(None)),
        "firmbound-memory": _rule(contest, lambda: fit("memory")),
    }


def _believer(contest: Contest, name: str, learner: PosteriorLearner, options: FieldOptions) -> dict[str, Outcome]:
    """A classifier with a threshold on its posterior; the same posteriors under our rule, as they are and refined."""
    started = time.perf_counter()
    fitted = learner.fit(contest.train, contest.validation, seed=contest.seed)
    believed = fitted.posteriors(contest.validation)
    learned = time.perf_counter() - started
    model = RememberedBeliefs(fitted, ((contest.validation, believed), (contest.test, fitted.posteriors(contest.test))))
    grid = threshold_grid(believed, ends_of(contest.validation, believed.shape[1]), options.thresholds)
    return {
        f"{name}-threshold": outcome_of(ProbabilityThreshold(model, grid), contest, learned),
        f"{name}-firmbound": _timed(
            contest, lambda: fit_rule_on_beliefs(contest, model, options.method, options.own), learned
        ),
        f"{name}-refined": _timed(
            contest, lambda: fit_refined_rule_on_beliefs(contest, model, options.method, options.own), learned
        ),
    }


def _rule(contest: Contest, fit: Callable[[], FittedRival]) -> Outcome:
    """A rule on the contest's evidence, whose learning is part of what it took."""
    return _timed(contest, fit, contest.evidence_seconds)


def _timed(contest: Contest, fit: Callable[[], FittedRival], before: float = 0.0) -> Outcome:
    started = time.perf_counter()
    fitted = fit()
    return outcome_of(fitted, contest, before + time.perf_counter() - started)


@dataclass(frozen=True)
class RememberedBeliefs:
    """A classifier whose posteriors of some batches are known already: three ways to decide ask for the same ones."""

    model: PosteriorModel
    known: tuple[tuple[Batch, NDArray[np.float32]], ...]

    def posteriors(self, batch: Batch) -> NDArray[np.float32]:
        for one, believed in self.known:
            if one is batch:
                return believed
        return self.model.posteriors(batch)


@dataclass(frozen=True)
class _EvidencePosteriors:
    """The contest's evidence as the beliefs of a classifier that has learned already."""

    contest: Contest

    def fit(self, train: Batch, validation: Batch, *, seed: int) -> PosteriorModel:
        return self

    def posteriors(self, batch: Batch) -> NDArray[np.float32]:
        evidence = evidence_of(batch)
        flat = posterior(evidence.reshape(-1, evidence.shape[2]), self.contest.prior)
        return flat.reshape(evidence.shape).astype(np.float32)
