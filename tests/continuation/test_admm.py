"""The paper's ADMM against an independent dense quadratic programme, and its parts against brute force."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar, nnls

from firmbound.continuation import admm
from firmbound.continuation.admm import AdmmOptions, fit_admm, slope_bounds
from firmbound.continuation.convex_objective import excess_over_values, objective_value
from firmbound.errors import InvalidInput, NotConvergedWarning
from tests.continuation.reference import dense_optimum

ACCURATE = AdmmOptions(tolerance=2e-5)


@pytest.fixture(autouse=True)
def _one_thread():
    """Arrays this small are slower on many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def problem(random, count, classes, costs=1):
    points = random.dirichlet(np.full(classes, 0.5), count)
    targets = ((points - 0.3) ** 2).sum(axis=1)[:, None] + 0.2 * random.standard_normal((count, costs))
    return points, 0.3 * targets, random.integers(1, 9, count).astype(float)


@pytest.mark.parametrize(("regularisation", "tolerance"), [(1e-3, 2e-5), (1e-1, 1e-6)])
@pytest.mark.parametrize(("count", "classes"), [(60, 2), (80, 3), (60, 5)])
def test_the_dense_optimum_is_reached_and_bounded_from_below(random, count, classes, regularisation, tolerance):
    """Where the penalty rules, the objective is small against the targets' spread, so residuals must be smaller."""
    points, targets, weights = problem(random, count, classes)
    exact = dense_optimum(points, targets[:, 0], weights, regularisation)
    (fit,) = fit_admm(points, targets, weights, regularisation, AdmmOptions(tolerance=tolerance))
    assert fit.converged
    assert fit.objective == pytest.approx(exact, rel=1e-4)
    assert fit.objective * (1 - fit.gap) <= exact * (1 + 1e-7)
    assert fit.gap <= 3e-4


@pytest.mark.parametrize("options", [AdmmOptions(iterations=30), AdmmOptions(iterations=60, averaged=True)])
def test_an_early_end_still_gives_a_convex_fit_and_a_true_bound(random, options):
    points, targets, weights = problem(random, 60, 3)
    exact = dense_optimum(points, targets[:, 0], weights, 1e-2)
    (fit,) = fit_admm(points, targets, weights, 1e-2, options)
    assert fit.rounds == options.iterations
    assert fit.violation > 1e-4
    assert excess_over_values(fit.values, fit.slopes, points).max() <= 1e-12
    assert np.allclose((points @ fit.slopes.T + fit.offsets).max(axis=1), fit.values)
    assert fit.objective * (1 - fit.gap) <= exact * (1 + 1e-7) <= fit.objective * (1 + 2e-7)
    assert fit.objective == objective_value(fit.values, fit.slopes, targets[:, 0], weights, 1e-2)


def test_the_papers_setting_runs_its_course(random):
    points, targets, weights = problem(random, 40, 3)
    options = AdmmOptions.paper(40, 3, 0.3)
    assert (options.iterations, options.relaxation, options.adaptive) == (120, 1.0, False)
    assert options.rho == pytest.approx(np.sqrt(3) * 0.3**2 / 40)
    (fit,) = fit_admm(points, targets, weights, 0.3, options)
    assert fit.rounds == 120
    assert fit.objective == pytest.approx(dense_optimum(points, targets[:, 0], weights, 0.3), rel=1e-2)


def printed_bound(gamma, size, price):
    """Algorithm 1 line by line; knot_1 is the largest."""
    knots = np.sort(np.concatenate([gamma + size, gamma - size]))[::-1]
    f, slope = price, 0.0
    for j in range(1, len(knots)):
        slope += 0.5
        f += slope * (knots[j] - knots[j - 1])
        if f <= 0:
            return max(knots[j] - f / slope, 0.0)
    return max(knots[-1] - f / len(gamma), 0.0)


def printed_iterations(x, y, rho, price, rounds):
    """Algorithm 2 as the paper prints it, with p- and alpha corrected, for centred x and y of equal weight."""
    n, d = x.shape
    apart = x[:, None] - x[None]
    inverse = np.linalg.inv(x[:, :, None] * x[:, None] + (np.eye(d) + x.T @ x) / n)
    along = np.einsum("iab,ib->ia", inverse, x)
    height = (along * x).sum(axis=1)
    core = along @ x.T + x @ along.T + x @ inverse.mean(axis=0) @ x.T - height - along.mean(axis=0) @ x.T
    omega = np.diag(2 / (n**2 * rho) + 2 - height) - core / n
    s, alpha = np.zeros((2, n, n))
    up, down, u, eta, gamma = np.zeros((5, n, d))
    for _ in range(rounds):
        theta = (up - down - eta + np.einsum("ij,ija->ia", alpha + s, apart)) / n
        solved = np.einsum("iab,ib->ia", inverse, theta)
        v = (x * solved).sum(axis=1) + x @ solved.mean(axis=0) - (x * solved).sum(axis=1).mean()
        beta = (alpha - alpha.T + s - s.T).mean(axis=1)
        f = np.linalg.solve(omega, 2 * y / (n**2 * rho) + v - beta)
        a = np.einsum("iab,ib->ia", inverse, theta + f[:, None] * x + f @ x / n)
        bounds = [printed_bound(gamma[:, k], np.abs(eta + a)[:, k], price / rho) for k in range(d)]
        excess = f[:, None] - f - np.einsum("ia,ija->ij", a, apart)
        s = np.maximum(-alpha - excess, 0)
        u = np.maximum(bounds - gamma - np.abs(eta + a), 0)
        up, down = (np.maximum(bounds - gamma - u + sign * (eta + a), 0) / 2 for sign in (1, -1))
        alpha, gamma, eta = alpha + s + excess, gamma + u + up + down - bounds, eta + a - up + down
    return f, a, excess.max()


def test_the_papers_setting_is_the_printed_algorithm(random):
    points, targets, _ = problem(random, 20, 3)
    targets -= targets.mean()
    options = replace(AdmmOptions.paper(20, 3, 0.05), iterations=40)
    f, a, broken = printed_iterations(points - points.mean(axis=0), targets[:, 0], options.rho, 0.05, 40)
    (fit,) = fit_admm(points, targets, np.ones(20), 0.05, options)
    pieces = f + np.einsum("jia,ia->ji", points[:, None] - points[None], a)
    assert fit.violation == pytest.approx(broken, rel=1e-9)
    assert np.allclose(fit.values, pieces.max(axis=1), atol=1e-12)
    assert np.allclose(fit.slopes, a[pieces.argmax(axis=1)], atol=1e-12)


def test_together_is_as_alone(random):
    """Costs stop at different times and with different rho; none notices the others."""
    points, targets, weights = problem(random, 30, 3, costs=3)
    targets *= [1.0, 0.1, 3.0]
    options = AdmmOptions(tolerance=1e-3)
    together = fit_admm(points, targets, weights, 1e-2, options)
    assert len({fit.rounds for fit in together}) > 1
    for cost, fit in enumerate(together):
        (alone,) = fit_admm(points, targets[:, [cost]], weights, 1e-2, options)
        assert alone.rounds == fit.rounds
        assert np.allclose(alone.values, fit.values, rtol=1e-8, atol=1e-10)
        assert np.allclose(alone.slopes, fit.slopes, rtol=1e-6, atol=1e-8)


def test_slabs_do_not_matter(random, monkeypatch):
    points, targets, weights = problem(random, 30, 3, costs=2)
    whole = fit_admm(points, targets, weights, 1e-2, AdmmOptions(iterations=80))
    monkeypatch.setattr(admm, "SLAB_BYTES", 8 * 2 * 30 * 7)
    sliced = fit_admm(points, targets, weights, 1e-2, AdmmOptions(iterations=80))
    for one, other in zip(whole, sliced, strict=True):
        assert np.allclose(one.values, other.values, atol=1e-10)


def test_single_precision_comes_close(random):
    points, targets, weights = problem(random, 50, 3)
    (double,) = fit_admm(points, targets, weights, 1e-2, AdmmOptions(iterations=400))
    (single,) = fit_admm(points, targets, weights, 1e-2, AdmmOptions(iterations=400, dtype="float32"))
    assert single.objective == pytest.approx(double.objective, rel=1e-4)


def left_after(bound, gamma, pulled):
    """Half the least squared distance of (u + p+ + p-, p+ - p-) from (bound - gamma, pulled), u and p+- >= 0."""
    rows = np.array([[1.0, 1.0, 1.0], [0.0, 1.0, -1.0]])
    return sum(nnls(rows, np.array([bound - g, b]))[1] ** 2 / 2 for g, b in zip(gamma, pulled, strict=True))


@pytest.mark.parametrize("price", [1e-3, 0.5, 4.0, 50.0])
def test_slope_bounds_minimise_what_is_left(random, price):
    gamma, pulled = random.standard_normal((2, 3, 6, 2))
    prices = price * np.array([1.0, 0.7, 1.3])
    found = slope_bounds(torch.tensor(gamma), torch.tensor(pulled).abs(), torch.tensor(prices)).numpy()
    assert found.shape == (3, 1, 2)
    for cost, axis in np.ndindex(3, 2):

        def whole(bound, cost=cost, axis=axis):
            return prices[cost] * bound + left_after(bound, gamma[cost, :, axis], pulled[cost, :, axis])

        best = minimize_scalar(whole, bounds=(0.0, 20.0), method="bounded", options={"xatol": 1e-9})
        assert found[cost, 0, axis] == pytest.approx(best.x, abs=1e-5)
        assert whole(found[cost, 0, axis]) <= best.fun + 1e-9


def test_values_and_slopes_minimise_the_augmented_lagrangian(random):
    """Updates 1 and 2 at once, against one least-squares problem with a row for every constraint."""
    m, p, rho = 7, 3, 0.02
    points, targets, weights = problem(random, m, p)
    points -= points.mean(axis=0)
    share, q, pull = weights / weights.sum(), random.standard_normal((m, m)), random.standard_normal((m, p))
    sums = np.column_stack([q @ points, q.sum(axis=1), q.sum(axis=0)])
    block = admm._ValuesAndSlopes(torch.tensor(points), torch.tensor(share))
    block.set_rho(torch.tensor([rho], dtype=torch.float64))
    data = torch.tensor(2 * share * targets[:, 0] / rho)
    values, slopes = block.minimise(torch.tensor(sums)[None], torch.tensor(pull)[None], data[None])
    rows = np.zeros((m, m, m + m * p))
    for i, j in np.ndindex(m, m):
        rows[i, j, i] += 1.0
        rows[i, j, j] -= 1.0
        rows[i, j, m + i * p : m + (i + 1) * p] = points[j] - points[i]
    root = np.sqrt(2 * share / rho)
    identity = np.eye(m + m * p)
    matrix = np.vstack([root[:, None] * identity[:m], rows.reshape(m * m, -1), identity[m:]])
    best = np.linalg.lstsq(matrix, np.concatenate([root * targets[:, 0], -q.ravel(), pull.ravel()]), rcond=None)[0]
    assert np.allclose(values[0], best[:m])
    assert np.allclose(slopes[0].ravel(), best[m:])


def test_equal_weights_equal_repetition(random):
    """Repeated points also try duplicates."""
    points, targets, _ = problem(random, 30, 3)
    weights = random.integers(1, 4, 30)
    many = np.repeat(np.arange(30), weights)
    (one,) = fit_admm(points, targets, weights.astype(float), 1e-2, ACCURATE)
    (two,) = fit_admm(points[many], targets[many], np.ones(len(many)), 1e-2, ACCURATE)
    assert two.objective == pytest.approx(one.objective, rel=1e-4)
    assert np.allclose(two.values, one.values[many], atol=3e-3)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_few_equal_or_constant_points_are_fitted(count):
    point = np.array([[0.2, 0.3, 0.5]])
    for targets in (np.zeros((count, 1)), np.full((count, 1), 0.7)):
        (fit,) = fit_admm(np.repeat(point, count, axis=0), targets, np.ones(count), 1e-3)
        assert np.allclose(fit.values, targets[:, 0], atol=1e-9)
        assert np.allclose(fit.slopes, 0.0, atol=1e-9)


def test_an_iteration_that_ends_too_early_warns(random, monkeypatch):
    monkeypatch.setattr(admm, "MAX_ITERATIONS", 60)
    points, targets, weights = problem(random, 30, 3, costs=2)
    with pytest.warns(NotConvergedWarning, match="2 of 2 costs after 60 iterations"):
        fits = fit_admm(points, targets, weights, 1e-3, AdmmOptions(tolerance=1e-9))
    assert not any(fit.converged for fit in fits)


@pytest.mark.parametrize(
    "broken",
    [{"iterations": 0}, {"tolerance": 0.0}, {"rho": -1.0}, {"relaxation": 2.0}, {"device": "tpu"}, {"dtype": "int8"}],
)
def test_impossible_options_are_named(broken):
    with pytest.raises(InvalidInput, match=next(iter(broken))):
        AdmmOptions(**broken)


def test_impossible_problems_are_named(random):
    points, targets, weights = problem(random, 5, 3)
    with pytest.raises(InvalidInput, match="targets"):
        fit_admm(points, targets[:, 0], weights, 1e-3)
    with pytest.raises(InvalidInput, match="regularisation"):
        fit_admm(points, targets, weights, 0.0)
