"""Outcomes hold what methods decided; ways are chosen by validation sequences alone."""

from dataclasses import replace

import numpy as np
import pytest

from firmbound.baselines.static_threshold import StaticSprt, sweep
from firmbound.evaluation.risk import believed_risk, realised_risk
from firmbound.study.contest import Outcome, chosen_ways, enter, in_hindsight, outcome_of
from firmbound.study.rules import fit_rule
from firmbound.study.table import paid, rows_of


@pytest.fixture(scope="module")
def static(contest):
    return enter(StaticSprt(contest.prior, 25), contest)


def test_an_outcome_holds_every_decision(contest, static):
    for place, threshold in enumerate(static.settings):
        made = sweep(contest.test.evidence, [threshold])[0]
        assert np.array_equal(static.time[place], made.time)
        assert np.array_equal(static.label[place], made.label)


def test_ways_are_chosen_by_what_validation_sequences_paid(contest, static):
    costs = contest.problem.costs.tolist()
    for index, cost in enumerate(costs):
        on_validation = [
            realised_risk(made, contest.validation.labels, contest.problem, cost).mean()
            for made in sweep(contest.validation.evidence, static.settings)
        ]
        assert static.paid_before[:, index] == pytest.approx(on_validation)
        assert chosen_ways(static, costs)[index] == int(np.argmin(on_validation))


def test_the_rule_of_a_cost_is_that_cost_s(contest):
    fitted = fit_rule(contest, "cfl")
    assert chosen_ways(outcome_of(fitted, contest, 0.0), contest.problem.costs.tolist()) == [0, 1, 2]


def test_hindsight_is_never_dearer(contest, static):
    best = in_hindsight(static, contest)
    for cost, mine, hindsight in zip(
        contest.problem.costs.tolist(), *(chosen_ways(one, [1, 2, 3]) for one in (static, best)), strict=True
    ):
        told, known = (
            paid(static, way, contest.test.labels, contest.problem, cost).mean() for way in (mine, hindsight)
        )
        assert known <= told


def test_labels_of_test_sequences_change_no_choice(contest, static):
    other = replace(contest, test=replace(contest.test, labels=1 - contest.test.labels))
    again = enter(StaticSprt(contest.prior, 25), other)
    assert np.array_equal(again.paid_before, static.paid_before)
    assert np.array_equal(again.time, static.time)


def test_rows_say_what_was_paid_and_believed(contest, static):
    rows = rows_of(static, contest.test.labels, contest.problem, method="static")
    assert len(rows) == len(static.settings) * 3
    assert sum(row["chosen"] for row in rows) == 3
    for row in rows[::7]:
        place = static.settings.tolist().index(row["setting"])
        made, cost = static.decisions(place), row["cost"]
        exact = realised_risk(made, contest.test.labels, contest.problem, cost)
        believed = believed_risk(made, contest.test.evidence, contest.prior, contest.problem, cost)
        assert row["realised_risk"] == pytest.approx(exact.mean())
        assert row["aapr"] == pytest.approx(believed.mean(), rel=1e-5)
        assert row["average_cost"] == pytest.approx(exact.mean() / 10)
        assert paid(static, place, contest.test.labels, contest.problem, cost) == pytest.approx(exact)


def test_saved_is_loaded(static):
    again = Outcome.from_arrays(static.arrays())
    for name, part in static.arrays().items():
        assert np.array_equal(again.arrays()[name], part)
