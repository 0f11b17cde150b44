"""Where decisions cost more than believed, evidence is cooled until they do not; honest evidence is left alone."""

import numpy as np
import pytest

import firmbound
from firmbound.evaluation.risk import believed_risk, realised_risk
from firmbound.refinement.sureness import HIGHEST, temperature_at_decisions

COSTS = [0.02, 0.1]


@pytest.fixture(scope="module")
def honest():
    return firmbound.datasets.gaussian(2, 4_000, seed=4)


def gap(rule, evidence, labels):
    return sum(
        float(
            (
                realised_risk(one, labels, rule.problem, c) - believed_risk(one, evidence, rule.prior, rule.problem, c)
            ).mean()
        )
        for c in COSTS
        for one in [rule.decide(evidence, cost=c)]
    )


def test_exact_evidence_is_left_as_it_is(honest):
    rule = firmbound.fit_stopping_rule(honest.evidence, costs=COSTS)
    ends = np.full(len(honest.labels), honest.horizon)
    assert temperature_at_decisions(rule, honest.evidence, honest.labels, ends) == 1.0


def test_evidence_that_is_too_modest_is_left_too(honest):
    rule = firmbound.fit_stopping_rule(honest.evidence / 2, costs=COSTS)
    ends = np.full(len(honest.labels), honest.horizon)
    assert temperature_at_decisions(rule, honest.evidence / 2, honest.labels, ends) == 1.0


def test_evidence_that_is_too_sure_is_cooled_until_decisions_cost_what_is_believed(honest):
    sure = honest.evidence * 1.4
    rule = firmbound.fit_stopping_rule(sure, costs=COSTS)
    ends = np.full(len(honest.labels), honest.horizon)
    found = temperature_at_decisions(rule, sure, honest.labels, ends)
    assert 1.15 < found < HIGHEST
    again = firmbound.fit_stopping_rule(sure / found, costs=COSTS)
    assert abs(gap(again, sure / found, honest.labels)) < 0.3 * gap(rule, sure, honest.labels)


def test_there_is_a_highest_temperature(honest):
    sure, rule = honest.evidence * 9, firmbound.fit_stopping_rule(honest.evidence * 9, costs=COSTS)
    ends = np.full(len(honest.labels), honest.horizon)
    assert temperature_at_decisions(rule, sure, honest.labels, ends) == HIGHEST


def test_a_cooled_refiner_says_the_same_with_less_certainty():
    seen = firmbound.datasets.oscillating(400, seed=1)
    refiner, _ = firmbound.fit_refiner(seen.evidence, seen.labels)
    cold = refiner.cooled(1.5)
    assert cold.refine(seen.evidence) == pytest.approx(refiner.refine(seen.evidence) / 1.5, rel=1e-4, abs=1e-4)
    assert cold.cooled(1 / 1.5).scales == pytest.approx(refiner.scales)


@pytest.mark.parametrize("prior", [[0.8, 0.2], [0.05, 0.95]])
def test_a_prior_unlike_the_shares_is_no_overconfidence(honest, prior):
    rule = firmbound.fit_stopping_rule(honest.evidence, costs=COSTS, prior=prior)
    ends = np.full(len(honest.labels), honest.horizon)
    assert temperature_at_decisions(rule, honest.evidence, honest.labels, ends) < 1.1
