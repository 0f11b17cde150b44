"""What a study says, on outcomes whose answer is known."""

import numpy as np
import pytest

from firmbound.costs import DecisionProblem
from firmbound.study.contest import Outcome
from firmbound.study.findings import (
    cheaper_rivals,
    paid_differences,
    pooled_curve,
    ranking,
    rivals_ahead,
    time_variances,
    variance_chance,
    variance_ratios,
)
from firmbound.study.repeats import Repeat, over_repeats

PROBLEM = DecisionProblem.create(classes=2, horizon=20, penalty=10.0, costs=[0.1, 0.5])


def outcome(random, labels, times, errors, spread=2.0):
    """Ways that stop around `times` with a share of errors each."""
    time = np.stack([np.clip(np.round(random.normal(t, spread, len(labels))), 1, 20) for t in times]).astype(np.int16)
    wrong = np.stack([random.random(len(labels)) < e for e in errors])
    label = np.where(wrong, 1 - labels, labels).astype(np.int16)
    paid = np.array([[10 * e + c * t for c in PROBLEM.costs] for t, e in zip(times, errors, strict=True)])
    numbers = np.arange(len(times), dtype=float)
    return Outcome(numbers, time, label, np.full(time.shape, 0.5, np.float32), paid, 1.0, np.ones(3), np.ones(3), 20)


def repeats(rival_error=0.3, spread=4.0, datasets=("a", "b"), count=3, same=False):
    found = []
    for place, dataset in enumerate(datasets):
        for repeat in range(count):
            random = np.random.default_rng((place, 0 if same else repeat))
            labels = np.arange(3_000) % 2
            ours = outcome(random, labels, [5, 12], [0.2, 0.05])
            static = outcome(random, labels, [3, 6, 10, 14], [0.3, 0.25, 0.15, 0.05], spread)
            rival = outcome(random, labels, [8], [rival_error])
            methods = {"firmbound-cfl": ours, "static": static, "rival": rival}
            rows = np.arange(3_000) + (0 if same else 10_000 * repeat)
            found.append(Repeat(dataset, repeat, labels, rows, PROBLEM, methods))
    return found


def test_a_rival_that_is_ahead_is_named_and_one_behind_is_not():
    ahead = rivals_ahead(repeats(rival_error=0.05), "firmbound-cfl")
    assert {(row["dataset"], row["method"]) for row in ahead if row["method"] == "rival"} == {
        ("a", "rival"),
        ("b", "rival"),
    }
    assert all(row["ours"] > row["rival"] for row in ahead)
    assert not [row for row in rivals_ahead(repeats(rival_error=0.3), "firmbound-cfl") if row["method"] == "rival"]


def test_a_rival_that_waits_longer_is_compared_with_our_latest_rule():
    late = [
        Repeat(
            one.dataset, one.repeat, one.labels, one.rows, PROBLEM, {**one.outcomes, "rival": late_rival(one, error)}
        )
        for one, error in ((one, 0.01) for one in repeats())
    ]
    found = [row for row in rivals_ahead(late, "firmbound-cfl") if row["method"] == "rival"]
    assert [row["dataset"] for row in found] == ["a", "b"]
    assert found[0]["ours"] == pytest.approx(0.05, abs=0.01)


def late_rival(one, error):
    return outcome(np.random.default_rng(one.repeat), one.labels, [18], [error])


def test_differences_are_of_pairs_and_corrected():
    rows = paid_differences(repeats(), "firmbound-cfl")
    assert {row["rival"] for row in rows} == {"static", "rival"}
    for row in rows:
        assert row["corrected"] >= row["chance"]
    worse = [row for row in rows if row["rival"] == "rival"]
    assert all(row["difference"] < 0 and row["corrected"] < 1e-6 for row in worse)
    # At a cost of 0.1 we pay 0.5 + 1.2 with our better way and the rival 3 + 0.8.
    first = next(row for row in worse if row["cost"] == 0.1)
    assert first["difference"] == pytest.approx(1.7 - 3.8, abs=0.15)
    assert first["rival_risk"] == pytest.approx(3.8, abs=0.1)


def test_a_cheaper_rival_is_named_and_our_own_rules_are_none():
    rows = paid_differences(repeats(rival_error=0.0), "firmbound-cfl")
    found = cheaper_rivals(rows)
    assert {row["rival"] for row in found} == {"rival"}
    assert not cheaper_rivals([row | {"rival": "firmbound-gp"} for row in found])


def test_the_same_sequences_in_every_repeat_count_once():
    """Three copies of one repeat prove no more than the one."""
    single, copies = (paid_differences(repeats(count=count, same=True), "firmbound-cfl") for count in (1, 3))
    for one, three in zip(single, copies, strict=True):
        assert three["difference_error"] == pytest.approx(one["difference_error"])
        assert three["chance"] == pytest.approx(one["chance"])


def test_repeats_that_differ_more_than_sequences_say_set_the_error():
    apart = [np.full(100, 1.0), np.full(100, 2.0), np.full(100, 3.0)]
    rows = [np.arange(100) + 100 * place for place in range(3)]
    found = over_repeats(apart, rows)
    assert found.value == pytest.approx(2.0)
    assert found.standard_error == pytest.approx(1 / np.sqrt(3))


def test_variances_are_compared_at_the_same_mean_time():
    rows = time_variances(repeats(), "firmbound-cfl")
    assert len(rows) == 2 * 3 * 2
    for row in rows:
        assert row["ours"] == pytest.approx(4, rel=0.25)
        assert row["static"] > 8
    assert len(variance_ratios(rows)) == 6  # two data sets, three repeats: costs of a repeat are no repeats
    assert variance_chance(rows) == pytest.approx(2**-6)
    assert variance_chance([row | {"ours": row["static"], "static": row["ours"]} for row in rows]) > 0.99
    assert variance_chance([]) == 1.0


def test_curves_of_repeats_are_averaged():
    some = repeats(datasets=("a",))
    curve = pooled_curve(some, "firmbound-cfl")
    assert curve.value == pytest.approx([0.2, 0.05], abs=0.02)


def test_ranks_need_two_data_sets_and_three_methods():
    found = ranking(repeats())
    assert found.names[int(np.argmin(found.ranks))] == "firmbound-cfl"
    assert ranking(repeats(datasets=("a",))) is None
    two = [
        Repeat(r.dataset, r.repeat, r.labels, r.rows, PROBLEM, {k: v for k, v in r.outcomes.items() if k != "rival"})
        for r in repeats()
    ]
    assert ranking(two) is None
