"""The convex solvers against an independent dense quadratic programme, and on hard little cases."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import lsq_linear, minimize

import firmbound
from firmbound.continuation import interior_point
from firmbound.continuation.convex import ConvexFitter
from firmbound.continuation.convex_objective import excess_over_values
from firmbound.continuation.interior_point import fit_interior_point
from firmbound.continuation.line_solver import fit_line
from firmbound.continuation.max_affine import fit_max_affine, onto_ball
from firmbound.errors import InvalidInput, NotConvergedWarning
from firmbound.posterior import posterior
from tests.continuation.reference import dense_optimum


def simplex_points(random, count, classes):
    return random.dirichlet(np.full(classes, 0.5), count)


def noisy(random, points):
    return ((points - 0.3) ** 2).sum(axis=1) + 0.2 * random.standard_normal(len(points))


@pytest.mark.parametrize("regularisation", [1e-8, 1e-6, 1e-3, 1e-1, 10.0])
@pytest.mark.parametrize(("count", "classes"), [(60, 2), (120, 3), (60, 5)])
def test_interior_point_reaches_the_dense_optimum(random, count, classes, regularisation):
    points = simplex_points(random, count, classes)
    targets, weights = noisy(random, points), random.integers(1, 9, count).astype(float)
    fit, _ = fit_interior_point(points, targets, weights, regularisation, tolerance=1e-7)
    exact = dense_optimum(points, targets, weights, regularisation)
    # With next to no penalty the reference itself has only three digits, and may lie above.
    assert fit.objective <= exact * (1 + 1e-4)
    assert fit.objective >= exact * (1 - (1e-4 if regularisation > 1e-8 else 1e-3))
    # The gap is a proof: the optimum lies no further below than it says.
    assert fit.objective * (1 - fit.gap) <= exact * (1 + 1e-6)
    assert fit.gap <= (1e-4 if regularisation >= 1e-6 else 1e-3)
    assert fit.violation <= 1e-7
    assert excess_over_values(fit.values, fit.slopes, points).max() <= 1e-12


def test_interior_point_takes_more_points(random):
    points = simplex_points(random, 150, 3)
    targets, weights = noisy(random, points), np.ones(150)
    exact = dense_optimum(points, targets, weights, 1e-4)
    assert fit_interior_point(points, targets, weights, 1e-4)[0].objective == pytest.approx(exact, rel=1e-4)


def test_interior_point_starts_from_any_constraints(random):
    points = simplex_points(random, 80, 3)
    targets, weights = noisy(random, points), np.ones(80)
    cold, binding = fit_interior_point(points, targets, weights, 1e-4)
    for pairs in (binding, np.array([[0, 1]]), np.empty((0, 2), dtype=np.int64)):
        warm, _ = fit_interior_point(points, targets, weights, 1e-4, pairs=pairs)
        assert warm.objective == pytest.approx(cold.objective, rel=1e-4)


def test_an_unfinished_interior_point_says_so(random, monkeypatch):
    monkeypatch.setattr(interior_point, "MAX_ROUNDS", 3)
    points = simplex_points(random, 60, 3)
    with pytest.warns(NotConvergedWarning, match="9 rounds with gap"):
        fit, _ = fit_interior_point(points, noisy(random, points), np.ones(60), 1e-4)
    # what comes back is convex all the same
    assert excess_over_values(fit.values, fit.slopes, points).max() <= 1e-12


def test_interior_point_finishes_where_nearly_all_is_certain():
    """A solve that runs into the boundary is begun again in another manner; from here the first one ended 1 % off."""
    evidence = firmbound.datasets.gaussian(5, 5_000, 49, seed=1, separation=1.0).evidence
    now, later = (posterior(evidence[:, t - 1], np.full(5, 0.2)) for t in (48, 49))
    risk = (later @ (1 - np.eye(5))).min(axis=1)
    surface = ConvexFitter(np.zeros(5)).prepare(now).fit(risk[:, None])
    assert surface.quality[0, 2] <= interior_point.ACCEPTED * 1e-5


@pytest.mark.parametrize(
    ("classes", "regularisation", "tolerance", "close"),
    [
        (2, 1e-1, 1e-4, 1e-4),
        (3, 1e-1, 1e-4, 1e-4),
        (5, 1e-1, 1e-4, 1e-4),
        (3, 1e-3, 5e-6, 1e-4),
        (5, 1e-3, 1e-5, 1e-4),
        (2, 1e-3, 2e-4, 1e-2),  # on a line heights spread from neighbour to neighbour: this is not its problem
    ],
)
def test_max_affine_with_a_piece_a_point_is_the_whole_problem(random, classes, regularisation, tolerance, close):
    torch.set_num_threads(1)
    points = simplex_points(random, 60, classes)
    targets, weights = noisy(random, points), random.integers(1, 9, 60).astype(float)
    (fit,) = fit_max_affine(
        points, targets[:, None], weights, regularisation, np.arange(60), tolerance=tolerance, iterations=20_000
    )
    assert fit.objective == pytest.approx(dense_optimum(points, targets, weights, regularisation), rel=close)
    assert excess_over_values(fit.values, fit.slopes, points).max() <= 1e-12


def test_max_affine_improves_as_pieces_grow(random):
    points = simplex_points(random, 90, 4)
    targets, weights = noisy(random, points), np.ones(90)
    order = np.argsort(points[:, 0])
    objectives = []
    for pieces in (1, 5, 30, 90):
        owner = np.empty(90, dtype=np.int64)
        owner[order] = np.arange(90) * pieces // 90
        (fit,) = fit_max_affine(points, targets[:, None], weights, 1e-3, owner, tolerance=1e-4, iterations=20_000)
        objectives.append(fit.objective)
    assert all(fewer >= more * (1 - 1e-3) for fewer, more in pairwise(objectives))
    assert objectives[-1] == pytest.approx(dense_optimum(points, targets, weights, 1e-3), rel=5e-3)


def test_max_affine_takes_all_costs_at_once_and_reports(random):
    points = simplex_points(random, 50, 4)
    targets = np.column_stack([noisy(random, points), 10 * noisy(random, points)])
    owner = np.arange(50) // 5
    together = fit_max_affine(points, targets, np.ones(50), 1e-3, owner, tolerance=1e-4, iterations=20_000)
    for column, fit in enumerate(together):
        one = targets[:, column : column + 1]
        (alone,) = fit_max_affine(points, one, np.ones(50), 1e-3, owner, tolerance=1e-4, iterations=20_000)
        assert fit.objective == pytest.approx(alone.objective, rel=1e-3)
        assert len(np.unique(fit.offsets)) <= 10
    with pytest.warns(NotConvergedWarning, match="residual"):
        fit_max_affine(points, targets, np.ones(50), 1e-3, owner, tolerance=1e-9, iterations=40)
    with pytest.raises(InvalidInput, match="owner"):
        fit_max_affine(points, targets, np.ones(50), 1e-3, np.full(50, 3))


def test_the_ball_of_absolute_sums_is_hit_where_brute_force_says(random):
    columns, radius = random.standard_normal((1, 4, 2)), 0.7
    nearest = onto_ball(torch.tensor(columns), torch.tensor([[[radius]]])).numpy()[0]
    for column in range(2):
        given = columns[0, :, column]
        # v - projection minimises radius * max |u| + |u - v|^2 / 2
        best = minimize(
            lambda u, given=given: radius * np.abs(u).max() + ((u - given) ** 2).sum() / 2,
            given,
            method="Nelder-Mead",
            options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 20_000, "maxfev": 20_000},
        )
        assert np.allclose(given - nearest[:, column], best.x, atol=1e-4)


@pytest.mark.parametrize("regularisation", [1e-6, 1e-3, 1e-1, 10.0])
@pytest.mark.parametrize("count", [2, 3, 60, 150])
def test_the_line_reaches_the_dense_optimum(random, count, regularisation):
    x = np.sort(random.random(count))
    targets, weights = np.abs(x - 0.4) + 0.2 * random.standard_normal(count), random.integers(1, 9, count).astype(float)
    fit = fit_line(x, targets, weights, regularisation)
    # On the simplex of two classes the penalty of a slope (a_1, a_2) is that of the one-dimensional slope a_1 - a_2.
    exact = dense_optimum(np.column_stack([x, 1 - x]), targets, weights, regularisation)
    assert fit.objective == pytest.approx(exact, rel=1e-4, abs=1e-9)
    assert fit.gap <= 1e-6


@pytest.mark.parametrize("count", [4, 30, 300])
def test_the_line_agrees_with_bounded_least_squares(random, count):
    """Hinges with non-negative weights are a bounded least-squares problem, which SciPy solves in its own way."""
    x = np.sort(random.random(count))
    targets, weights = np.cos(7 * x) + 0.3 * random.standard_normal(count), random.uniform(0.5, 5, count)
    basis = np.column_stack([np.ones(count), x, np.maximum(x[:, None] - x[None, 1:-1], 0.0)])
    lower = np.concatenate([[-np.inf, -np.inf], np.zeros(count - 2)])
    root = np.sqrt(weights / weights.sum())
    other = lsq_linear(root[:, None] * basis, root * targets, (lower, np.inf), method="bvls", tol=1e-14)
    fit = fit_line(x, targets, weights)
    assert fit.objective == pytest.approx(2 * other.cost, rel=1e-8, abs=1e-14)
    assert np.allclose(fit.values, basis @ other.x, atol=1e-5)


@given(st.integers(1, 40), st.integers(0, 10_000), st.sampled_from([0.0, 1e-8, 1e-2]))
def test_line_fits_are_convex_and_start_free(count, seed, regularisation):
    random = np.random.default_rng(seed)
    x = np.sort(random.choice(10_000, count, replace=False)) / 10_000
    targets = random.standard_normal(count)
    fit = fit_line(x, targets, np.ones(count), regularisation)
    assert np.all(np.diff(fit.slopes[:, 0]) >= -1e-9)
    assert np.allclose((x[:, None] * fit.slopes[:, 0] + fit.offsets).max(axis=1), fit.values, atol=1e-7)
    if count > 3:
        again = fit_line(x, targets, np.ones(count), regularisation, random.choice(np.arange(1, count - 1), 2))
        assert again.objective == pytest.approx(fit.objective, rel=1e-6, abs=1e-10)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 4), st.integers(0, 1000))
def test_few_and_degenerate_points_are_fitted_exactly(count, seed):
    """Up to K affinely independent points can be met exactly by a plane."""
    points = np.eye(4)[:count]
    targets = np.random.default_rng(seed).random(count)
    fit, _ = fit_interior_point(points, targets, np.ones(count), 1e-9)
    assert np.allclose(fit.values, targets, atol=1e-4)


def test_convex_data_are_met_and_concave_data_give_a_line(random):
    x = np.linspace(0, 1, 50)
    assert np.allclose(fit_line(x, x**2, np.ones(50)).values, x**2, atol=1e-9)
    line = np.polyval(np.polyfit(x, -(x**2), 1), x)
    assert np.allclose(fit_line(x, -(x**2), np.ones(50)).values, line, atol=1e-9)


def test_equal_weights_equal_repetition(random):
    points = simplex_points(random, 30, 3)
    targets = noisy(random, points)
    weights = random.integers(1, 4, 30)
    one, _ = fit_interior_point(points, targets, weights.astype(float), 1e-4, tolerance=1e-8, gap=1e-7)
    many = np.repeat(np.arange(30), weights)
    two, _ = fit_interior_point(points[many], targets[many], np.ones(len(many)), 1e-4, tolerance=1e-8, gap=1e-7)
    assert two.objective == pytest.approx(one.objective, rel=1e-5)
    assert np.allclose(two.values, one.values[many], atol=1e-3)


@pytest.mark.parametrize("size", [1e-6, 1e-3, 1e3])
def test_the_size_of_targets_does_not_matter(random, size):
    points = simplex_points(random, 60, 3)
    targets = noisy(random, points)
    one, _ = fit_interior_point(points, targets, np.ones(60), 1e-4)
    other, _ = fit_interior_point(points, size * targets, np.ones(60), size * 1e-4)
    assert other.objective == pytest.approx(size**2 * one.objective, rel=1e-3)
    assert other.gap < 1e-3


def test_uneven_slopes_are_balanced_on_a_line():
    """The first segment is steep and short: its share of the penalty is small and must be found all the same."""
    x, y = np.array([0.0, 1e-4, 0.3, 0.6, 1.0]), np.array([0.1, 0.0, 0.0, 0.02, 0.1])
    for regularisation in (1e-4, 1e-2):
        fit = fit_line(x, y, np.ones(5), regularisation)
        exact = dense_optimum(np.column_stack([x, 1 - x]), y, np.ones(5), regularisation)
        assert fit.objective == pytest.approx(exact, rel=1e-4)


def test_constants_stay_constant(random):
    points = simplex_points(random, 40, 4)
    fit, _ = fit_interior_point(points, np.full(40, 0.7), np.ones(40), 1e-8)
    assert np.allclose(fit.values, 0.7, atol=1e-6)
    (bounded,) = fit_max_affine(points, np.full((40, 1), 0.7), np.ones(40), 1e-3, np.arange(40) // 8)
    assert np.allclose(bounded.values, 0.7, atol=1e-6)
