"""What the report's page is made from: numbers as they were found, few of them, safe in HTML."""

import json
import math
from itertools import pairwise

import numpy as np
import pytest

import firmbound
from firmbound.evaluation.boundary import continuation_interval
from firmbound.posterior import posterior
from firmbound.report.overview import overview_of
from firmbound.report.page_data import (
    MOST_BARS,
    MOST_SEQUENCES,
    MOST_STEPS,
    SUREST,
    as_json,
    boundaries,
    class_names,
    front,
    honest_curves,
    sequences,
)
from firmbound.trajectories import Batch
from tests.conftest import COSTS
from tests.test_report import HONESTY, rows_of


def with_optimum(rows):
    """As if the optimum were known: it does what the rule does."""
    best = [row | {"method": "optimum", "bayes_risk": 0.5} for row in rows if row["method"] == "firmbound"]
    return [*rows, *best]


def facts_at(rule, rows, cost, *, refined=False):
    return {fact.name: fact for fact in overview_of(rule, rows, refined=refined)[sorted(COSTS).index(cost)]}


def test_the_overview_answers_five_questions(two_class_rule, two_classes):
    rows = with_optimum(rows_of(two_class_rule, two_classes))
    ours = next(row for row in rows if row["method"] == "firmbound" and row["cost"] == 0.3)
    found = facts_at(two_class_rule, rows, 0.3)
    assert list(found) == ["rule", "early", "wrong", "paid", "distance"]
    assert (found["rule"].value, found["rule"].note) == ("Convex functions", "on plain evidence")
    assert found["early"].value == f"{ours['mean_time']:.1f} of 12"
    assert found["wrong"].value == f"{100 * ours['error_rate']:.2f} %"
    assert found["distance"].title == "How far from the optimum"
    assert found["distance"].value == "0.120 %"
    assert found["distance"].note == "above the least possible risk, 0.500"
    assert facts_at(two_class_rule, rows, 0.3, refined=True)["rule"].note == "on refined evidence"


def test_where_the_optimum_is_unknown_the_best_threshold_is_the_measure(two_class_process, two_classes):
    rows = rows_of(two_class_process, two_classes)
    ours, static = (
        next(row for row in rows if row["cost"] == 0.05 and row["method"] == method and row.get("chosen", True))
        for method in ("firmbound", "static")
    )
    for paid, words in ((1.1, "10.0 % more"), (0.8, "20.0 % less")):
        ours["realised_risk"] = paid * static["realised_risk"]
        assert facts_at(two_class_process, rows, 0.05)["distance"].value == words
    static["realised_risk"] = 0.0
    assert facts_at(two_class_process, rows, 0.05)["distance"].value == "unknown"
    assert facts_at(two_class_process, rows, 0.05)["rule"].value == "Gaussian processes"
    ours["alarm"] = "overconfident"
    assert facts_at(two_class_process, rows, 0.05)["paid"].note.endswith(": overconfident")
    sure = two_class_process.with_confidence(0.9)
    assert facts_at(sure, rows, 0.05)["rule"].note.endswith("stops when 90 % sure that it should")


def test_a_front_holds_the_rows_of_its_cost(two_class_rule, two_classes):
    rows = with_optimum(rows_of(two_class_rule, two_classes))
    found = front(rows, 0.05)
    for name, method in (("ours", "firmbound"), ("optimum", "optimum")):
        row = next(row for row in rows if row["method"] == method and row["cost"] == 0.05)
        assert found[name]["time"] == pytest.approx(row["mean_time"], rel=1e-6)
        assert found[name]["realised"] == pytest.approx(row["realised_risk"], rel=1e-6)
        assert found[name]["believed_se"] == pytest.approx(row["aapr_error"], rel=1e-6)
        shares = [share for _, _, share in found[name]["times"]]
        assert shares == pytest.approx(np.array(row["time_counts"]) / np.sum(row["time_counts"]))
    assert len(found["static"]) == 1  # neither the chosen one nor the one that believes most
    assert found["best"]["threshold"] == 1.0
    assert front(rows_of(two_class_rule, two_classes), 0.05)["optimum"] is None


def test_long_horizons_are_cut_to_what_can_be_seen(two_class_rule, two_classes):
    rows = rows_of(two_class_rule, two_classes)
    ours = next(row for row in rows if row["method"] == "firmbound")
    ours["time_counts"] = np.arange(1_003).tolist()
    bars = front(rows, ours["cost"])["ours"]["times"]
    assert len(bars) <= MOST_BARS
    assert bars[0][0] == 1
    assert bars[-1][1] == 1_003
    assert sum(share for _, _, share in bars) == pytest.approx(1.0)
    assert all(before[1] + 1 == after[0] for before, after in pairwise(bars))
    steps = {name: [0.5] * 5_000 for name in ("error", "chance", "negative_log_likelihood")}
    assert len(honest_curves(HONESTY | steps)["steps"]) <= MOST_STEPS
    many = Batch(two_classes.labels, 2, evidence=two_classes.evidence)
    assert len(sequences(two_class_rule, many, COSTS)) == MOST_SEQUENCES


@pytest.mark.parametrize("name", ["two", "three"])
def test_sequences_are_decided_as_the_rule_decides(request, name):
    rule, problem = request.getfixturevalue(f"{name}_class_rule"), request.getfixturevalue(f"{name}_classes")
    ends = np.random.default_rng(0).integers(1, rule.problem.horizon + 1, size=20)
    batch = Batch(problem.labels[:20], rule.problem.classes, evidence=problem.evidence[:20], lengths=ends)
    found = sequences(rule, batch, sorted(COSTS))
    for place, cost in enumerate(sorted(COSTS)):
        decisions = rule.decide(batch.evidence, cost=cost, lengths=ends)
        assert [one["times"][place] for one in found] == decisions.time.tolist()
        assert [one["said"][place] for one in found] == decisions.label.tolist()
    for one, end, evidence in zip(found, ends, batch.evidence, strict=True):
        assert len(one["path"]) == max(one["times"]) <= end
        belief = posterior(evidence[: len(one["path"])], rule.prior)
        if name == "two":
            shown = np.diff(evidence[: len(one["path"])], axis=1)[:, 0]
        else:
            assert one["leaders"] == belief.argmax(axis=1).tolist()
            shown = np.log(belief.max(axis=1) / (1 - belief.max(axis=1)))
        np.testing.assert_allclose(one["path"], shown, atol=0.006)


def test_beliefs_beyond_all_doubt_stay_finite(three_class_rule):
    evidence = np.zeros((1, 8, 3))
    evidence[..., 1] = 900.0
    (found,) = sequences(three_class_rule, Batch(np.array([1]), 3, evidence=evidence), COSTS)
    assert found["path"] == [SUREST]


def test_the_boundary_is_the_rules_own(two_class_rule, three_class_rule):
    optimal = [[None, None], *[[-1.0, 1.0]] * 10]
    found = boundaries(two_class_rule, 0.05, optimal)
    times, low, high = zip(*found["fitted"], strict=True)
    assert times == tuple(range(1, 12))
    expected = continuation_interval(two_class_rule, 0.05)
    np.testing.assert_allclose(np.array([low, high], dtype=float).T, expected, rtol=1e-6)
    assert found["optimal"][:2] == [[1, None, None], [2, -1.0, 1.0]]
    assert boundaries(two_class_rule, 0.05, None)["optimal"] is None
    assert boundaries(three_class_rule, 0.05, None) is None
    past = firmbound.datasets.oscillating(1_000, 12, seed=3)
    assert boundaries(firmbound.fit_stopping_rule(past.evidence, costs=[0.2], statistic="memory"), 0.2, None) is None


def test_json_cannot_leave_its_element_and_knows_no_infinity():
    names = ["</script><b>", "<!--", "a & b", "\u2028"]
    text = as_json({"classes": names})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text)["classes"] == names
    with pytest.raises(ValueError, match="JSON compliant"):
        as_json({"risk": math.nan})


def test_numbers_that_are_none_become_nothing(two_class_rule, two_classes):
    rows = [
        row | {"aapr_error": math.inf, "error_rate_error": math.nan} for row in rows_of(two_class_rule, two_classes)
    ]
    found = front(rows, 0.05)
    assert found["ours"]["believed_se"] is None
    assert found["ours"]["error_se"] is None
    as_json(found)
    curves = honest_curves(HONESTY | {"error": [math.nan], "limit": 0.05})
    assert curves["steps"][0]["error"] is None
    assert curves["steps"][0]["limit"] == pytest.approx(0.06)


def test_classes_have_the_names_of_their_data_set(two_class_rule):
    assert class_names(two_class_rule, ()) == ["class 0", "class 1"]
    assert class_names(two_class_rule, ("no", 7)) == ["no", "7"]
