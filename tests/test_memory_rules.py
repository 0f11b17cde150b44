"""Rules that look at the past: fitted, saved, streamed and pooled like all others."""

import json

import numpy as np
import pytest

import firmbound
from firmbound import ConvexOptions, EarlyClassifier, InvalidInput, ProcessOptions, StoppingRule, fit_stopping_rule
from firmbound.early.prefix_decisions import decide_prefixes
from firmbound.early.remaining_time import RemainingTime
from firmbound.errors import BundleError
from firmbound.evaluation.risk import believed_risk
from firmbound.memory import SUMMARIES, memory_of

COSTS = [0.05, 0.2]
METHODS = ["cfl", "gp"]
# Weights of a process reach 1e5 here and cancel: sums in another order differ in what is left of sixteen digits.
ROUNDING = 1e-7
FEW = {"cfl": ConvexOptions(points=60, regularisation=1e-5), "gp": ProcessOptions(points=300, inducing=40)}


def wandering(sequences, seed, classes=2, horizon=8):
    """Evidence that is not Markov: each sequence has its own size of steps, which the belief alone does not show."""
    random = np.random.default_rng(seed)
    size = random.choice([0.1, 1.5], (sequences, 1, 1))
    return (size * random.standard_normal((sequences, horizon, classes))).astype(np.float32)


@pytest.fixture(scope="module")
def rules():
    """By method and number of classes."""
    return {
        (method, k): fit_stopping_rule(
            wandering(4_000, 1, k), costs=COSTS, method=method, options=FEW[method], statistic="memory"
        )
        for method in METHODS
        for k in (2, 3)
    }


RULES = [(method, classes) for method in METHODS for classes in (2, 3)]


@pytest.mark.parametrize("which", RULES)
def test_the_past_lowers_the_risk_that_a_rule_believes(rules, which):
    method, classes = which
    train, fresh = wandering(4_000, 1, classes), wandering(8_000, 2, classes)
    blind = fit_stopping_rule(train, costs=COSTS, method=method, options=FEW[method])
    gains = []
    for cost in COSTS:
        mine, other = (
            believed_risk(rule.decide(fresh, cost=cost), fresh, rule.prior, rule.problem, cost)
            for rule in (rules[which], blind)
        )
        gains.append((other - mine).mean() / ((other - mine).std() / np.sqrt(len(fresh))))
    assert min(gains) > -2
    assert max(gains) > 4


@pytest.mark.parametrize("method", METHODS)
def test_where_the_belief_says_it_all_the_past_costs_next_to_nothing(method, two_classes):
    fresh = firmbound.datasets.gaussian(2, 20_000, 12, seed=99, dimension=3, separation=0.8)
    oracle = firmbound.solve_gaussian(fresh, costs=COSTS, penalty=10.0)
    rule = fit_stopping_rule(two_classes.evidence, costs=COSTS, method=method, statistic="memory")
    for cost in COSTS:
        assert oracle.regret(fresh.evidence, rule.decide(fresh.evidence, cost=cost), cost=cost).mean() < 0.02


@pytest.mark.parametrize("which", RULES)
@pytest.mark.parametrize("cost", COSTS)
def test_step_by_step_equals_whole_sequences(rules, which, cost):
    rule, fresh = rules[which], wandering(200, 3, which[1])
    chosen, past = rule.decide(fresh, cost=cost), memory_of(fresh)
    waiting = np.ones(len(fresh), dtype=bool)
    for t in range(1, rule.problem.horizon + 1):
        outlook = rule.outlook(fresh[:, t - 1], t=t, cost=cost, memory=past[:, t - 1])
        steps = [rule.step(e, t=t, cost=cost, memory=m) for e, m in zip(fresh[:, t - 1], past[:, t - 1], strict=True)]
        assert [step.decided for step in steps] == outlook.decided.tolist()
        assert [step.continuation_risk for step in steps] == pytest.approx(outlook.continuation_risk, abs=ROUNDING)
        assert np.array_equal(rule.stops(fresh[:, t - 1], t=t, cost=cost, memory=past[:, t - 1]), outlook.decided)
        now = waiting & outlook.decided
        assert np.array_equal(now, waiting & (chosen.time == t))
        assert np.array_equal(outlook.label[now], chosen.label[now])
        waiting &= ~now


@pytest.mark.parametrize("which", RULES)
def test_saved_equals_loaded(rules, which, tmp_path):
    rule, fresh = rules[which], wandering(300, 3, which[1])
    rule.save(tmp_path / "rule")
    again = StoppingRule.load(tmp_path / "rule")
    assert again.statistic == "memory"
    for cost in COSTS:
        assert np.array_equal(rule.decide(fresh, cost=cost).time, again.decide(fresh, cost=cost).time)
        seen = {"t": 2, "cost": cost, "memory": memory_of(fresh)[:, 1]}
        assert np.array_equal(rule.continuation_risk(fresh[:, 1], **seen), again.continuation_risk(fresh[:, 1], **seen))
    again.save(tmp_path / "copy")
    for name in ("header.json", "arrays.safetensors"):
        assert (tmp_path / "rule" / name).read_bytes() == (tmp_path / "copy" / name).read_bytes()


@pytest.mark.parametrize("which", [("cfl", 2), ("gp", 2)])
@pytest.mark.parametrize("other", ["posterior", "llr"])
def test_a_header_that_forgets_the_past_is_refused(rules, which, other, tmp_path):
    rules[which].save(tmp_path / "rule")
    file = tmp_path / "rule" / "header.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"statistic": other}))
    with pytest.raises(BundleError):
        StoppingRule.load(tmp_path / "rule")


def test_surfaces_without_a_past_do_not_make_a_rule_with_one(rules):
    blind = fit_stopping_rule(wandering(500, 1), costs=COSTS)
    for one, statistic in ((blind, "memory"), (rules["cfl", 2], "posterior"), (rules["gp", 2], "llr")):
        mixed = StoppingRule(one.problem, one.prior, statistic, one.surfaces)
        with pytest.raises((ValueError, IndexError)):
            mixed._check_whole()


@pytest.mark.parametrize("which", [("cfl", 2), ("gp", 2)])
def test_a_past_must_be_given_where_it_is_asked_for_and_nowhere_else(rules, which):
    blind, rule = fit_stopping_rule(wandering(500, 1), costs=COSTS), rules[which]
    evidence, past = np.zeros((1, 2)), np.zeros((1, len(SUMMARIES)))
    for name in ("outlook", "stops", "continuation_risk"):
        with pytest.raises(InvalidInput, match="`memory` must be given"):
            getattr(rule, name)(evidence, t=1, cost=COSTS[0])
        with pytest.raises(InvalidInput, match=r"`memory` must have shape \(1, 3\)"):
            getattr(rule, name)(evidence, t=1, cost=COSTS[0], memory=past[:, :2])
        with pytest.raises(InvalidInput, match="`memory` must be left out"):
            getattr(blind, name)(evidence, t=1, cost=COSTS[0], memory=past)
    with pytest.raises(InvalidInput, match="`memory` must be given"):
        rule.step(evidence[0], t=1, cost=COSTS[0])
    with pytest.raises(InvalidInput, match="`memory` must be finite"):
        rule.step(evidence[0], t=1, cost=COSTS[0], memory=[0.0, np.nan, 0.0])
    with pytest.raises(InvalidInput, match="`memory` must be left out"):
        blind.step(evidence[0], t=1, cost=COSTS[0], memory=past[0])


def test_the_statistic_can_be_named_beside_the_options():
    evidence = wandering(300, 1)
    assert fit_stopping_rule(evidence, costs=COSTS).statistic == "posterior"
    assert fit_stopping_rule(evidence, costs=COSTS, options=ConvexOptions(statistic="memory")).statistic == "memory"
    options = ConvexOptions(statistic="memory", points=50)
    assert fit_stopping_rule(evidence, costs=COSTS, options=options, statistic="posterior").statistic == "posterior"
    assert fit_stopping_rule(evidence, costs=COSTS, method="gp", statistic="posterior").statistic == "posterior"
    for statistic in ("llr", "mood"):
        with pytest.raises(InvalidInput, match="`statistic` must be one of"):
            fit_stopping_rule(evidence, costs=COSTS, statistic=statistic)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("sequences", [1, 3, 40])
def test_few_sequences_are_enough(method, sequences):
    evidence = wandering(sequences, 1)
    rule = fit_stopping_rule(evidence, costs=COSTS, method=method, statistic="memory")
    assert len(rule.decide(evidence, cost=COSTS[0])) == sequences


@pytest.mark.parametrize("method", METHODS)
def test_what_stands_after_an_end_is_never_used(method):
    evidence, random = wandering(1_500, 1), np.random.default_rng(0)
    lengths = random.integers(1, 9, len(evidence))
    lengths[:200] = 8
    after = np.arange(8) >= lengths[:, None]
    other = np.where(after[:, :, None], random.standard_normal(evidence.shape), evidence)
    one, two = (
        fit_stopping_rule(each, lengths=lengths, costs=COSTS, method=method, statistic="memory")
        for each in (evidence, other)
    )
    fresh = wandering(500, 2)
    assert np.array_equal(one.decide(fresh, cost=COSTS[0]).time, two.decide(fresh, cost=COSTS[0]).time)
    ends = random.integers(1, 9, len(fresh))
    assert np.all(one.decide(fresh, cost=COSTS[0], lengths=ends).time <= ends)


def test_confidence_waits_in_doubt(rules):
    rule, fresh = rules["gp", 2], wandering(500, 4)
    times = [rule.with_confidence(value).decide(fresh, cost=COSTS[0]).time for value in (0.5, 0.9)]
    assert np.all(times[1] >= times[0])
    now = rule.outlook(fresh[:, 1], t=2, cost=COSTS[0], memory=memory_of(fresh)[:, 1])
    assert np.all(now.deviation > 0)


def test_remaining_times_are_those_of_the_decisions(rules):
    rule, fresh = rules["cfl", 2], wandering(4_000, 5)
    remaining, time = RemainingTime.of(rule, fresh), rule.decide(fresh, cost=COSTS[0]).time
    on = time > 2
    risk = rule.outlook(fresh[on, 1], t=2, cost=COSTS[0], memory=memory_of(fresh)[on, 1]).stopping_risk
    assert remaining.each(2, 0, risk).mean() == pytest.approx((time[on] - 2).mean(), rel=1e-6)


@pytest.fixture(scope="module")
def labelled():
    random = np.random.default_rng(6)
    X = wandering(1_500, 6)
    y = (X[:, -1, 1] + random.standard_normal(len(X)) > X[:, -1, 0]).astype(int)
    return X, y


@pytest.fixture(scope="module", params=METHODS)
def fitted(request, labelled):
    options = {"cfl": ConvexOptions(statistic="memory"), "gp": ProcessOptions(statistic="memory", points=200)}
    classifier = EarlyClassifier(
        COSTS[0],
        evidence="given",
        costs=COSTS,
        method=request.param,
        options=options[request.param],
        missing="skip",
        # Refined evidence is single precision: this is about rules, and equal to the last digits.
        refine="never",
    )
    return classifier.fit(*labelled)


@pytest.fixture(scope="module")
def gappy():
    fresh, random = wandering(60, 7), np.random.default_rng(8)
    fresh[random.random(fresh.shape[:2]) < 0.2] = np.nan
    return fresh


def test_streams_and_pools_are_the_batch(fitted, gappy):
    chosen, pool = fitted.decide(gappy), fitted.pool(len(gappy))
    for t in range(gappy.shape[1]):
        together = pool.push(gappy[:, t])
    assert np.array_equal(together.time, chosen.time)
    for index, sequence in enumerate(gappy):
        stream = fitted.stream()
        for x in sequence:
            step = stream.push(x)
        assert (step.time, step.label) == (chosen.time[index], chosen.label[index])
        assert step.continuation_risk == pytest.approx(together.continuation_risk[index], abs=ROUNDING)


def test_streams_of_a_pool_may_be_at_different_times_and_begin_again(fitted, gappy):
    pool = fitted.pool(2)
    for x in gappy[0, :3]:
        pool.push(x[None], [0])
    pool.reset([0])
    alone = fitted.stream()
    for t, x in enumerate(gappy[1, :4]):
        pool.push(x[None], [0])
        alone.push(x)
        if t > 1:
            pool.push(gappy[2, t - 2][None], [1])
    assert pool.label[0] == alone.last.label
    assert pool.time[0] == alone.last.time
    other = fitted.stream()
    for x in gappy[2, :2]:
        other.push(x)
    assert pool.time[1] == other.last.time


def test_a_stream_goes_on_elsewhere(fitted, gappy, tmp_path):
    fitted.save(tmp_path / "model")
    again = EarlyClassifier.load(tmp_path / "model")
    place = int(np.argmax(fitted.decide(gappy).time))
    one, sizes = fitted.stream(), set()
    for x in gappy[place]:
        other = again.stream(one.state())
        sizes.add(len(one.state()))
        assert repr(one.push(x)) == repr(other.push(x))
    assert len(sizes) == 1


def test_states_of_other_rules_are_refused(fitted, labelled, gappy):
    alike = {"evidence": "given", "costs": COSTS, "missing": "skip", "refine": "never"}
    blind = EarlyClassifier(COSTS[0], method="cfl", **alike).fit(*labelled)
    for one, other, message in ((blind, fitted, "has no memory"), (fitted, blind, "looked at the past")):
        stream = one.stream()
        stream.push(gappy[0, 0])
        with pytest.raises(BundleError, match=message):
            other.stream(stream.state())


def test_prefixes_are_the_batch(fitted, gappy):
    chosen, found = fitted.decide(gappy), decide_prefixes(fitted, gappy)
    assert np.array_equal(found["time"], chosen.time)
    assert np.array_equal(found["label"], chosen.label)
    early = decide_prefixes(fitted, gappy[:, :3])
    assert np.array_equal(early["time"], np.minimum(chosen.time, 3))
    assert np.array_equal(early["decided"], chosen.time <= 3)
