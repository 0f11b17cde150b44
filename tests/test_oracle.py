"""The exact dynamic programme against quadrature, against sequences, and against itself on a finer grid."""

import numpy as np
import pytest
from scipy.integrate import quad

from firmbound import Decisions, InvalidInput, solve_gaussian
from firmbound.datasets import gaussian
from firmbound.evaluation.risk import believed_risk
from firmbound.posterior import class_prior


def small(classes=2, **changes):
    arguments = {"classes": classes, "sequences": 10, "horizon": 6, "dimension": 3, "separation": 0.8} | changes
    return gaussian(**arguments)


def test_two_observations_agree_with_nested_quadrature():
    """T = 2: cost + E min(stop at 1, cost + E stop at 2), integrated without any grid."""
    m, penalty, cost = 0.8, 10.0, 0.7
    drift, deviation = m**2, np.sqrt(2) * m

    def chance(z):
        return 1 / (1 + np.exp(-z))

    def stop(z):
        return penalty * min(chance(z), chance(-z))

    def density(x):  # written out: a hundred thousand calls of scipy.stats take half a minute
        return np.exp(-0.5 * (x / deviation) ** 2) / (deviation * np.sqrt(2 * np.pi))

    def mixture(z, after):
        return chance(z) * density(after - z - drift) + chance(-z) * density(after - z + drift)

    def go_on(z):
        return cost + quad(lambda after: stop(after) * mixture(z, after), -12 + z, 12 + z, points=[0.0], limit=200)[0]

    kinks = [-0.9, 0.0, 0.9]
    whole = quad(lambda z: min(stop(z), go_on(z)) * mixture(0.0, z), -12, 12, points=kinks, limit=200)[0]
    oracle = solve_gaussian(small(horizon=2, separation=m), costs=[cost], penalty=penalty)
    assert oracle.bayes_risk[0] == pytest.approx(cost + whole, rel=2e-6)
    z = np.array([-1.3, 0.0, 0.4])
    exact = [go_on(value) for value in z]
    found = oracle.continuation_risk(np.stack([z, 0 * z], axis=1), t=1)
    assert found == pytest.approx(np.array(exact), rel=1e-6)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("penalty_kind", ["number", "matrix"])
def test_refining_the_grid_changes_less_than_1e_5(classes, penalty_kind):
    matrix = np.arange(1.0, classes**2 + 1).reshape(classes, classes) * (1 - np.eye(classes))
    penalty = 10.0 if penalty_kind == "number" else matrix
    delay = np.linspace(1.0, 2.0, 6)
    prior = np.arange(1.0, classes + 1) / np.arange(1.0, classes + 1).sum()
    problem = small(classes, prior=prior)
    usual = solve_gaussian(problem, costs=[0.05, 0.5], penalty=penalty, delay=delay)
    finer = 1 / 128 if classes == 2 else 1 / 9
    fine = solve_gaussian(problem, costs=[0.05, 0.5], penalty=penalty, delay=delay, fineness=finer)
    assert usual.bayes_risk == pytest.approx(fine.bayes_risk, rel=1e-5)


@pytest.mark.parametrize("separation", [0.3, 2.0, 3.0])
@pytest.mark.parametrize("classes", [2, 3])
def test_small_and_large_steps_are_resolved_too(classes, separation):
    problem = small(classes, separation=separation, horizon=4)
    usual = solve_gaussian(problem, costs=[0.02, 0.4])
    fine = solve_gaussian(problem, costs=[0.02, 0.4], fineness=1 / 128 if classes == 2 else 1 / 12)
    assert usual.bayes_risk == pytest.approx(fine.bayes_risk, rel=1e-5)


@pytest.mark.parametrize("classes", [2, 3])
def test_decisions_pay_the_bayes_risk_on_fresh_sequences(classes):
    """A programme with a wrong drift, prior, delay or penalty would promise another risk than its decisions earn."""
    prior = [0.3, 0.7] if classes == 2 else [0.2, 0.3, 0.5]
    penalty = np.array([4.0, 8.0, 10.0])[:classes]
    problem = small(classes, sequences=60_000, prior=prior, seed=5)
    delay = np.array([1.0, 1.0, 2.0, 0.5, 1.0, 1.0])
    oracle = solve_gaussian(problem, costs=[0.1], penalty=penalty, delay=delay)
    decisions = oracle.decide(problem.evidence)
    risks = believed_risk(decisions, problem.evidence, class_prior(prior, classes), oracle.problem, 0.1)
    assert risks.mean() == pytest.approx(oracle.bayes_risk[0], abs=4 * risks.std() / np.sqrt(len(risks)))
    assert set(np.unique(decisions.time)) >= {1, 6}


def test_three_classes_of_which_one_never_occurs_are_two():
    rare = 1e-9
    three = solve_gaussian(small(3, prior=[(1 - rare) / 2, (1 - rare) / 2, rare]), costs=[0.1, 0.5])
    two = solve_gaussian(small(2), costs=[0.1, 0.5])
    assert three.bayes_risk == pytest.approx(two.bayes_risk, rel=1e-5)


def test_regret_is_zero_for_the_optimum_and_the_excess_for_others(two_classes):
    oracle = solve_gaussian(two_classes, costs=[0.2])
    best = oracle.decide(two_classes.evidence)
    assert np.all(oracle.regret(two_classes.evidence, best) == 0)
    late = Decisions(np.full(len(best), 8), two_classes.evidence[:, 7].argmax(axis=1), 12)
    regret = oracle.regret(two_classes.evidence, late)
    prior = class_prior(None, 2)
    paid = believed_risk(late, two_classes.evidence, prior, oracle.problem, 0.2)
    assert regret.min() >= 0
    assert regret.mean() == pytest.approx(paid.mean() - oracle.bayes_risk[0], abs=4 * paid.std() / np.sqrt(len(paid)))


def test_more_looks_never_hurt():
    risks = [solve_gaussian(small(horizon=h), costs=[0.1]).bayes_risk[0] for h in (2, 4, 8)]
    assert risks[0] > risks[1] > risks[2]


def test_bad_questions_are_refused(two_classes):
    with pytest.raises(InvalidInput, match="2 or 3"):
        solve_gaussian(gaussian(classes=4, sequences=1), costs=[0.1])
    oracle = solve_gaussian(small(), costs=[0.1])
    with pytest.raises(InvalidInput, match=r"1\.\.5"):
        oracle.continuation_risk(np.zeros((1, 2)), t=6)
    with pytest.raises(InvalidInput, match="finite"):
        oracle.decide(np.full((1, 6, 2), np.nan))
    with pytest.raises(InvalidInput, match=r"\(n, 6, 2\)"):
        oracle.decide(np.zeros((1, 3, 2)))
    with pytest.raises(InvalidInput, match=r"\(n, 2\)"):
        oracle.continuation_risk(np.zeros((1, 3)), t=1)
    with pytest.raises(InvalidInput, match="one a sequence"):
        oracle.regret(np.zeros((5, 6, 2)), Decisions(np.array([1]), np.array([0]), 6))
    with pytest.raises(InvalidInput, match="GiB"):
        solve_gaussian(small(3, separation=0.02, horizon=50), costs=[0.1])
