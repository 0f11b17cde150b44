"""The paper's estimator on GPyTorch: a variational Gaussian process trained by Adam on mini-batches.

Inducing points are drawn from the data without replacement and learned; the mean is a constant, the kernel scaled, the
likelihood Gaussian, the variational distribution a full Cholesky factor. Epochs visit all observations in a new order,
the last, smaller batch included. Everything is in double precision. C columns of targets are C independent processes.
"""

from __future__ import annotations

from dataclasses import dataclass

import gpytorch
import numpy as np
import torch
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor

from firmbound.arrays import Floats
from firmbound.continuation.kernel_surface import KernelName
from firmbound.continuation.sparse_process import LEAST_JITTER, check_finite, factorise, gpytorch_kernel
from firmbound.devices import torch_device
from firmbound.errors import NumericalError

# GPyTorch's own addition to the diagonal of a whitened strategy, double precision; it warns when it needs more.
STRATEGY_JITTER = 1e-6


@dataclass(frozen=True)
class Training:
    """How the process is trained; the defaults are the paper's, which does not state the learning rate."""

    inducing: int = 200
    epochs: int = 30
    batch: int = 2_000
    learning_rate: float = 0.01
    seed: int = 0


@dataclass(frozen=True)
class VariationalFit:
    """Posterior of C processes: mean[c] + <weights[c], k(x, Z_c)>, k of lengthscale[c] and unit variance.

    inducing (C, m, d). The variance is amplitude_c^2 - sum_j sharpness_cj (directions_cj . k(x, Z_c))^2.
    losses (epochs,): mean negative bound of an observation, summed over columns.
    """

    inducing: Floats
    lengthscale: Floats
    amplitude: Floats
    noise: Floats
    weights: Floats
    mean: Floats
    directions: Floats
    sharpness: Floats
    jitter: float
    losses: Floats


class VariationalProcess(gpytorch.models.ApproximateGP):  # type: ignore[misc]
    """Batch of independent processes with the given inducing points (C, m, d)."""

    def __init__(self, inducing: Tensor, kernel: KernelName) -> None:
        batch = inducing.shape[:1]
        distribution = gpytorch.variational.CholeskyVariationalDistribution(
            inducing.shape[1], batch_shape=batch, mean_init_std=0.0
        )
        super().__init__(
            gpytorch.variational.VariationalStrategy(self, inducing, distribution, learn_inducing_locations=True)
        )
        self.mean_module = gpytorch.means.ConstantMean(batch_shape=batch)
        base = gpytorch_kernel(kernel, tuple(batch)).requires_grad_(True)
        self.covar_module = gpytorch.kernels.ScaleKernel(base, batch_shape=batch)

    def forward(self, inputs: Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(inputs), self.covar_module(inputs))


def fit_variational_process(
    inputs: Floats, targets: Floats, kernel: KernelName, training: Training, device: str = "cpu"
) -> VariationalFit:
    """Regress targets (n, C) on inputs (n, d), both of about unit scale."""
    check_finite(inputs=inputs, targets=targets)
    return export(*train(inputs, targets, kernel, training, torch_device(device)))


def train(
    inputs: Floats, targets: Floats, kernel: KernelName, training: Training, place: torch.device
) -> tuple[VariationalProcess, gpytorch.likelihoods.GaussianLikelihood, Floats]:
    """GPyTorch's model and likelihood after the last epoch, and the losses of all."""
    generator = torch.Generator().manual_seed(training.seed)
    x = torch.as_tensor(inputs, dtype=torch.float64, device=place)
    y = torch.as_tensor(targets.T.copy(), dtype=torch.float64, device=place)
    distinct = torch.unique(x, dim=0)
    chosen = torch.randperm(len(distinct), generator=generator)[: training.inducing]
    model = VariationalProcess(distinct[chosen].repeat(len(y), 1, 1), kernel).double().to(place)
    likelihood = gpytorch.likelihoods.GaussianLikelihood(batch_shape=y.shape[:1]).double().to(place)
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(x))
    adam = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=training.learning_rate)
    losses = np.zeros(training.epochs)
    for epoch in range(training.epochs):
        for rows in torch.split(torch.randperm(len(x), generator=generator), training.batch):
            adam.zero_grad()
            loss = _negative_bound(bound, model, x[rows], y[:, rows])
            loss.backward()  # type: ignore[no-untyped-call]
            adam.step()
            losses[epoch] += loss.item() * len(rows) / len(x)
    return model, likelihood, losses


def _negative_bound(
    bound: gpytorch.mlls.VariationalELBO, model: VariationalProcess, inputs: Tensor, targets: Tensor
) -> Tensor:
    try:
        loss: Tensor = -bound(model(inputs.expand(len(targets), -1, -1)), targets).sum()
        reason = "its bound is no number"
    except (NotPSDError, NanError) as problem:
        loss, reason = torch.tensor(float("nan")), str(problem)[:120]
    if not torch.isfinite(loss):
        raise NumericalError(
            f"The variational process lost its factorisation ({reason})",
            residual=loss.item(),
            tolerance=STRATEGY_JITTER,
            advice="Use a lower learning rate, fewer inducing points or a Matern kernel; or the collapsed solver.",
        )
    return loss


def export(
    model: VariationalProcess, likelihood: gpytorch.likelihoods.GaussianLikelihood, losses: Floats
) -> VariationalFit:
    """The trained process in the closed form that a surface evaluates, without GPyTorch."""
    strategy = model.variational_strategy
    with torch.no_grad():
        model(strategy.inducing_points)  # the strategy remembers its distribution of before the last step until called
        base = model.covar_module.base_kernel
        variance = model.covar_module.outputscale  # (C,)
        known = strategy.inducing_points
        identity = torch.eye(known.shape[1], dtype=known.dtype, device=known.device)
        factor, jitter = factorise(
            variance[:, None, None] * base(known).to_dense() + (STRATEGY_JITTER - LEAST_JITTER) * identity
        )
        q = strategy.variational_distribution
        # The strategy is whitened: u = mean + L v with v ~ q, so f(x) = mean + a^2 k(x, Z) L^-T v.
        back = torch.linalg.solve_triangular(factor.mT, q.mean[:, :, None], upper=True)[:, :, 0]
        sizes, vectors = torch.linalg.eigh(identity - q.covariance_matrix)
        directions = torch.linalg.solve_triangular(factor.mT, vectors, upper=True)
        return VariationalFit(
            inducing=known.cpu().numpy(),
            lengthscale=base.lengthscale[:, 0, 0].cpu().numpy(),
            amplitude=variance.sqrt().cpu().numpy(),
            noise=likelihood.noise[:, 0].cpu().numpy(),
            weights=(variance[:, None] * back).cpu().numpy(),
            mean=model.mean_module.constant.cpu().numpy(),
            directions=(variance[:, None, None] * directions).cpu().numpy(),
            sharpness=sizes.cpu().numpy(),
            jitter=STRATEGY_JITTER - LEAST_JITTER + jitter,
            losses=losses,
        )
