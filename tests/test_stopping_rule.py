import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import firmbound
from firmbound import InvalidInput, StoppingRule, fit_stopping_rule
from firmbound.bundle import write_bundle
from firmbound.continuation.affine import MinAffineSurface
from firmbound.continuation.pruning import prune
from firmbound.errors import BundleError
from tests.conftest import COSTS, RULES


def fresh_evidence(rule, sequences, seed):
    """Of the problem that the fixtures' rules were fitted on."""
    classes, horizon = rule.problem.classes, rule.problem.horizon
    return firmbound.datasets.gaussian(classes, sequences, horizon, seed, dimension=3, separation=0.8).evidence


@pytest.mark.parametrize("rule_name", RULES)
@pytest.mark.parametrize("cost", COSTS)
def test_the_fitted_rule_is_close_to_the_exact_optimum(request, rule_name, cost):
    rule = request.getfixturevalue(rule_name)
    classes, horizon = rule.problem.classes, rule.problem.horizon
    fresh = firmbound.datasets.gaussian(classes, 20_000, horizon, seed=99, dimension=3, separation=0.8)
    oracle = firmbound.solve_gaussian(fresh, costs=COSTS, penalty=10.0)
    regret = oracle.regret(fresh.evidence, rule.decide(fresh.evidence, cost=cost), cost=cost).mean()
    assert regret / oracle.bayes_risk[COSTS.index(cost)] < (0.004 if classes == 2 else 0.01)


@pytest.mark.parametrize("rule_name", RULES)
@pytest.mark.parametrize("cost", COSTS)
def test_one_sequence_at_a_time_is_the_same_decision(request, rule_name, cost):
    rule = request.getfixturevalue(rule_name)
    fresh = fresh_evidence(rule, 200, seed=6)
    for t in range(1, rule.problem.horizon + 1):
        outlook = rule.outlook(fresh[:, t - 1], t=t, cost=cost)
        steps = [rule.step(row, t=t, cost=cost) for row in fresh[:, t - 1]]
        assert [step.decided for step in steps] == outlook.decided.tolist()
        assert [step.label for step in steps] == outlook.label.tolist()
        assert [step.continuation_risk for step in steps] == pytest.approx(outlook.continuation_risk, abs=1e-12)
        assert [step.stopping_risk for step in steps] == pytest.approx(outlook.stopping_risk, abs=1e-12)
        assert all(step.time == t for step in steps)


def test_pruned_surfaces_decide_the_same(three_class_rule, random):
    """Mixtures of two pieces show nowhere: with or without them, decisions on new sequences are the same."""
    fresh = firmbound.datasets.gaussian(3, 2_000, three_class_rule.problem.horizon, seed=2, dimension=3).evidence
    padded, pruned = [], []
    for surface in three_class_rule.surfaces:
        more, fewer = [], []
        for index in range(len(COSTS)):
            one = surface.select(index)
            slopes, offsets, other = one.slopes, one.offsets, random.permutation(len(one.offsets))
            slopes = np.vstack([slopes, (slopes + slopes[other]) / 2])
            offsets = np.append(offsets, (offsets + offsets[other]) / 2 + 1e-6)
            more.append((slopes, offsets))
            fewer.append(prune(slopes, offsets, random.dirichlet(np.ones(3), 300)))
        padded.append(MinAffineSurface.from_pieces(more, surface.quality))
        pruned.append(MinAffineSurface.from_pieces(fewer, surface.quality))
    rules = [replace(three_class_rule, surfaces=surfaces) for surfaces in (padded, pruned)]
    assert sum(len(s.offsets) for s in pruned) <= 0.5 * sum(len(s.offsets) for s in padded) + 5
    for cost in COSTS:
        one, other = (rule.decide(fresh, cost=cost) for rule in rules)
        assert np.array_equal(one.time, other.time)
        assert np.array_equal(one.label, other.label)


@pytest.mark.parametrize(("evidence", "t"), [([0.0], 1), ([0.0, np.nan], 1), ([0.0, 0.0], 0), ([0.0, 0.0], 99)])
def test_a_bad_step_is_refused(two_class_rule, evidence, t):
    with pytest.raises(InvalidInput):
        two_class_rule.step(evidence, t=t, cost=COSTS[0])


@pytest.mark.parametrize("rule_name", RULES)
@pytest.mark.parametrize("cost", COSTS)
def test_step_by_step_equals_whole_sequences(request, rule_name, cost):
    """Streaming is the definition, batch the fast path."""
    rule = request.getfixturevalue(rule_name)
    fresh = fresh_evidence(rule, 300, seed=5)
    chosen = rule.decide(fresh, cost=cost)
    for index, sequence in enumerate(fresh):
        for t in range(1, rule.problem.horizon + 1):
            outlook = rule.outlook(sequence[t - 1][None], t=t, cost=cost)
            if outlook.decided[0]:
                break
        assert (t, outlook.label[0]) == (chosen.time[index], chosen.label[index])


@settings(max_examples=5)
@given(st.floats(1e-3, 1e4))
def test_decisions_do_not_change_when_penalty_and_costs_are_scaled(factor):
    problem = firmbound.datasets.gaussian(classes=2, sequences=1_500, horizon=6, dimension=2, separation=0.8, seed=1)
    costs = np.array([0.1, 0.3])
    one = fit_stopping_rule(problem.evidence, costs=costs, penalty=10.0)
    other = fit_stopping_rule(problem.evidence, costs=costs * factor, penalty=10.0 * factor)
    for cost in costs:
        first, second = one.decide(problem.evidence, cost=cost), other.decide(problem.evidence, cost=cost * factor)
        assert np.array_equal(first.time, second.time)
        assert np.array_equal(first.label, second.label)
    evidence = problem.evidence[:, 2]
    ratio = other.continuation_risk(evidence, t=3, cost=0.1 * factor) / one.continuation_risk(evidence, t=3, cost=0.1)
    assert np.allclose(ratio, factor)


@pytest.mark.parametrize("rule_name", RULES)
def test_saved_equals_loaded(request, rule_name, tmp_path):
    rule = request.getfixturevalue(rule_name)
    rule.save(tmp_path / "rule")
    again = StoppingRule.load(tmp_path / "rule")
    fresh = firmbound.datasets.gaussian(rule.problem.classes, 500, rule.problem.horizon, seed=3, dimension=3).evidence
    for cost in COSTS:
        assert np.array_equal(rule.decide(fresh, cost=cost).time, again.decide(fresh, cost=cost).time)
        for t in (1, rule.problem.horizon - 1):
            one = rule.continuation_risk(fresh[:, t - 1], t=t, cost=cost)
            assert np.array_equal(one, again.continuation_risk(fresh[:, t - 1], t=t, cost=cost))
            single = [each.outlook(fresh[:1, t - 1], t=t, cost=cost).deviation for each in (rule, again)]
            assert np.array_equal(*single, equal_nan=True)
    assert np.array_equal(
        rule.outlook(fresh[:, 0], t=1, cost=COSTS[0]).deviation,
        again.outlook(fresh[:, 0], t=1, cost=COSTS[0]).deviation,
        equal_nan=True,
    )
    again.save(tmp_path / "copy")
    for name in ("header.json", "arrays.safetensors"):
        assert (tmp_path / "rule" / name).read_bytes() == (tmp_path / "copy" / name).read_bytes()


@pytest.mark.parametrize("rule_name", ["two_class_rule", "two_class_process"])
def test_dearer_observations_mean_earlier_decisions(request, rule_name, two_classes):
    rule = request.getfixturevalue(rule_name)
    cheap, dear = (rule.decide(two_classes.evidence, cost=cost).time.mean() for cost in COSTS)
    assert dear < cheap


@pytest.mark.parametrize("rule_name", ["two_class_rule", "two_class_process"])
def test_certain_sequences_are_decided_at_once_even_where_no_training_sequence_was(request, rule_name):
    certain = np.array([[0.0, 60.0], [60.0, 0.0]])
    outlook = request.getfixturevalue(rule_name).outlook(certain, t=1, cost=COSTS[0])
    assert outlook.decided.all()
    assert outlook.label.tolist() == [1, 0]
    assert np.all(outlook.continuation_risk >= 0)


@pytest.mark.parametrize("method", ["cfl", "gp"])
class TestWhatUsersMayVary:
    def test_a_prior_moves_decisions_towards_the_likely_class(self, method, two_classes):
        evidence = two_classes.evidence
        even = fit_stopping_rule(evidence, costs=[0.3], method=method)
        skewed = fit_stopping_rule(evidence, costs=[0.3], prior=[0.1, 0.9], method=method)
        assert skewed.decide(evidence).label.mean() > even.decide(evidence).label.mean() + 0.1

    def test_a_prior_keeps_the_rule_near_the_optimum(self, method):
        skewed = {"dimension": 3, "separation": 0.8, "prior": [0.03, 0.97]}
        train, fresh = (firmbound.datasets.gaussian(2, 20_000, 12, seed, **skewed) for seed in (1, 2))
        rule = fit_stopping_rule(train.evidence, costs=[0.02], prior=[0.03, 0.97], method=method)
        oracle = firmbound.solve_gaussian(fresh, costs=[0.02])
        regret = oracle.regret(fresh.evidence, rule.decide(fresh.evidence), cost=0.02).mean()
        assert regret / oracle.bayes_risk[0] < 0.01

    def test_a_dear_wrong_decision_is_taken_less_often(self, method, two_classes):
        evidence = two_classes.evidence
        fair = fit_stopping_rule(evidence, costs=[0.3], penalty=10.0, method=method).decide(evidence).label.mean()
        matrix = np.array([[0.0, 10.0], [2.0, 0.0]])  # saying 1 when it is 0 costs five times the other error
        rule = fit_stopping_rule(evidence, costs=[0.3], penalty=matrix, method=method)
        assert rule.decide(evidence).label.mean() < fair - 0.05

    def test_a_right_decision_may_cost_something_too(self, method):
        problem = {"dimension": 3, "separation": 0.8}
        train, fresh = (firmbound.datasets.gaussian(2, 20_000, 12, seed, **problem) for seed in (1, 2))
        matrix = np.array([[1.0, 10.0], [6.0, 3.0]])
        rule = fit_stopping_rule(train.evidence, costs=[0.05], penalty=matrix, method=method)
        oracle = firmbound.solve_gaussian(fresh, costs=[0.05], penalty=matrix)
        regret = oracle.regret(fresh.evidence, rule.decide(fresh.evidence), cost=0.05).mean()
        assert regret / oracle.bayes_risk[0] < 0.002

    def test_late_observations_that_cost_more_close_the_window(self, method, two_classes):
        evidence = two_classes.evidence
        delay = np.where(np.arange(12) < 4, 1.0, 50.0)
        flat, steep = (
            fit_stopping_rule(evidence, costs=[0.1], delay=d, method=method).decide(evidence).time
            for d in (None, delay)
        )
        assert flat.max() == 12
        assert steep.max() <= 5
        assert np.mean(steep == 4) > np.mean(flat == 4)


def test_the_last_step_always_decides(two_class_rule):
    outlook = two_class_rule.outlook(np.zeros((1, 2)), t=12, cost=COSTS[0])
    assert outlook.decided.all()
    assert np.isinf(outlook.continuation_risk).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda rule: rule.decide(np.zeros((1, 11, 2)), cost=0.05), r"\(n, 12, 2\)"),
        (lambda rule: rule.decide(np.zeros((1, 12, 3)), cost=0.05), r"\(n, 12, 2\)"),
        (lambda rule: rule.decide(np.full((1, 12, 2), np.inf), cost=0.05), "finite"),
        (lambda rule: rule.decide(np.zeros((1, 12, 2)), cost=0.06), "one of"),
        (lambda rule: rule.decide(np.zeros((1, 12, 2))), "named when a rule holds several"),
        (lambda rule: rule.continuation_risk(np.zeros((1, 2)), t=12, cost=0.05), r"1\.\.11"),
        (lambda rule: rule.outlook(np.zeros((1, 2)), t=0, cost=0.05), r"1\.\.12"),
        (lambda rule: rule.outlook(np.zeros((1, 3)), t=1, cost=0.05), r"\(n, 2\)"),
    ],
)
def test_bad_questions_are_refused(two_class_rule, call, message):
    with pytest.raises(InvalidInput, match=message):
        call(two_class_rule)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"evidence": np.zeros((5, 4))}, "shape"),
        ({"evidence": np.full((5, 4, 2), np.nan)}, "finite"),
        ({"evidence": np.zeros((5, 1, 2))}, "T >= 2"),
        ({"evidence": np.zeros((5, 4, 1))}, "K >= 2"),
        ({"costs": [0.0]}, "positive"),
        ({"costs": [5.0]}, "observe twice"),
        ({"penalty": [1.0, 2.0, 3.0]}, "vector"),
        ({"method": "magic"}, "'cfl', 'gp'"),
        ({"method": "gp", "options": firmbound.ConvexOptions()}, "ProcessOptions"),
        ({"options": firmbound.ProcessOptions()}, "ConvexOptions"),
        ({"confidence": 0.9}, "without uncertainty"),
        ({"method": "gp", "confidence": 1.0}, r"\[0.5, 1\)"),
        ({"prior": [0.9, 0.9]}, "sum to 1"),
    ],
)
def test_bad_fits_are_refused(arguments, message):
    given_arguments = {"evidence": np.zeros((5, 4, 2)), "costs": [0.1]} | arguments
    evidence = given_arguments.pop("evidence")
    with pytest.raises(InvalidInput, match=message):
        fit_stopping_rule(evidence, **given_arguments)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sha256", "abc"),
        ("sha256", None),
        ("statistic", "zzz"),
        ("statistic", "other"),
        ("surfaces", ["x"]),
        ("confidence", 2.0),
    ],
)
@pytest.mark.parametrize("rule_name", ["two_class_rule", "two_class_process"])
def test_edited_headers_are_refused(request, rule_name, tmp_path, key, value):
    rule = request.getfixturevalue(rule_name)
    value = {"llr": "posterior", "posterior": "llr"}[rule.statistic] if value == "other" else value
    rule.save(tmp_path / "rule")
    file = tmp_path / "rule" / "header.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {key: value}))
    with pytest.raises(BundleError):
        StoppingRule.load(tmp_path / "rule")


def test_foreign_bundles_are_refused(tmp_path):
    write_bundle(tmp_path / "other", kind="something-else", header={}, arrays={"a": np.zeros(1)})
    with pytest.raises(BundleError, match="something-else"):
        StoppingRule.load(tmp_path / "other")
    write_bundle(tmp_path / "empty", kind="stopping-rule", header={}, arrays={"a": np.zeros(1)})
    with pytest.raises(BundleError, match="no stopping rule that this version can read"):
        StoppingRule.load(tmp_path / "empty")


@pytest.mark.parametrize("rule_name", ["two_class_process", "three_class_process"])
def test_confidence_waits_in_doubt(request, rule_name, tmp_path):
    rule = request.getfixturevalue(rule_name)
    fresh = fresh_evidence(rule, 2_000, seed=4)
    careful = [rule.with_confidence(value) for value in (0.5, 0.8, 0.99)]
    times = [each.decide(fresh, cost=COSTS[0]).time for each in careful]
    assert np.array_equal(times[0], rule.decide(fresh, cost=COSTS[0]).time)
    assert np.all(np.diff(times, axis=0) >= 0)
    assert times[2].mean() > times[0].mean()
    careful[2].save(tmp_path / "rule")
    again = StoppingRule.load(tmp_path / "rule")
    assert again.confidence == 0.99
    assert np.array_equal(again.decide(fresh, cost=COSTS[0]).time, times[2])
    for t in (1, 3, rule.problem.horizon):
        outlook = again.outlook(fresh[:50, t - 1], t=t, cost=COSTS[0])
        steps = [again.step(row, t=t, cost=COSTS[0]) for row in fresh[:50, t - 1]]
        assert [step.decided for step in steps] == outlook.decided.tolist()
        best = rule.outlook(fresh[:50, t - 1], t=t, cost=COSTS[0])
        assert np.array_equal(outlook.continuation_risk, best.continuation_risk)


def test_renaming_decisions_changes_nothing_else(two_classes):
    """With columns of the penalty swapped, the best decision for a class is the other's label."""
    evidence = two_classes.evidence
    penalty = np.array([[0.0, 10.0], [10.0, 0.0]])
    usual, swapped = (
        fit_stopping_rule(evidence, costs=[0.1], penalty=matrix, method="gp").decide(evidence)
        for matrix in (penalty, penalty[:, ::-1].copy())
    )
    assert np.array_equal(usual.time, swapped.time)
    assert np.array_equal(usual.label, 1 - swapped.label)


def test_bad_confidence_is_refused_before_any_work(two_classes):
    worked = []
    for value in (95, "high", None, 0.2):
        with pytest.raises(InvalidInput, match="confidence"):
            fit_stopping_rule(
                two_classes.evidence,
                costs=[0.1],
                method="gp",
                confidence=value,
                progress=lambda *seen: worked.append(seen),
            )
    assert worked == []


def test_who_knows_no_uncertainty_says_so(two_class_rule, two_class_process):
    evidence = np.zeros((3, 2))
    assert np.isnan(two_class_rule.outlook(evidence, t=2, cost=COSTS[0]).deviation).all()
    assert np.all(two_class_process.outlook(evidence, t=2, cost=COSTS[0]).deviation > 0)
    assert np.isnan(two_class_process.outlook(evidence, t=12, cost=COSTS[0]).deviation).all()


def test_deciding_needs_neither_torch_nor_gpytorch(two_class_process, tmp_path):
    two_class_process.save(tmp_path / "rule")
    script = (
        "import sys, numpy as np\nfrom firmbound import StoppingRule\n"
        "rule = StoppingRule.load(sys.argv[1])\n"
        "rule.decide(np.zeros((2, 12, 2)), cost=0.05)\n"
        "print([name for name in ('torch', 'gpytorch', 'linear_operator') if name in sys.modules])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "rule")], capture_output=True, text=True, check=True
    )
    assert ended.stdout.strip() == "[]"
