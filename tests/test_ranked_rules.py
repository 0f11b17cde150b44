"""Rules of many classes: what they look at are the largest posteriors, whatever classes these are of."""

import numpy as np
import pytest

import firmbound
from firmbound import InvalidInput, fit_stopping_rule
from firmbound.baselines.static_threshold import tune_threshold
from firmbound.continuation.convex import ConvexOptions
from firmbound.continuation.gaussian_process import ProcessOptions
from firmbound.evaluation.risk import believed_risk
from firmbound.fitting import RANKED_FROM

METHODS = ["cfl", "gp"]
COSTS = [0.05, 0.5]
FEW = {"cfl": ConvexOptions(points=40), "gp": ProcessOptions(points=120, inducing=20)}


def many_classes(sequences, seed, classes=RANKED_FROM):
    return firmbound.datasets.gaussian(classes, sequences, 6, seed, dimension=classes, separation=1.5).evidence


@pytest.fixture(scope="module")
def rules():
    evidence = many_classes(1_000, seed=1)
    return {
        (method, statistic): fit_stopping_rule(evidence, costs=COSTS, method=method, statistic=statistic)
        for method, plain in (("cfl", "posterior"), ("gp", "llr"))
        for statistic in (None, plain)
    }


@pytest.mark.parametrize("method", METHODS)
def test_many_classes_of_one_penalty_are_ranked_and_fewer_are_not(method, rules):
    assert rules[method, None].statistic == "ranked"
    whole = {"cfl": "posterior", "gp": "llr"}[method]
    fewer = many_classes(200, seed=1, classes=RANKED_FROM - 1)
    assert fit_stopping_rule(fewer, costs=COSTS, method=method, options=FEW[method]).statistic == whole
    evidence = many_classes(200, seed=1)
    uneven = np.linspace(5, 10, RANKED_FROM)
    rule = fit_stopping_rule(evidence, costs=COSTS, penalty=uneven, method=method, options=FEW[method])
    assert rule.statistic == whole


def test_who_asks_for_a_solver_of_all_classes_gets_it():
    for options in (ConvexOptions(points=20, solver="max-affine"), ConvexOptions(points=20, pieces=4, solver="admm")):
        rule = fit_stopping_rule(many_classes(100, seed=1)[:, :2], costs=[0.5], options=options)
        assert rule.statistic == "posterior"


@pytest.mark.parametrize("method", METHODS)
def test_ranks_are_refused_where_penalties_differ(method):
    with pytest.raises(InvalidInput, match=r"`statistic` must be another than 'ranked'.*ranks forget it"):
        fit_stopping_rule(
            many_classes(100, seed=1), costs=COSTS, penalty=np.linspace(5, 10, 10), method=method, statistic="ranked"
        )


def test_a_line_has_no_ranks():
    with pytest.raises(InvalidInput, match="'line'"):
        fit_stopping_rule(many_classes(50, 1), costs=COSTS, options=ConvexOptions(solver="line"), statistic="ranked")


@pytest.mark.parametrize("method", METHODS)
def test_names_of_classes_play_no_part(method, rules, random):
    rule, fresh, order = rules[method, None], many_classes(500, seed=2), random.permutation(RANKED_FROM)
    for cost in COSTS:
        one, other = rule.decide(fresh, cost=cost), rule.decide(fresh[:, :, order], cost=cost)
        assert np.array_equal(one.time, other.time)
        assert np.array_equal(one.label, order[other.label])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("cost", COSTS)
def test_few_sequences_of_many_classes_are_enough(method, cost, rules):
    """Evidence is exact, so believed risk is what is paid on average: less than thresholds, and than without ranks."""
    train, fresh = many_classes(1_000, seed=1), many_classes(6_000, seed=2)

    def paid(rule, decisions, evidence=fresh):
        return believed_risk(decisions, evidence, rule.prior, rule.problem, cost)

    ranked, plain = rules[method, None], rules[method, "posterior" if method == "cfl" else "llr"]
    ours = paid(ranked, ranked.decide(fresh, cost=cost))
    static = tune_threshold(train, lambda chosen: paid(ranked, chosen, train).mean(), 60).decide(fresh)
    for other in (paid(plain, plain.decide(fresh, cost=cost)), paid(ranked, static)):
        apart = ours - other
        assert apart.mean() <= apart.std() / np.sqrt(len(apart))
