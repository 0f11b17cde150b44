import numpy as np
import pytest
from sklearn.metrics import recall_score

from firmbound import DecisionProblem, Decisions, InvalidInput
from firmbound.evaluation.boundary import continuation_interval
from firmbound.evaluation.estimates import mean_of, relative_excess
from firmbound.evaluation.hitting_time import mean_time, time_variance
from firmbound.evaluation.risk import believed_risk, realised_risk
from firmbound.evaluation.score import score
from firmbound.evaluation.speed_accuracy import accuracy, earliness, harmonic_mean, macro_error
from firmbound.posterior import class_prior
from tests.conftest import COSTS

DECISIONS = Decisions(np.array([1, 3, 2]), np.array([0, 1, 1]), 4)
LABELS = np.array([0, 0, 1])
MATRIX = np.array([[0.0, 3.0], [7.0, 0.0]])
PROBLEM = DecisionProblem.create(classes=2, horizon=4, penalty=MATRIX, costs=[0.5], delay=[1.0, 2.0, 3.0, 4.0])


def test_realised_risk_is_the_penalty_of_what_happened_plus_what_was_spent():
    assert realised_risk(DECISIONS, LABELS, PROBLEM, 0.5).tolist() == [0.5, 3.0 + 3.0, 1.5]


def test_believed_risk_is_the_expected_penalty_plus_what_was_spent():
    evidence = np.zeros((3, 4, 2))
    evidence[0, 0] = [np.log(3), 0.0]  # 3/4 for class 0, decided for 0 at t = 1
    evidence[1, 2] = [np.log(3), 0.0]  # 3/4 for class 0, decided for 1 at t = 3
    risk = believed_risk(DECISIONS, evidence, class_prior(None, 2), PROBLEM, 0.5)
    assert risk == pytest.approx([0.25 * 7 + 0.5, 0.75 * 3 + 3.0, 0.5 * 3 + 1.5])


def test_believed_and_realised_risk_agree_on_calibrated_evidence(two_classes, two_class_rule):
    chosen = two_class_rule.decide(two_classes.evidence, cost=COSTS[0])
    believed = believed_risk(chosen, two_classes.evidence, two_class_rule.prior, two_class_rule.problem, COSTS[0])
    realised = realised_risk(chosen, two_classes.labels, two_class_rule.problem, COSTS[0])
    difference = mean_of(realised - believed)
    assert abs(difference.value) < 4 * difference.standard_error


def test_macro_error_is_one_minus_macro_recall(random):
    labels, said = random.integers(0, 4, 500), random.integers(0, 4, 500)
    labels[labels == 2] = 3  # a class that does not occur
    decisions = Decisions(np.ones(500, int), said, 5)
    found = macro_error(decisions, labels, 4)
    present = [0, 1, 3]
    assert found.value == pytest.approx(1 - recall_score(labels, said, labels=present, average="macro"))


def test_standard_errors_cover_what_repetition_shows(random):
    means, errors = [], []
    for _ in range(400):
        labels = random.choice(3, 300, p=[0.6, 0.3, 0.1])
        said = np.where(random.random(300) < 0.8, labels, (labels + 1) % 3)
        found = macro_error(Decisions(np.ones(300, int), said, 2), labels, 3)
        means.append(found.value)
        errors.append(found.standard_error)
    assert np.mean(errors) == pytest.approx(np.std(means), rel=0.15)
    variances = [time_variance(Decisions(random.integers(1, 20, 300), np.zeros(300), 20)) for _ in range(400)]
    assert np.mean([v.standard_error for v in variances]) == pytest.approx(
        np.std([v.value for v in variances]), rel=0.15
    )


def test_relative_excess_is_paired(random):
    base = random.exponential(1.0, 5_000)
    found = relative_excess(1.01 * base, base)
    assert found.value == pytest.approx(0.01)
    assert found.standard_error < 1e-12
    with pytest.raises(InvalidInput, match="pair"):
        relative_excess(base, base[:-1])


def test_times_and_the_fields_summaries():
    assert mean_time(DECISIONS).value == 2.0
    assert time_variance(DECISIONS).value == 1.0
    assert earliness(DECISIONS) == 0.5
    assert accuracy(DECISIONS, LABELS) == pytest.approx(2 / 3)
    assert harmonic_mean(DECISIONS, LABELS) == pytest.approx(2 * (2 / 3) * 0.5 / (2 / 3 + 0.5))
    last = Decisions(np.array([4]), np.array([1]), 4)
    assert harmonic_mean(last, np.array([0])) == 0.0


def test_a_score_holds_all_measures(two_classes, two_class_rule):
    chosen = two_class_rule.decide(two_classes.evidence, cost=COSTS[1])
    found = score(
        chosen,
        evidence=two_classes.evidence,
        labels=two_classes.labels,
        prior=two_class_rule.prior,
        problem=two_class_rule.problem,
        cost=COSTS[1],
    )
    assert found.mean_time == chosen.time.mean()
    assert found.error_rate == macro_error(chosen, two_classes.labels, 2).value
    assert found.realised_risk == realised_risk(chosen, two_classes.labels, two_class_rule.problem, COSTS[1]).mean()
    assert found.risk_gap == pytest.approx(found.realised_risk - found.aapr)
    assert 0 < found.risk_gap_error < found.realised_risk_error + found.aapr_error
    assert found.as_dict()["cost"] == COSTS[1]


def test_the_boundary_is_where_decisions_change(two_class_rule, two_class_process):
    for rule in (two_class_rule, two_class_process, two_class_process.with_confidence(0.99)):
        for t, (low, high) in enumerate(continuation_interval(rule, COSTS[0]), start=1):
            assert low < 0 < high
            for ratio, decided in ((low - 0.05, True), (low + 0.05, False), (high - 0.05, False), (high + 0.05, True)):
                evidence = np.array([[-ratio / 2, ratio / 2]])
                assert rule.outlook(evidence, t=t, cost=COSTS[0]).decided[0] == decided


def test_the_boundary_narrows_towards_the_horizon_and_needs_two_classes(two_class_rule, three_class_rule):
    width = np.diff(continuation_interval(two_class_rule, COSTS[0]), axis=1)[:, 0]
    assert width[-1] < 0.7 * width[3]
    with pytest.raises(InvalidInput, match="2 classes"):
        continuation_interval(three_class_rule, COSTS[0])


def test_no_samples_are_refused():
    with pytest.raises(InvalidInput, match="n >= 1"):
        mean_of(np.empty(0))
