"""Refinement is chosen where decisions get cheaper by it, and says by how much and why."""

import numpy as np
import pytest

import firmbound
from firmbound.evaluation.estimates import mean_of
from firmbound.refinement.choice import WORTH, Contestant, compare

COSTS = [0.1, 0.4]
PENALTY = 10.0


def contestants(problem, evidence):
    rules = [firmbound.fit_stopping_rule(one, costs=COSTS, penalty=PENALTY) for one in (problem.evidence, evidence)]
    return [Contestant(rule, one) for rule, one in zip(rules, (problem.evidence, evidence), strict=True)]


@pytest.fixture(scope="module")
def oscillating():
    problem = firmbound.datasets.oscillating(1_500, 15, 1)
    return problem, contestants(problem, firmbound.fit_refiner(problem.evidence, problem.labels)[1])


@pytest.fixture(scope="module")
def exact():
    problem = firmbound.datasets.gaussian(2, 1_500, 10, 1, dimension=2, separation=0.7)
    return problem, contestants(problem, firmbound.fit_refiner(problem.evidence, problem.labels)[1])


def ends(problem):
    return np.full(len(problem.labels), problem.horizon)


def test_it_is_chosen_where_it_pays(oscillating):
    problem, pair = oscillating
    choice = compare(*pair, problem.labels, ends(problem))
    assert choice.refined
    assert choice.why.startswith("it pays: on 1,500 validation sequences realised risk changes by -")
    assert choice.change < -2 * choice.change_error
    assert choice.change < -WORTH


def test_it_is_not_chosen_where_there_is_nothing_to_win(exact):
    problem, pair = exact
    choice = compare(*pair, problem.labels, ends(problem))
    assert not choice.refined
    assert choice.why.startswith("it does not pay: on 1,500 validation sequences")


def test_what_was_asked_for_is_done(oscillating, exact):
    for problem, pair in (oscillating, exact):
        always, never = (compare(*pair, problem.labels, ends(problem), asked) for asked in ("always", "never"))
        assert always.refined
        assert always.why.startswith("asked for; on 1,500")
        assert not never.refined


def test_numbers_are_what_decisions_did_cost(oscillating):
    """Counted anew: penalty of each wrong decision, and costs of the observations."""
    problem, pair = oscillating
    lengths = np.random.default_rng(0).integers(5, 16, len(problem.labels))
    choice = compare(*pair, problem.labels, lengths)
    paid = []
    for one in pair:
        row = []
        for cost in COSTS:
            chosen = one.rule.decide(one.evidence, cost=cost, lengths=lengths)
            assert np.all(chosen.time <= lengths)
            row.append(PENALTY * (chosen.label != problem.labels) + cost * chosen.time)
        paid.append(row)
    before, after = (np.array(rows) for rows in paid)
    assert choice.costs == tuple(COSTS)
    assert choice.sequences == 1_500
    assert choice.without == pytest.approx(before.mean(axis=1))
    assert choice.with_refinement == pytest.approx(after.mean(axis=1))
    assert choice.change == pytest.approx(np.mean(after.mean(axis=1) / before.mean(axis=1) - 1))
    error = mean_of(((after - before) / before.mean(axis=1, keepdims=True)).mean(axis=0)).standard_error
    assert choice.change_error == pytest.approx(error)
    most = int(np.argmax(np.abs(after.mean(axis=1) / before.mean(axis=1) - 1)))
    said = f"(at cost {COSTS[most]:g} from {before[most].mean():.3g} to {after[most].mean():.3g})"
    assert said in choice.why
    assert f"{100 * choice.change:+.1f} +- {100 * choice.change_error:.1f} %" in choice.why
    assert choice.as_dict()["without"] == choice.without


def test_an_advantage_that_may_be_chance_is_none(oscillating):
    problem, pair = oscillating
    same = compare(pair[0], pair[0], problem.labels, ends(problem))
    assert (same.refined, same.change, same.change_error) == (False, 0.0, 0.0)
    alone = (Contestant(one.rule, one.evidence[:1]) for one in pair)
    assert not compare(*alone, problem.labels[:1], ends(problem)[:1]).refined
