"""The solver of readouts against answers that were found in other ways, in double precision."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize
from sklearn.linear_model import LogisticRegression

from firmbound.refinement.readout import Readout, ReadoutProblem, losses, refined, untouched

CLASSES = [2, 3, 10]


def make(classes, count=800, width=6, seed=0):
    """Scores that are too sure, columns that know more, classes of different shares."""
    random = np.random.default_rng(seed)
    shares = np.arange(1, classes + 1) / np.arange(1, classes + 1).sum()
    labels = random.choice(classes, count, p=shares)
    labels[:classes] = np.arange(classes)
    columns = random.standard_normal((count, width)).astype(np.float32)
    columns[:, 0] = 1.0
    columns[:, 1] += labels == 0
    scores = 2.0 * random.standard_normal((count, classes))
    scores[np.arange(count), labels] += 2.0
    shares = np.bincount(labels) / count
    return ReadoutProblem(scores, columns, labels, np.log(shares))


def objective(problem, ridge, scale, weights):
    """As the docstrings state it, written anew in double precision, without its slopes."""
    count = len(problem.labels)
    logits = problem.log_shares.astype(float) + scale * problem.scores.astype(float)
    logits = logits + problem.columns.astype(float) @ weights
    logits -= logits.max(axis=1, keepdims=True)
    likelihood = logits[np.arange(count), problem.labels] - np.log(np.exp(logits).sum(axis=1))
    return -likelihood.mean() + ridge / count / 2 * ((scale - 1) ** 2 + (weights**2).sum())


def exact(problem, ridge):
    """By scipy, with slopes of our own."""
    shape = problem.columns.shape[1], len(problem.log_shares)
    scores, columns = problem.scores.astype(float), problem.columns.astype(float)
    truth = np.eye(shape[1])[problem.labels]

    def both(point):
        scale, weights = point[0], point[1:].reshape(shape)
        logits = problem.log_shares + scale * scores + columns @ weights
        chances = np.exp(logits - logits.max(axis=1, keepdims=True))
        missed = (chances / chances.sum(axis=1, keepdims=True) - truth) / len(truth)
        price = ridge / len(truth)
        slopes = columns.T @ missed + price * weights
        first = (missed * scores).sum() + price * (scale - 1)
        return objective(problem, ridge, scale, weights), np.concatenate([[first], slopes.ravel()])

    start = np.concatenate([[1.0], np.zeros(np.prod(shape))])
    options = {"gtol": 1e-9, "ftol": 1e-15, "maxiter": 5_000, "maxfun": 50_000}
    found = optimize.minimize(both, start, jac=True, method="L-BFGS-B", options=options)
    return Readout(found.x[0], found.x[1:].reshape(shape))


@pytest.mark.parametrize("classes", CLASSES)
@pytest.mark.parametrize("ridge", [1.0, 100.0])
def test_it_finds_what_scipy_finds_in_double_precision(classes, ridge):
    problem = make(classes)
    found, best = problem.solve(ridge), exact(problem, ridge)
    worse = objective(problem, ridge, *found) - objective(problem, ridge, *best)
    assert -1e-6 < worse < 2e-4
    assert found.scale == pytest.approx(best.scale, abs=0.02)
    assert np.abs(found.weights - best.weights).max() < 0.1
    said, wanted = (
        np.exp(-losses(refined(problem.scores, problem.columns, one), *_truth(problem))) for one in (found, best)
    )
    assert np.abs(said - wanted).mean() < 0.005


def _truth(problem):
    return problem.labels, problem.log_shares


@pytest.mark.parametrize("classes", [3, 10])
def test_it_is_scikit_learns_logistic_regression_where_that_can_be_asked(classes):
    """Which knows no offset and no scale: scores 0, and equal shares. C there is 1 / ridge here."""
    given = make(classes)
    nothing = np.zeros_like(given.scores)
    problem = ReadoutProblem(nothing, given.columns, given.labels, np.log(np.full(classes, 1 / classes)))
    other = LogisticRegression(C=1 / 10.0, fit_intercept=False, tol=1e-8, max_iter=5_000)
    other.fit(given.columns.astype(float), given.labels)
    found = problem.solve(10.0)
    assert found.scale == pytest.approx(1.0, abs=1e-6)  # nothing to scale: it stays where its penalty wants it
    assert np.allclose(found.weights, other.coef_.T, atol=0.05)
    best = objective(problem, 10.0, 1.0, other.coef_.T)
    assert objective(problem, 10.0, *found) - best < 2e-4


def test_a_scale_is_found_and_its_penalty_obeyed():
    """Scores that are twice too sure: half of them is right, as far as the ridge lets go of 1."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, 4_000)
    ratio = np.where(labels == 1, 1.0, -1.0) * 0.5 + random.standard_normal(4_000)  # the exact one is itself
    scores = np.stack([-ratio, ratio], axis=1)
    problem = ReadoutProblem(scores, np.ones((4_000, 1), dtype=np.float32), labels, np.log([0.5, 0.5]))
    scales = [problem.solve(ridge).scale for ridge in (1.0, 1e3, 1e4, 1e6)]
    assert scales[0] == pytest.approx(0.5, abs=0.06)
    assert scales == sorted(scales)
    assert scales[-1] == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("classes", CLASSES)
def test_a_warm_start_leads_to_the_same_answer(classes):
    problem = make(classes)
    cold = problem.solve(10.0)
    random = np.random.default_rng(1)
    far = Readout(0.2, random.standard_normal(cold.weights.shape))
    for start in (cold, problem.solve(1_000.0), far):
        warm = problem.solve(10.0, start)
        assert abs(objective(problem, 10.0, *warm) - objective(problem, 10.0, *cold)) < 3e-4


@pytest.mark.parametrize("classes", CLASSES)
def test_without_end_of_the_ridge_scores_stay_as_they_are(classes):
    problem = make(classes)
    found = problem.solve(1e11)
    assert found.scale == pytest.approx(1.0, abs=1e-6)
    assert np.abs(found.weights).max() < 1e-6
    same = untouched(problem.columns.shape[1], classes)
    assert np.allclose(refined(problem.scores, problem.columns, found), problem.scores, atol=1e-5)
    assert np.array_equal(refined(problem.scores, problem.columns, same), problem.scores)


@settings(max_examples=15)
@given(st.sampled_from(CLASSES), st.integers(0, 1_000), st.floats(-3, 3))
def test_slopes_are_those_of_the_loss(classes, seed, size):
    """Against differences of the objective in double precision, in a direction of its own for each number."""
    problem, ridge, step = make(classes, count=200, seed=seed), 5.0, 1e-4
    random = np.random.default_rng(seed)
    at = Readout(1.0 + size / 3, np.exp(size) * 0.3 * random.standard_normal((6, classes)))
    value, scale_slope, slopes = problem._loss(at, ridge / 200)
    assert value == pytest.approx(objective(problem, ridge, *at), rel=1e-4, abs=1e-5)

    def along(scale, weights):
        ahead, behind = (
            objective(problem, ridge, at.scale + sign * scale, at.weights + sign * weights) for sign in (1, -1)
        )
        return (ahead - behind) / 2

    none = np.zeros_like(at.weights)
    assert scale_slope == pytest.approx(along(step, none) / step, rel=2e-3, abs=1e-4)
    for place in ((0, 0), (1, classes - 1), (5, 1)):
        one = none.copy()
        one[place] = step
        assert slopes[place] == pytest.approx(along(0.0, one) / step, rel=2e-3, abs=1e-4)


@pytest.mark.parametrize("ridge", [1e-9, 1e-4])
def test_columns_that_depend_on_each_other_need_no_ridge(ridge):
    """Evidence of all classes sums to 0, so its columns do: their curvature has no root but for rounding."""
    problem = make(3)
    twice = np.concatenate([problem.columns, problem.columns, np.zeros((800, 1), np.float32)], axis=1)
    found = ReadoutProblem(problem.scores, twice, problem.labels, problem.log_shares).solve(ridge)
    once = problem.solve(ridge)
    assert np.allclose(refined(problem.scores, twice, found), refined(problem.scores, problem.columns, once), atol=0.15)


@pytest.mark.parametrize("size", [0.0, 1e-30, 1e6])
def test_scores_of_any_size_give_numbers(size):
    problem = make(3)
    found = ReadoutProblem(problem.scores * size, problem.columns, problem.labels, problem.log_shares).solve(1.0)
    assert np.isfinite(found.scale)
    assert np.isfinite(found.weights).all()


def test_losses_are_of_posteriors_with_the_shares():
    shares = np.array([0.2, 0.8])
    evidence = np.log([[0.5, 0.5], [0.9, 0.1]]) - np.log(shares) + 7.0
    assert np.allclose(np.exp(-losses(evidence, np.array([0, 1]), np.log(shares))), [0.5, 0.1])
