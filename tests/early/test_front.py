"""Records: what is saved of decisions, and what is refused."""

import numpy as np
import pytest

import firmbound
from firmbound.early.front import Record
from firmbound.evaluation.score import score

COSTS = [0.1, 0.5]
MATRIX = [[0.0, 4.0, 9.0], [2.0, 0.0, 3.0], [10.0, 1.0, 0.0]]


@pytest.fixture(scope="module")
def judged():
    train, fresh = (firmbound.datasets.gaussian(3, 2_000, 5, seed, dimension=3, separation=0.8) for seed in (1, 2))
    options = firmbound.ConvexOptions(points=30)
    rule = firmbound.fit_stopping_rule(train.evidence, costs=COSTS, penalty=MATRIX, options=options)
    return rule, fresh, Record.of(rule, fresh.evidence, truth=fresh.labels)


def test_points_are_the_scores_of_the_same_decisions(judged):
    """Also where a penalty depends on truth and decision, which a confidence does not tell."""
    rule, fresh, record = judged
    for point in record.points(rule):
        found = score(
            rule.decide(fresh.evidence, cost=point.cost),
            evidence=fresh.evidence,
            labels=fresh.labels,
            prior=rule.prior,
            problem=rule.problem,
            cost=point.cost,
        )
        assert (point.risk, point.risk_error) == (found.realised_risk, found.realised_risk_error)
        assert (point.believed_risk, point.believed_risk_error) == (found.aapr, found.aapr_error)
        assert (point.risk_gap, point.risk_gap_error) == (found.risk_gap, found.risk_gap_error)
        assert point.alarm is None  # exact evidence


def test_an_overconfident_rule_says_so(judged):
    rule, fresh, _ = judged
    points = Record.of(rule, 3 * fresh.evidence, truth=fresh.labels).points(rule)
    assert [point.alarm for point in points] == ["overconfident"] * 2


def test_an_older_record_knows_what_was_paid_alone(judged):
    rule, _, record = judged
    arrays = record.arrays()
    saved = Record.from_arrays(arrays)
    assert saved.points(rule) == record.points(rule)
    assert saved.row(1).believed.shape == (1, record.sequences)
    del arrays["believed"]
    for older, point in zip(Record.from_arrays(arrays).points(rule), record.points(rule), strict=True):
        assert (older.risk, older.error) == (point.risk, point.error)
        assert older.believed_risk is older.risk_gap is older.alarm is None
    assert Record.from_arrays(arrays).row(0).believed is None


@pytest.mark.parametrize("spoilt", [np.full((2, 2_000), np.nan), np.zeros((2, 3)), np.zeros(2_000)])
def test_spoilt_beliefs_are_refused(judged, spoilt):
    arrays = judged[2].arrays() | {"believed": spoilt}
    with pytest.raises(ValueError, match="its record holds"):
        Record.from_arrays(arrays)
