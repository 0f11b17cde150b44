"""The convex solvers against an independent dense quadratic programme, and on hard little cases."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import lsq_linear

from firmbound.continuation.convex_objective import excess_over_values, objective_value
from firmbound.continuation.cutting_planes import fit_cutting_planes, near_pairs
from firmbound.continuation.line_solver import fit_line
from firmbound.continuation.quadratic_programme import solve_quadratic_programme
from firmbound.errors import NumericalError


def dense_optimum(points, targets, weights, regularisation):
    """All m^2 constraints at once, written a second time and solved as one dense programme."""
    m, p = points.shape
    size = m + m * p + p
    share = weights / weights.sum()
    rows = []
    for i in range(m):
        for j in range(m):
            if i != j:
                row = np.zeros(size)
                row[i], row[j] = 1.0, -1.0
                row[m + i * p : m + (i + 1) * p] = points[j] - points[i]
                rows.append(row)
        for coordinate in range(p):
            for sign in (1.0, -1.0):
                row = np.zeros(size)
                row[m + i * p + coordinate], row[m + m * p + coordinate] = sign, -1.0
                rows.append(row)
    quadratic = np.zeros((size, size))
    quadratic[range(m), range(m)] = 2 * share
    linear = np.zeros(size)
    linear[:m] = -2 * share * targets
    linear[-p:] = regularisation
    a = np.array(rows)
    x = solve_quadratic_programme(sparse.csc_array(quadratic), linear, sparse.csc_array(a), np.zeros(len(a))).x
    return objective_value(x[:m], x[m : m + m * p].reshape(m, p), targets, weights, regularisation)


def simplex_points(random, count, classes):
    return random.dirichlet(np.full(classes, 0.5), count)


def noisy(random, points):
    return ((points - 0.3) ** 2).sum(axis=1) + 0.2 * random.standard_normal(len(points))


@pytest.mark.parametrize("regularisation", [1e-6, 1e-3, 1e-1])
@pytest.mark.parametrize(("count", "classes"), [(60, 2), (60, 3), (40, 5)])
def test_cutting_planes_reach_the_dense_optimum(random, count, classes, regularisation):
    points = simplex_points(random, count, classes)
    targets, weights = noisy(random, points), random.integers(1, 9, count).astype(float)
    fit, _ = fit_cutting_planes(points, targets, weights, regularisation, near_pairs(points, 4), 1e-7)
    assert fit.objective == pytest.approx(dense_optimum(points, targets, weights, regularisation), rel=1e-4)
    assert fit.violation <= 1e-7
    assert excess_over_values(fit.values, fit.slopes, points).max() <= 1e-7


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


@settings(max_examples=15)
@given(st.integers(1, 4), st.integers(0, 1000))
def test_few_and_degenerate_points_are_fitted_exactly(count, seed):
    """Up to K affinely independent points can be met exactly by a plane."""
    points = np.eye(4)[:count]
    targets = np.random.default_rng(seed).random(count)
    fit, _ = fit_cutting_planes(points, targets, np.ones(count), 1e-9, near_pairs(points, 3), 1e-8)
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
    one, _ = fit_cutting_planes(points, targets, weights.astype(float), 1e-4, near_pairs(points, 5), 1e-8)
    many = np.repeat(np.arange(30), weights)
    two, _ = fit_cutting_planes(
        points[many], targets[many], np.ones(len(many)), 1e-4, near_pairs(points[many], 12), 1e-8
    )
    assert two.objective == pytest.approx(one.objective, rel=1e-5)
    assert np.allclose(two.values, one.values[many], atol=1e-3)


def test_an_unbounded_programme_is_an_error_that_carries_numbers():
    empty = sparse.csc_array((1, 1))
    with pytest.raises(NumericalError) as caught:
        solve_quadratic_programme(empty, np.array([-1.0]), sparse.csc_array([[-1.0]]), np.array([0.0]))
    assert caught.value.tolerance > 0
