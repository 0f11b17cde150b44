"""Gaussian processes against exact answers: GPyTorch's own bound, the full process, the oracle's continuation risk."""

import gpytorch
import numpy as np
import pytest
import torch

import firmbound
from firmbound.continuation.gaussian_process import PreparedCells, ProcessFitter, ProcessOptions
from firmbound.continuation.kernel_surface import SMOOTHNESS, correlation
from firmbound.continuation.risk_frame import RiskFrame
from firmbound.continuation.sparse_process import (
    LEAST_JITTER,
    CellTargets,
    CollapsedBound,
    factorise,
    fit_sparse_process,
    gpytorch_kernel,
)
from firmbound.continuation.variational_process import Training, export, fit_variational_process, train
from firmbound.errors import InvalidInput, NumericalError
from firmbound.posterior import log_likelihood_ratios, posterior, ranked

KERNELS = list(SMOOTHNESS)


def toy(random, n=60, columns=2):
    """Cells that hold one observation each."""
    x = random.uniform(-2, 2, (n, 2))
    mean = np.sin(2 * x[:, :1]) + np.arange(1, columns + 1) * x[:, 1:]
    spread = random.uniform(0.5, 2.0, n)
    y = mean + np.sqrt(0.05 * spread)[:, None] * random.standard_normal((n, columns))
    return CellTargets(x, y, spread, np.zeros(columns), 0.0)


def dense_kernel(name, a, b, lengthscale):
    return correlation(((a[:, None] - b) ** 2).sum(axis=2) / lengthscale**2, SMOOTHNESS[name]) + 1.0


@pytest.mark.parametrize("name", KERNELS)
def test_our_kernels_are_gpytorchs(name, random):
    a, b = random.standard_normal((20, 3)), random.standard_normal((30, 3))
    theirs = gpytorch_kernel(name)(torch.as_tensor(a), torch.as_tensor(b)).to_dense().numpy()
    assert np.allclose(correlation(((a[:, None] - b) ** 2).sum(axis=2), SMOOTHNESS[name]), theirs, atol=1e-12)


@pytest.mark.parametrize("name", KERNELS)
def test_the_bound_is_gpytorchs_collapsed_bound(name, random):
    """Their sparse regression, built of other parts: an inducing-point kernel, fixed noise, the added trace term."""
    data = toy(random, columns=1)
    inducing = data.inputs[:15]
    bound = CollapsedBound(data, inducing, name)
    lengthscale, amplitude, noise = 0.8, 1.3, 0.2
    ours = bound(
        *(torch.tensor(v).double().log().reshape(s) for v, s in ((lengthscale, ()), (amplitude, 1), (noise, 1)))
    )

    class Constant(gpytorch.kernels.Kernel):
        def forward(self, x1, x2, diag=False, **_):
            return torch.ones(len(x1)).double() if diag else torch.ones(len(x1), len(x2)).double()

    base = gpytorch_kernel(name)
    base.lengthscale = lengthscale
    kernel = gpytorch.kernels.ScaleKernel(base + Constant()).double()
    kernel.outputscale = amplitude**2
    x, y = torch.as_tensor(data.inputs), bound.targets[0] * bound.root
    likelihood = gpytorch.likelihoods.FixedNoiseGaussianLikelihood(torch.as_tensor(noise * data.spread))

    class Sparse(gpytorch.models.ExactGP):
        def __init__(self):
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = gpytorch.kernels.InducingPointKernel(kernel, torch.as_tensor(inducing), likelihood)

        def forward(self, inputs):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(inputs), self.covar_module(inputs))

    model = Sparse().double().train()
    theirs = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)(model(x), y) * len(y)
    constant = 0.5 * len(y) * np.log(2 * np.pi)
    assert ours.item() - constant == pytest.approx(theirs.item(), rel=2e-4)  # their jitter is larger than ours


@pytest.mark.parametrize("name", KERNELS)
def test_with_all_inputs_inducing_it_is_the_full_process(name, random):
    data = toy(random)
    fit = fit_sparse_process(data, data.inputs, name)
    fresh = random.uniform(-2, 2, (40, 2))
    here = dense_kernel(name, data.inputs, data.inputs, fit.lengthscale)
    across = dense_kernel(name, fresh, data.inputs, fit.lengthscale)
    centre = CollapsedBound(data, data.inputs, name).centre
    for column in range(2):
        variance = fit.amplitude[column] ** 2
        total = variance * here + np.diag(fit.noise[column] * data.spread)
        residual = data.means[:, column] - centre[column]
        exact = centre[column] + variance * across @ np.linalg.solve(total, residual)
        ours = fit.mean[column] + (across - 1.0) @ fit.weights[column]
        assert np.allclose(ours, exact, atol=1e-5)
        exact_variance = 2 * variance - variance**2 * np.einsum("ij,ij->i", across @ np.linalg.inv(total), across)
        ours_variance = 2 * variance - (across @ fit.directions) ** 2 @ fit.sharpness[column]
        assert np.allclose(ours_variance, exact_variance, atol=1e-5)
        log_evidence = -0.5 * (np.linalg.slogdet(total)[1] + residual @ np.linalg.solve(total, residual))
        assert fit.bound[column] == pytest.approx(log_evidence, abs=1e-3)


def test_fewer_inducing_points_bound_the_evidence_from_below(random):
    data = toy(random)
    logs = torch.tensor(np.log([0.8, 1.0, 1.0, 0.1, 0.1]))
    bounds = [CollapsedBound(data, data.inputs[:m], "rbf") for m in (5, 15, 30, 60)]
    values = [bound(*bound.split(logs)).numpy() for bound in bounds]
    assert np.all(np.diff(values, axis=0) > -1e-6)


def test_cells_lose_nothing_of_observations_with_equal_inputs(random):
    """One cell of r equal inputs says what its r observations say, whatever the parameters."""
    data, repeats = toy(random, n=40, columns=1), 4
    x = np.repeat(data.inputs, repeats, axis=0)
    y = np.repeat(data.means, repeats, axis=0) + 0.3 * random.standard_normal((40 * repeats, 1))
    each = CellTargets(x, y, np.ones(len(x)), np.zeros(1), 0.0)
    grouped = y.reshape(40, repeats)
    within = ((grouped - grouped.mean(axis=1, keepdims=True)) ** 2).sum(keepdims=True)[0]
    means = grouped.mean(axis=1, keepdims=True)
    cells = CellTargets(data.inputs, means, np.full(40, 1 / repeats), within, 40.0 * (repeats - 1))
    one, other = (CollapsedBound(part, data.inputs[:12], "rbf") for part in (each, cells))
    differences = []
    for lengthscale, amplitude, noise in ((0.5, 0.6, 0.1), (1.2, 0.9, 0.4)):
        values = []
        for bound in (one, other):
            scale = bound.scale[0]
            logs = np.log([lengthscale, amplitude / scale, noise / scale**2])
            values.append(bound.posterior(logs, 0).bound[0])
        differences.append(values[0] - values[1])
    assert differences[0] == pytest.approx(differences[1], abs=1e-7)


def test_costs_are_fitted_together_and_a_warm_start_leads_to_the_same_place(random):
    data = toy(random, n=300, columns=3)
    cold = fit_sparse_process(data, data.inputs[:40], "rbf")
    warm = fit_sparse_process(data, data.inputs[:40], "rbf", start=(cold.lengthscale, cold.amplitude))
    assert warm.evaluations < cold.evaluations
    assert np.allclose(warm.bound, cold.bound, atol=1e-2)


def test_noise_that_depends_on_the_place_is_found(random):
    """Shares with noise proportional to the scale, plus a rest that no scale predicts."""
    belief = random.dirichlet([0.3, 0.3], 40_000)
    options = ProcessOptions(points=300)
    fitter = ProcessFitter(options.frame(np.array([0.5, 0.5]), 1 - np.eye(2)), options)
    ratios = np.log(belief[:, :1]) - np.log(belief[:, 1:])
    prepared = fitter.prepare(ratios)
    assert isinstance(prepared, PreparedCells)
    scale = fitter.frame.scale(belief)
    level = np.where(belief[:, 0] > 0.5, 0.6, 0.1)
    target = 0.5 * scale + np.hypot(level * scale, 3e-3) * random.standard_normal(40_000)

    def share_noise(local):
        """Of a sequence in each cell, as the model has it."""
        data = prepared.cells.targets(prepared.points, target[:, None], local_noise=local)
        return np.sqrt(data.within[0] / data.freedom * data.spread * prepared.cells.size)

    first, usual = prepared.cells.points[:, 0], prepared.cells.first / prepared.cells.size
    quiet, loud, tail = (first < 0.4) & (usual > 0.05), (first > 0.6) & (usual > 0.05), usual < 1e-3
    found = share_noise(local=True)
    assert np.median(found[quiet]) == pytest.approx(0.1, rel=0.2)
    assert np.median(found[loud]) == pytest.approx(0.6, rel=0.2)
    assert tail.any()
    assert np.all(found[tail] * usual[tail] > 1.5e-3)
    even = share_noise(local=False)
    assert np.median(even[quiet]) > 0.2
    surface = prepared.fit(target[:, None])
    assert np.abs(surface(ratios)[:, 0] - 0.5 * scale).max() < 0.02


@pytest.mark.parametrize("n", [300, 800])
def test_one_repeated_sequence_changes_little(n):
    """It is the only cell with two observations: no ground to believe that there is no noise."""
    few = firmbound.datasets.gaussian(3, n, 6, 1, dimension=3, separation=0.8).evidence
    fresh = firmbound.datasets.gaussian(3, 20_000, 6, 2, dimension=3, separation=0.8)
    oracle = firmbound.solve_gaussian(fresh, costs=[0.1])
    for evidence in (few, np.concatenate([few, few[:1]])):
        rule = firmbound.fit_stopping_rule(evidence, costs=[0.1], method="gp")
        regret = oracle.regret(fresh.evidence, rule.decide(fresh.evidence), cost=0.1).mean()
        assert regret / oracle.bayes_risk[0] < 0.015


@pytest.mark.parametrize(("factor", "seed"), [(60, 1), (100, 2), (200, 1)])
def test_overconfident_evidence_is_no_trouble(factor, seed):
    evidence = factor * firmbound.datasets.gaussian(2, 2_000, 6, seed, dimension=3, separation=0.8).evidence
    rule = firmbound.fit_stopping_rule(evidence, costs=[0.02, 0.1], method="gp")
    outlook = rule.outlook(evidence[:, 2], t=3, cost=0.02)
    assert np.all(outlook.continuation_risk <= 10.02)
    assert np.all(outlook.deviation <= 5.0)


@pytest.mark.parametrize("kernel", KERNELS)
def test_few_distinct_inputs_and_many_sequences_factorise(kernel, random):
    evidence = np.zeros((50_000, 3, 2))
    evidence[:, :, 0] = np.round(3 * random.standard_normal((50_000, 1)))
    evidence[:, 1:] *= 1.3
    rule = firmbound.fit_stopping_rule(
        evidence, costs=[0.05, 0.2], method="gp", options=ProcessOptions(kernel=kernel, inducing=200)
    )
    assert np.all(np.isfinite(rule.continuation_risk(evidence[:100, 0], t=1, cost=0.05)))


@pytest.mark.parametrize("size", [30.0, 60.0, 355.0, 700.0])
@pytest.mark.parametrize("classes", [2, 3])
def test_near_certainty_stays_finite(size, classes, random):
    evidence = np.zeros((500, 3, classes))
    evidence[:, :, 0] = size + 0.1 * random.standard_normal((500, 3))
    evidence[:, 2, 0] = random.standard_normal(500)
    rule = firmbound.fit_stopping_rule(evidence, costs=[0.05], method="gp")
    for t in (1, 2):
        outlook = rule.outlook(random.standard_normal((50, classes)), t=t)
        assert np.all((outlook.continuation_risk >= 0) & (outlook.continuation_risk <= 10.05))


@pytest.mark.parametrize("classes", [2, 3, 6])
def test_the_frame_bounds_every_risk(classes, random):
    """Expected regret of deciding at random is never less than that of deciding well."""
    penalty = random.random((classes, classes))
    least = penalty.min(axis=1)
    frame = RiskFrame.create("llr", np.full(classes, 1 / classes), penalty, temperature=3.0, scaled=True)
    assert np.array_equal(frame.scale(np.eye(classes)), np.zeros(classes))
    assert np.array_equal(frame.least, least)
    belief = random.dirichlet(np.full(classes, 0.4), 2_000)
    stopping = (belief @ penalty).min(axis=1)
    floor, scale = frame.floor(belief), frame.scale(belief)
    assert np.all(floor <= stopping + 1e-12)
    assert np.all(stopping <= floor + scale + 1e-12)
    ratios = log_likelihood_ratios(np.log(belief))
    assert np.allclose(frame.belief(ratios), belief, atol=1e-12)


@pytest.mark.parametrize("classes", [2, 3, 12])
def test_the_frame_of_ranks_bounds_every_risk(classes, random):
    frame = RiskFrame.create("ranked", np.full(classes, 1 / classes), 1 - np.eye(classes), temperature=3.0, scaled=True)
    belief = random.dirichlet(np.full(classes, 0.4), 2_000)
    known = ranked(belief)
    assert np.array_equal(frame.floor(known), np.zeros(2_000))
    assert np.all(1 - belief.max(axis=1) <= frame.scale(known) + 1e-12)
    assert frame.scale(np.array([[1.0, 0.0, 0.0]])) == 0.0


def one_step(classes=2, sequences=20_000, t=30, cost=0.1):
    """A step whose exact continuation risk is known: statistic, targets of t + 1, and the truth at t."""
    problem = firmbound.datasets.gaussian(classes, sequences, 40, seed=3, dimension=3, separation=0.5)
    oracle = firmbound.solve_gaussian(problem, costs=[cost])
    prior = np.full(classes, 1 / classes)
    now, later = problem.evidence[:, t - 1].astype(float), problem.evidence[:, t].astype(float)
    stopping = 10 * (1 - posterior(later, prior).max(axis=1))
    targets = np.minimum(stopping, oracle.continuation_risk(later, t=t + 1, cost=cost)) / 10
    truth = (oracle.continuation_risk(now, t=t, cost=cost) - cost) / 10
    return now, targets[:, None], truth


def fitter_for(classes, **options):
    chosen = ProcessOptions(**options)
    return ProcessFitter(chosen.frame(np.full(classes, 1 / classes), 1 - np.eye(classes)), chosen)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_deviation_covers_the_exact_risk(classes):
    evidence, targets, truth = one_step(classes)
    surface = fitter_for(classes).prepare(log_likelihood_ratios(evidence)).fit(targets)
    statistic = log_likelihood_ratios(evidence)
    inside = posterior(evidence, np.full(classes, 1 / classes)).max(axis=1) < 0.99
    apart = np.abs(surface(statistic)[:, 0] - truth)[inside] / surface.deviation(statistic)[:, 0][inside]
    assert np.mean(apart < 3) > 0.9
    assert np.mean(apart > 0.1) > 0.5  # and it is no wild overestimate


def test_local_noise_pays(random):
    evidence, targets, truth = one_step()
    statistic = log_likelihood_ratios(evidence)
    errors = {
        noise: np.sqrt(
            np.mean((fitter_for(2, noise=noise).prepare(statistic).fit(targets)(statistic)[:, 0] - truth) ** 2)
        )
        for noise in ("local", "uniform")
    }
    assert errors["local"] < errors["uniform"]


@pytest.mark.parametrize("statistic", ["llr", "posterior"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_choice_comes_near_the_exact_risk(statistic, kernel):
    evidence, targets, truth = one_step()
    x = posterior(evidence, np.full(2, 0.5)) if statistic == "posterior" else log_likelihood_ratios(evidence)
    surface = fitter_for(2, statistic=statistic, kernel=kernel).prepare(x).fit(targets)
    assert np.sqrt(np.mean((surface(x)[:, 0] - truth) ** 2)) < 2e-3


class TestVariational:
    def test_the_exported_process_is_the_trained_one(self, random):
        x = random.uniform(-2, 2, (300, 2))
        y = np.column_stack([np.sin(2 * x[:, 0]), x[:, 1] ** 2 - 1]) + 0.1 * random.standard_normal((300, 2))
        training = Training(inducing=25, epochs=40, batch=70, learning_rate=0.05)
        model, likelihood, losses = train(x, y, "matern-2.5", training, torch.device("cpu"))
        fit = export(model, likelihood, losses)
        model.eval()
        fresh = random.uniform(-2, 2, (50, 2))
        with torch.no_grad():
            theirs = model(torch.as_tensor(fresh).expand(2, -1, -1))
        for column in range(2):
            squared = ((fresh[:, None] - fit.inducing[column]) ** 2).sum(axis=2) / fit.lengthscale[column] ** 2
            kernel = correlation(squared, 2.5)
            mean = fit.mean[column] + kernel @ fit.weights[column]
            variance = fit.amplitude[column] ** 2 - (kernel @ fit.directions[column]) ** 2 @ fit.sharpness[column]
            assert np.allclose(mean, theirs.mean[column].numpy(), atol=1e-5)
            assert np.allclose(variance, theirs.variance[column].numpy(), atol=1e-4)
        assert np.sqrt(np.mean((theirs.mean[0].numpy() - np.sin(2 * fresh[:, 0])) ** 2)) < 0.15

    def test_training_lowers_the_loss(self, random):
        x = random.standard_normal((205, 1))
        fit = fit_variational_process(
            x, np.sin(x), "rbf", Training(inducing=10, epochs=8, batch=100, learning_rate=0.05)
        )
        assert fit.losses[-1] < fit.losses[0]

    def test_the_last_small_batch_is_not_lost(self, random):
        """One observation more than the batch, far from all others: it moves the mean there."""
        x = np.append(random.standard_normal(100), 8.0)[:, None]
        y = np.where(x > 7, 3.0, 0.0)
        training = Training(inducing=101, epochs=150, batch=100, learning_rate=0.05)
        fit = fit_variational_process(x, y, "rbf", training)
        kernel = correlation((8.0 - fit.inducing[0, :, 0]) ** 2 / fit.lengthscale[0] ** 2, np.inf)
        assert fit.mean[0] + kernel @ fit.weights[0] > 1.5

    def test_the_same_seed_gives_the_same_process_whatever_was_drawn_before(self, random):
        x = random.standard_normal((200, 1))
        fits = []
        for _ in range(2):
            fits.append(fit_variational_process(x, np.sin(x), "rbf", Training(inducing=10, epochs=2, batch=64)))
            torch.randn(7)
        assert np.array_equal(fits[0].weights, fits[1].weights)

    def test_no_inducing_point_is_drawn_twice(self, random):
        x = np.repeat(random.standard_normal((12, 1)), 20, axis=0)
        fit = fit_variational_process(x, np.sin(x), "rbf", Training(inducing=200, epochs=1, learning_rate=1e-9))
        assert fit.inducing.shape == (1, 12, 1)
        assert len(np.unique(fit.inducing)) == 12

    def test_it_never_beats_the_collapsed_bound(self, random):
        """The closed form is the optimum that mini-batches look for."""
        x = random.uniform(-2, 2, (400, 1))
        y = np.sin(2 * x) + 0.3 * random.standard_normal((400, 1))
        fit = fit_variational_process(x, y, "rbf", Training(inducing=15, epochs=60, batch=100, learning_rate=0.05))
        collapsed = fit_sparse_process(CellTargets(x, y, np.ones(400), np.zeros(1), 0.0), fit.inducing[0], "rbf")
        log_evidence = collapsed.bound[0] / 400 - 0.5 * np.log(2 * np.pi)
        assert -fit.losses[-1] < log_evidence + 0.01
        assert -fit.losses[-1] > log_evidence - 0.2


class TestBadInput:
    def test_a_kernel_that_needs_more_jitter_gets_it_and_says_so(self):
        almost = torch.eye(3).double()
        almost[0, 1] = almost[1, 0] = 1.0 + 1e-6
        _, jitter = factorise(almost)
        assert LEAST_JITTER < jitter < 1e-4

    def test_a_kernel_that_will_not_factorise_raises_with_advice(self):
        with pytest.raises(NumericalError, match="fewer inducing points"):
            factorise(-torch.eye(3).double())

    def test_inputs_that_are_not_numbers_are_refused(self):
        x, y = np.array([[0.0], [np.nan]]), np.zeros((2, 1))
        with pytest.raises(InvalidInput, match=r"inputs.*finite"):
            fit_sparse_process(CellTargets(x, y, np.ones(2), np.zeros(1), 0.0), np.zeros((1, 1)), "rbf")
        with pytest.raises(InvalidInput, match=r"inputs.*finite"):
            fit_variational_process(x, y, "rbf", Training())

    @pytest.mark.parametrize("solver", ["collapsed", "variational"])
    def test_fewer_and_repeated_sequences_than_inducing_points_work(self, solver, random):
        belief = np.repeat(random.dirichlet([1.0, 1.0], 5), 40, axis=0)
        fitter = fitter_for(2, solver=solver, statistic="posterior", inducing=200, epochs=2)
        surface = fitter.prepare(belief).fit(0.4 * np.minimum(belief[:, :1], belief[:, 1:]))
        assert surface.weights.shape == (1, 5)
        assert np.all(np.isfinite(surface(belief)))

    def test_a_diverging_training_says_what_to_change(self, random):
        x = random.standard_normal((300, 1))
        with pytest.raises(NumericalError, match="learning rate"):
            fit_variational_process(x, np.sin(x), "rbf", Training(epochs=5, batch=50, learning_rate=1e200))


BAD_OPTIONS = [{"solver": "magic"}, {"statistic": "mood"}, {"kernel": "linear"}, {"temperature": 0.5}, {"inducing": 0}]
BAD_OPTIONS += [{"points": 1}, {"scaling": "none"}, {"noise": "loud"}, {"epochs": 0}, {"batch": 0}]
BAD_OPTIONS += [{"learning_rate": 0.0}, {"device": "abacus"}, {"epochs": 2.5}, {"inducing": "3"}, {"temperature": "3"}]


@pytest.mark.parametrize("options", BAD_OPTIONS)
def test_bad_options_are_refused(options):
    (name,) = options
    with pytest.raises(InvalidInput, match=name):
        ProcessOptions(**options)


def test_the_papers_settings():
    paper = ProcessOptions.paper()
    assert (paper.solver, paper.inducing, paper.epochs, paper.batch) == ("variational", 200, 30, 2_000)
    assert (paper.kernel, paper.temperature, paper.scaling) == ("rbf", None, "risk")
