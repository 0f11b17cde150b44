"""The calibration alarm: silent where beliefs are honest, however few sequences there are; loud where they are not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import firmbound
from firmbound import DecisionProblem, Decisions, InvalidInput
from firmbound.evaluation.risk_gap import SURE, RiskGap, in_words, risk_gap
from firmbound.evaluation.score import score

PROBLEM = DecisionProblem.create(classes=2, horizon=4, penalty=[[0.0, 3.0], [7.0, 0.0]], costs=[0.5])
DECISIONS = Decisions(np.array([1, 3, 2, 4]), np.array([0, 1, 1, 0]), 4)
LABELS = np.array([0, 0, 1, 1])
COSTS = [0.02, 0.3]


def test_the_gap_is_the_mean_of_paired_differences():
    """Paid: 0.5, 3 + 1.5, 1, 7 + 2."""
    believed = np.array([1.5, 2.0, 1.25, 4.0])
    found = risk_gap(DECISIONS, believed, LABELS, PROBLEM, 0.5)
    difference = np.array([-1.0, 2.5, -0.25, 5.0])
    assert found.value == pytest.approx(difference.mean())
    assert found.standard_error == pytest.approx(difference.std(ddof=1) / 2)
    assert found.realised == pytest.approx(15 / 4)
    expected = believed - 0.5 * DECISIONS.time  # of 7 for deciding 0 wrongly, of 3 for deciding 1 wrongly
    share = expected / np.array([7.0, 3.0, 3.0, 7.0])
    variance = np.array([49.0, 9.0, 9.0, 49.0]) * share * (1 - share)
    assert found.chance == pytest.approx(np.sqrt(variance.sum()) / 4)
    with pytest.raises(InvalidInput, match="one risk a decision"):
        risk_gap(DECISIONS, believed[:3], LABELS, PROBLEM, 0.5)


def test_beliefs_without_any_doubt_that_are_right_raise_nothing():
    sure = 0.5 * DECISIONS.time
    found = risk_gap(DECISIONS, sure, DECISIONS.label, PROBLEM, 0.5)
    assert (found.value, found.standard_error, found.chance) == (0.0, 0.0, 0.0)
    assert found.alarm() is None
    one = Decisions(np.array([1]), np.array([0]), 4)  # of one sequence nothing is known
    assert risk_gap(one, np.array([0.5]), np.array([1]), PROBLEM, 0.5).alarm() is None


@given(st.floats(-2, 2), st.floats(0, 1), st.floats(0, 1), st.floats(0.1, 5), st.floats(0.01, 1))
def test_an_alarm_is_beyond_chance_and_large_enough(value, error, chance, realised, limit):
    found = RiskGap(value, error, chance, realised).alarm(limit)
    sure = abs(value) > SURE * error and abs(value) > SURE * chance
    assert (found is not None) == (sure and abs(value) > limit * realised)
    if found is not None:
        assert found == ("overconfident" if value > 0 else "underconfident")


def alarms_of(rule, problem, temperature=1.0):
    """At every cost, of evidence as sharp as the temperature makes it."""
    evidence = problem.evidence / temperature
    for cost in rule.costs.tolist():
        yield score(
            rule.decide(evidence, cost=cost),
            evidence=evidence,
            labels=problem.labels,
            prior=rule.prior,
            problem=rule.problem,
            cost=cost,
        ).gap.alarm()


@pytest.fixture(scope="module")
def honest_rule():
    train = firmbound.datasets.gaussian(2, 6_000, 8, 1, dimension=2, separation=0.8)
    return firmbound.fit_stopping_rule(train.evidence, costs=COSTS)


@pytest.mark.parametrize("sequences", [10, 100, 1_000])
def test_honest_beliefs_raise_no_alarm(honest_rule, sequences):
    """Also where so few sequences hold no error at all, and their own spread would tell of none."""
    rung = 0
    for seed in range(100):
        fresh = firmbound.datasets.gaussian(2, sequences, 8, 100 + seed, dimension=2, separation=0.8)
        rung += sum(found is not None for found in alarms_of(honest_rule, fresh))
    assert rung <= 2  # of 200; three in a thousand are expected


def test_scaled_evidence_is_found_out_either_way(honest_rule):
    fresh = firmbound.datasets.gaussian(2, 20_000, 8, 9, dimension=2, separation=0.8)
    assert set(alarms_of(honest_rule, fresh, 0.5)) == {"overconfident"}
    assert set(alarms_of(honest_rule, fresh, 2.0)) == {"underconfident"}


def test_made_up_evidence_is_found_out():
    train, fresh = (firmbound.datasets.oscillating(count, 20, seed) for count, seed in ((5_000, 1), (2_000, 2)))
    rule = firmbound.fit_stopping_rule(train.evidence, costs=[0.05, 0.5])
    assert list(alarms_of(rule, fresh)) == ["overconfident", "overconfident"]


def test_words_hold_both_risks():
    assert in_words(0.02, 1.6816, 3.3093, 0.0216) == "at a cost of 0.02 it believes 1.682 and pays 3.309 ± 0.022"
