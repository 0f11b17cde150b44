"""What a study says, on outcomes whose answer is known."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from firmbound.costs import DecisionProblem
from firmbound.evaluation.estimates import mean_of
from firmbound.study.contest import Outcome
from firmbound.study.findings import (
    beside_static,
    cheaper_rivals,
    errors_at_same_times,
    errors_at_shares,
    paid_differences,
    pooled_curve,
    ranking,
    rivals_ahead,
    time_variances,
    variance_chance,
    variance_ratios,
)
from firmbound.study.repeats import Repeat, having, methods_of, over_repeats, two_sided

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


def without(one, method):
    """The same repeat, in which a method did not take part."""
    return replace(one, outcomes={name: out for name, out in one.outcomes.items() if name != method})


def test_methods_are_compared_on_repeats_in_which_both_took_part():
    every = repeats(datasets=("a",), count=4)
    some = [every[0], *(without(one, "rival") for one in every[1:])]
    rows = {(row["rival"], row["cost"]): row for row in paid_differences(some, "firmbound-cfl")}
    first = {(row["rival"], row["cost"]): row for row in paid_differences(every[:1], "firmbound-cfl")}
    assert rows["rival", 0.1]["difference"] == pytest.approx(first["rival", 0.1]["difference"])
    assert rows["static", 0.1]["difference_error"] < first["static", 0.1]["difference_error"]
    assert methods_of(some) == ["firmbound-cfl", "rival", "static"]
    assert having(some, "rival") == some[:1]


def test_rivals_that_missed_repeats_are_ranked_and_drawn_by_those_they_have():
    every = repeats(count=3)
    some = [one if one.repeat == 0 else without(one, "rival") for one in every]
    alone = [one for one in every if one.repeat == 0]
    assert np.array_equal(ranking(some).ranks, ranking(alone).ranks)
    assert pooled_curve(some[:3], "rival").value == pytest.approx(pooled_curve(alone[:1], "rival").value)


def test_errors_are_told_at_shares_of_the_horizon():
    early, *rest = errors_at_shares(repeats(datasets=("a",)), "firmbound-cfl")
    assert early is None  # the first way looks at five observations, a fifth of twenty are four
    # Ways at means of 5 and 12: at 8 a coin of 3/7, from 12 on the later one.
    assert rest == pytest.approx([0.2 - 3 / 7 * 0.15, 0.05, 0.05], abs=0.015)


def test_beside_static_both_risks_are_told_with_their_errors():
    every = repeats(datasets=("a",))
    rows = beside_static(every, "firmbound-cfl")
    assert [row["static"] for row in rows] == ["static", "static"]  # in hindsight nobody took part
    # The ways that paid least before: at a cost of 0.1 those around 12 and 14, at 0.5 those around 5 and 3.
    for row, ours, static in zip(rows, (1, 0), (3, 0), strict=True):
        times = [(one.outcomes["firmbound-cfl"].time[ours], one.outcomes["static"].time[static]) for one in every]
        # All believe to risk 0.5: what differs is what was spent.
        assert row["believed"] == pytest.approx(row["cost"] * np.mean([a.mean() - b.mean() for a, b in times]))
        wrong = [(one.outcomes["static"].label[static] != one.labels).mean() for one in every]
        spent = row["cost"] * np.mean([b.mean() for _, b in times])
        assert row["static_paid"] == pytest.approx(10 * np.mean(wrong) + spent)
        assert row["paid_error"] > 0


def test_errors_are_compared_at_the_times_of_whoever_has_fewer_ways():
    one = repeats(datasets=("a",), count=2)
    dense, sparse = (errors_at_same_times(name, one, "firmbound-cfl") for name in ("static", "rival"))
    assert [round(row["time"]) for row in dense] == [5, 12]  # ours
    assert [row["ours"] for row in dense] == pytest.approx([0.2, 0.05], abs=0.02)
    assert [row["rival"] for row in dense] == pytest.approx([0.3 - 2 / 3 * 0.05, 0.1], abs=0.02)
    assert [round(row["time"]) for row in sparse] == [8]  # theirs
    assert sparse[0]["ours"] == pytest.approx(0.2 - 3 / 7 * 0.15, abs=0.02)
    assert sparse[0]["rival"] == pytest.approx(0.3, abs=0.02)
    swapped = errors_at_same_times("firmbound-cfl", one, "static")
    assert [row["ours"] - row["rival"] for row in swapped] == pytest.approx(
        [row["rival"] - row["ours"] for row in dense]
    )
    assert errors_at_same_times("nobody", one, "firmbound-cfl") == []


def test_chances_are_even_where_there_is_nothing_and_sure_where_all_differ_alike():
    random = np.random.default_rng(0)
    found = [two_sided(mean_of(random.standard_normal(200))) for _ in range(400)]
    assert stats.kstest(found, "uniform").pvalue > 0.001
    assert two_sided(mean_of(np.zeros(10))) == 1.0
    assert two_sided(mean_of(np.ones(10))) == 0.0
