"""Our rules as entrants; every group of methods enters a real contest and comes out with decisions."""

from dataclasses import replace

import numpy as np
import pytest

import firmbound
from firmbound.baselines.training import RivalTraining
from firmbound.evaluation.risk import realised_risk
from firmbound.study.field import FieldOptions, _believer, groups
from firmbound.study.learned_evidence import TandemOptions
from firmbound.study.rules import (
    as_evidence,
    fit_refined_rule,
    fit_refined_rule_on_beliefs,
    fit_rule,
    fit_rule_on_beliefs,
)
from firmbound.tandem.options import NetworkOptions, TrainingOptions
from tests.study.conftest import COSTS

OPTIONS = FieldOptions(
    RivalTraining(epochs=4, learning_rate=0.01),
    thresholds=12,
    units=8,
    hidden=8,
    channels=8,
    kernels=84,
    tandem=TandemOptions(NetworkOptions(order=0, projection=8, hidden=8), TrainingOptions(epochs=3)),
)
EXPECTED = {
    "thresholds": {"static", "static-in-hindsight", "posterior-threshold", "tapering", "fixed", "random"},
    "cfl": {"firmbound-cfl"},
    "gp": {"firmbound-gp"},
    "refined": {"firmbound-refined", "firmbound-memory"},
    "tandem": {"tandem-static", "tandem-threshold", "tandem-firmbound", "tandem-refined"},
    "gru": {"gru-threshold", "gru-firmbound", "gru-refined"},
    "minirocket": {"minirocket-threshold", "minirocket-firmbound", "minirocket-refined"},
    "lstm-s": {"lstm-s"},
    "lstm-m": {"lstm-m"},
    "earliest": {"earliest"},
    "tcn-transformer": {"tcn-transformer"},
    "calimera": {"calimera"},
}


class Believer:
    """A classifier whose beliefs are the exact posteriors."""

    def posteriors(self, batch):
        odds = batch.evidence - batch.evidence.max(axis=2, keepdims=True)
        return (np.exp(odds) / np.exp(odds).sum(axis=2, keepdims=True)).astype(np.float32)


class Sure:
    """A classifier that takes every observation for two."""

    def posteriors(self, batch):
        return Believer().posteriors(replace(batch, evidence=2 * batch.evidence))


def test_an_entered_rule_is_the_rule_that_one_fits(contest):
    rule = firmbound.fit_stopping_rule(contest.train.evidence, costs=COSTS, penalty=10.0)
    for point in fit_rule(contest, "cfl").points(contest.test):
        made = rule.decide(contest.test.evidence, cost=point.setting)
        assert np.array_equal(point.decisions.time, made.time)
        assert np.array_equal(point.decisions.label, made.label)


def test_a_refined_rule_decides_on_refined_evidence(contest):
    fitted = fit_refined_rule(contest, "cfl")
    refined = fitted.refiner.refine(contest.test.evidence)
    for point in fitted.points(contest.test):
        assert np.array_equal(point.decisions.time, fitted.rule.decide(refined, cost=point.setting).time)


def test_a_rule_on_exact_beliefs_decides_like_one_on_exact_evidence(contest):
    fitted = fit_rule_on_beliefs(contest, Believer(), "cfl")
    exact = firmbound.fit_stopping_rule(contest.validation.evidence, costs=COSTS, penalty=10.0)
    for point in fitted.points(contest.test):
        same = point.decisions.time == exact.decide(contest.test.evidence, cost=point.setting).time
        assert same.mean() > 0.97


def test_beliefs_that_are_too_sure_are_refined_before_a_rule_stops_by_them(contest):
    """Twice as sure as the evidence allows: the plain rule stops too early, the refined one pays less."""
    sure = Sure()
    plain, better = (
        np.mean(
            [realised_risk(one.decisions, contest.test.labels, contest.problem, one.setting).mean() for one in points]
        )
        for points in (
            fit(contest, sure, "cfl").points(contest.test) for fit in (fit_rule_on_beliefs, fit_refined_rule_on_beliefs)
        )
    )
    assert better < plain


def test_beliefs_become_evidence_and_back(contest):
    prior = np.array([0.3, 0.7])
    made = as_evidence(Believer(), contest.test, prior).evidence
    again = np.exp(made) * prior
    assert again / again.sum(axis=2, keepdims=True) == pytest.approx(Believer().posteriors(contest.test), abs=1e-5)


def test_without_features_only_rules_on_evidence_take_part(contest):
    bare = replace(contest, test=replace(contest.test, features=None))
    assert set(groups(bare, OPTIONS)) == {"thresholds", "cfl", "gp", "refined"}


@pytest.mark.parametrize("group", EXPECTED)
def test_every_group_enters_and_decides(contest, group):
    found = groups(contest, OPTIONS)[group](contest)
    assert set(found) == EXPECTED[group]
    for outcome in found.values():
        assert outcome.time.shape == outcome.label.shape == (len(outcome.settings), len(contest.test.labels))
        assert outcome.time.min() >= 1
        assert outcome.time.max() <= 12
        assert np.isfinite(outcome.expected).all()
        assert len(outcome.alone) == 40


def test_three_ways_on_the_same_beliefs_ask_for_them_once(contest):
    asked = []

    class Counting(Believer):
        def fit(self, train, validation, *, seed):
            return self

        def posteriors(self, batch):
            asked.append(batch)
            return super().posteriors(batch)

    found = _believer(contest, "x", Counting(), OPTIONS)
    assert set(found) == {"x-threshold", "x-firmbound", "x-refined"}
    for whole in (contest.validation, contest.test):
        assert sum(batch is whole for batch in asked) == 1
    # Sequences one at a time, for latencies, are computed each time.
    assert sum(len(batch.labels) == 1 for batch in asked) == 3 * 40


def test_the_optimum_takes_part_where_there_is_one(contest):
    source = firmbound.datasets.gaussian(2, 600, 12, seed=1, dimension=3, separation=1.2)
    oracle = firmbound.solve_gaussian(source, costs=COSTS, penalty=10.0)
    found = groups(contest, OPTIONS, lambda: oracle)["optimum"](contest)["optimum"]
    assert np.array_equal(found.settings, COSTS)
