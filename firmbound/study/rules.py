"""This project's stopping rules as entrants of a study: on evidence as it is, refined, or of another classifier."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firmbound.arrays import Floats
from firmbound.baselines.probability_threshold import PosteriorModel
from firmbound.baselines.rival import OperatingPoint, at_decision, ends_of, evidence_of, features_of, picked
from firmbound.continuation.surface import Statistic
from firmbound.costs import DecisionProblem
from firmbound.fitting import Method, Options, fit_from_slices, make_fitter
from firmbound.oracle import Oracle
from firmbound.posterior import posterior
from firmbound.refinement.cross_fitting import fit_refiner
from firmbound.refinement.options import RefinementOptions
from firmbound.refinement.refiner import Refiner
from firmbound.refinement.sureness import temperature_at_decisions
from firmbound.stopping_rule import StoppingRule
from firmbound.study.contest import Contest
from firmbound.trajectories import Batch

# Beliefs of classifiers may be 0 where nothing is impossible.
LEAST = 1e-7


@dataclass(frozen=True)
class FittedRule:
    """A point a cost of its front."""

    rule: StoppingRule
    refiner: Refiner | None = None

    def points(self, test: Batch, only: int | None = None) -> list[OperatingPoint]:
        evidence = evidence_of(test) if self.refiner is None else refined(self.refiner, test)
        found = []
        for cost in picked(self.rule.costs.tolist(), only):
            chosen = self.rule.decide(evidence, cost=cost, lengths=ends_of(test, evidence.shape[1]))
            belief = posterior(at_decision(evidence, chosen), self.rule.prior)
            found.append(OperatingPoint(float(cost), chosen, belief))
        return found


@dataclass(frozen=True)
class RuleOnBeliefs:
    """A rule that takes another classifier's posteriors for evidence."""

    model: PosteriorModel
    rule: FittedRule

    def points(self, test: Batch, only: int | None = None) -> list[OperatingPoint]:
        return self.rule.points(as_evidence(self.model, test, self.rule.rule.prior), only)


@dataclass(frozen=True)
class OptimumEntrant:
    """The exact optimum, where there is one: it decides on exact evidence."""

    oracle: Oracle
    prior: Floats

    def points(self, test: Batch, only: int | None = None) -> list[OperatingPoint]:
        evidence, found = evidence_of(test), []
        for cost in picked(self.oracle.problem.costs.tolist(), only):
            chosen = self.oracle.decide(evidence, cost=cost)
            found.append(OperatingPoint(float(cost), chosen, posterior(at_decision(evidence, chosen), self.prior)))
        return found


def fit_rule(
    contest: Contest, method: Method, options: Options | None = None, *, statistic: Statistic | None = None
) -> FittedRule:
    """Backward induction on the contest's evidence as it is."""
    lesson = contest.lesson
    return FittedRule(_induced(contest, lesson, evidence_of(lesson), method, options, statistic))


def fit_refined_rule(
    contest: Contest,
    method: Method,
    options: Options | None = None,
    *,
    refinement: RefinementOptions | None = None,
    statistic: Statistic | None = None,
) -> FittedRule:
    """Refined evidence, as sure as decisions let it be, and a rule on it, all from what rules are fitted on.

    How sure it may be is judged on validation sequences if a network knows the training ones, as the pipeline does.
    """
    lesson, held_out = contest.lesson, contest.validation
    ends = ends_of(lesson, contest.problem.horizon)
    chosen = refinement or RefinementOptions()
    refiner, honest = fit_refiner(
        evidence_of(lesson),
        lesson.labels,
        lengths=ends,
        features=features_of(lesson) if chosen.inputs == "features" else None,
        options=chosen,
    )
    first = _induced(contest, lesson, honest, method, options, statistic)
    if contest.known and contest.fit_on == "train":
        judging, by = refined(refiner, held_out), held_out
    else:
        judging, by = honest, lesson
    temperature = temperature_at_decisions(first, judging, by.labels, ends_of(by, contest.problem.horizon))
    if temperature > 1.0:
        refiner, honest = refiner.cooled(temperature), honest / np.float32(temperature)
        first = _induced(contest, lesson, honest, method, options, statistic)
    return FittedRule(first, refiner)


def refined(refiner: Refiner, batch: Batch) -> NDArray[np.float32]:
    """(n, T, K) refined evidence, by what the refiner remembers: evidence, or features too."""
    return refiner.refine(evidence_of(batch), features_of(batch) if refiner.hears_features else None)


def fit_rule_on_beliefs(
    contest: Contest, model: PosteriorModel, method: Method, options: Options | None = None
) -> RuleOnBeliefs:
    """A rule on posteriors of validation sequences: of those that it learned from, a classifier is too sure."""
    lesson = as_evidence(model, contest.validation, contest.prior)
    rule = _induced(contest, lesson, evidence_of(lesson), method, options, None)
    return RuleOnBeliefs(model, FittedRule(rule))


def fit_refined_rule_on_beliefs(
    contest: Contest, model: PosteriorModel, method: Method, options: Options | None = None
) -> RuleOnBeliefs:
    """The same with beliefs refined first: a rule stops where it is told to be sure, so it needs to be told rightly."""
    believed = as_evidence(model, contest.validation, contest.prior)
    return RuleOnBeliefs(
        model, fit_refined_rule(replace(contest, validation=believed, fit_on="validation"), method, options)
    )


def as_evidence(model: PosteriorModel, batch: Batch, prior: Floats) -> Batch:
    """The same sequences with evidence that says what the classifier believes."""
    believed = np.log(np.maximum(model.posteriors(batch), LEAST)) - np.log(prior)
    return replace(batch, features=None, evidence=believed.astype(np.float32))


def _induced(
    contest: Contest,
    lesson: Batch,
    evidence: NDArray[Any],
    method: Method,
    options: Options | None,
    statistic: Statistic | None,
) -> StoppingRule:
    problem: DecisionProblem = contest.problem
    fitter = make_fitter(method, problem, contest.prior, options, seed=contest.seed, statistic=statistic)
    return fit_from_slices(lambda t: evidence[:, t - 1], contest.prior, problem, fitter, lengths=lesson.lengths)
