"""Sparse Gaussian process regression with the optimal variational distribution in closed form (collapsed bound).

For a Gaussian likelihood, the best variational distribution at inducing points Z is known given the kernel, and
putting it in leaves a bound on the evidence with a handful of parameters, here maximised by L-BFGS. With K = k + 1 (a
correlation and an uncertain constant), K_ZZ = L L^T, A = L^-1 K_ZX S^-1/2, amplitude a and noise q S, for each column
y of targets

    2 bound = - log det B - n log q - sum log S - y^T S^-1 y / q + a^2 / q^2 |B^-1/2 A S^-1/2 y|^2
              - a^2 / q tr(S^-1 (K_XX - Q_XX)) - freedom log q - within / q + constants,      B = I + a^2 / q A A^T.

The last two terms are what the observations inside a cell say about the noise: means, sizes and sums of squares of
cells lose nothing of the likelihood of observations with equal inputs. All columns share X, hence A and the
lengthscale.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

import gpytorch
import numpy as np
import torch
from scipy import optimize
from torch import Tensor

from firmbound.arrays import Floats
from firmbound.continuation.kernel_surface import KernelName
from firmbound.devices import one_thread, torch_device
from firmbound.errors import InvalidInput, NumericalError

# Added to the diagonal of K_ZZ, which is 2, and the most that is tried when a factorisation fails.
LEAST_JITTER, LARGEST_JITTER = 1e-8, 1e-3
# The same for B, as a share of its trace: what rounding may have taken from its eigenvalues.
ROUNDING = 1e-13
# Before any cell holds two observations, this share of the targets' variance is taken for noise, believed as if so many
# degrees of freedom had shown it; and the least share.
NOISE_UNKNOWN, NOISE_BELIEF, LEAST_NOISE = 1e-2, 30.0, 1e-6
# Logarithms of lengthscale, amplitude and noise are believed to lie so far from 0, 0 and their first estimates. It
# keeps a handful of observations from asking for absurd kernels and is not noticed by thousands.
PRIOR_DEVIATION = np.array([1.5, 1.5, 1.0])
FARTHEST = 6.0  # where logarithms may go
MOST_ITERATIONS = 60
SMALL_KERNEL = 200_000  # values of K_ZX up to which one thread is quicker


@dataclass(frozen=True)
class CellTargets:
    """What cells of observations with nearly equal inputs leave: inputs (n, d) and means (n, C) of n cells.

    A cell's mean has the noise variance q_c * spread_i; sums of squares inside the cells, divided by what they would be
    at q_c = 1, add up to `within` (C,) with `freedom` degrees of freedom.
    """

    inputs: Floats
    means: Floats
    spread: Floats
    within: Floats
    freedom: float


@dataclass(frozen=True)
class SparseFit:
    """Posterior of C processes: means[c] + <weights[c], k(x, Z)>, and its variance.

    The variance is 2 amplitude_c^2 - sum_j sharpness_cj (directions_j . (k(x, Z) + 1))^2, with k of the given
    lengthscale and unit variance. bound (C,) is the log evidence's, in the targets' units.
    """

    lengthscale: float
    amplitude: Floats
    noise: Floats
    weights: Floats
    mean: Floats
    directions: Floats
    sharpness: Floats
    bound: Floats
    jitter: float
    evaluations: int


def gpytorch_kernel(name: KernelName, batch: tuple[int, ...] = ()) -> gpytorch.kernels.Kernel:
    """GPyTorch's kernel of a name, lengthscale 1, variance 1."""
    shape = torch.Size(batch)
    if name == "rbf":
        kernel: gpytorch.kernels.Kernel = gpytorch.kernels.RBFKernel(batch_shape=shape)
    else:
        kernel = gpytorch.kernels.MaternKernel(nu=float(name.removeprefix("matern-")), batch_shape=shape)
    kernel.double()
    kernel.lengthscale = 1.0
    return kernel.requires_grad_(False)


def factorise(matrix: Tensor) -> tuple[Tensor, float]:
    """Cholesky factor of a matrix with as much added to its diagonal as it needs, and how much that was."""
    jitter = LEAST_JITTER
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    while jitter <= LARGEST_JITTER:
        factor, failed = torch.linalg.cholesky_ex(matrix + jitter * identity)
        if not failed.any() and bool(torch.isfinite(factor).all()):
            return factor, jitter
        jitter *= 10.0
    least = float(torch.linalg.eigvalsh(matrix).min()) if bool(torch.isfinite(matrix).all()) else float("nan")
    raise _unfactorised("The kernel matrix of the inducing points (least eigenvalue given)", least, LARGEST_JITTER)


def _unfactorised(what: str, residual: float, tolerance: float) -> NumericalError:
    advice = "Use fewer inducing points, a Matern kernel or inputs of a moderate size."
    return NumericalError(f"{what} does not factorise", residual=residual, tolerance=tolerance, advice=advice)


class CollapsedBound:
    """The bound above as a function of log lengthscale, log amplitudes (C,) and log noises (C,), in unit targets."""

    def __init__(self, data: CellTargets, inducing: Floats, kernel: KernelName, device: str = "cpu") -> None:
        check_finite(inputs=data.inputs, means=data.means, spread=data.spread, within=data.within, inducing=inducing)
        place = torch_device(device)
        weight = 1.0 / data.spread
        self.centre = (weight @ data.means) / weight.sum()
        deviation = np.sqrt((weight @ (data.means - self.centre) ** 2) / weight.sum())
        # Constant targets have no scale of their own; any will do.
        self.scale = np.where(deviation > 1e-9 * np.abs(self.centre), deviation, np.maximum(np.abs(self.centre), 1e-9))

        def tensor(values: Floats) -> Tensor:
            return torch.as_tensor(values, dtype=torch.float64, device=place)

        self.kernel = gpytorch_kernel(kernel).to(place)
        self.inputs, self.inducing = tensor(data.inputs), tensor(inducing)
        self.root = tensor(np.sqrt(data.spread))
        self.targets = tensor((data.means - self.centre) / self.scale).T / self.root  # (C, n)
        self.squares = (self.targets**2).sum(dim=1)
        self.weight = (self.root**-2).sum()
        self.log_spread = float(np.log(data.spread).sum())
        self.freedom, self.within = data.freedom, tensor(data.within / self.scale**2)
        believed = NOISE_BELIEF * NOISE_UNKNOWN / np.median(data.spread)
        level = (data.within / self.scale**2 + believed) / (data.freedom + NOISE_BELIEF)
        self.noise_guess = np.log(np.maximum(level, LEAST_NOISE))

    def features(self, log_lengthscale: Tensor) -> tuple[Tensor, Tensor, float]:
        """L (m, m), A (m, n), and the jitter that L needed."""
        shrink = torch.exp(-log_lengthscale)
        points, known = self.inputs * shrink, self.inducing * shrink
        factor, jitter = factorise(self.kernel(known).to_dense() + 1.0)
        across = self.kernel(known, points).to_dense() + 1.0
        return factor, torch.linalg.solve_triangular(factor, across, upper=False) / self.root, jitter

    def parts(self, features: Tensor, log_amplitude: Tensor, log_noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """a^2 / q (C,), Cholesky factors of B (C, m, m), and B^-1/2 A S^-1/2 y (C, m)."""
        ratio = torch.exp(2 * log_amplitude - log_noise)
        inner = features @ features.T
        identity = torch.eye(len(inner), dtype=inner.dtype, device=inner.device)
        diagonal = 1.0 + ROUNDING * ratio * torch.trace(inner)
        factor, failed = torch.linalg.cholesky_ex(diagonal[:, None, None] * identity + ratio[:, None, None] * inner)
        if failed.any():
            raise _unfactorised("The matrix of the collapsed bound", float(ratio.max()), 1 / ROUNDING)
        reduced = torch.linalg.solve_triangular(factor, (self.targets @ features.T)[:, :, None], upper=False)
        return ratio, factor, reduced[:, :, 0]

    def __call__(self, log_lengthscale: Tensor, log_amplitude: Tensor, log_noise: Tensor) -> Tensor:
        """(C,) bounds, without the constant - (n + freedom) / 2 log 2 pi."""
        _, features, _ = self.features(log_lengthscale)
        ratio, factor, reduced = self.parts(features, log_amplitude, log_noise)
        log_determinant = 2 * torch.log(torch.diagonal(factor, dim1=1, dim2=2)).sum(dim=1)
        observations = self.inputs.shape[0] + self.freedom
        misfit = (self.squares + self.within - ratio * (reduced**2).sum(dim=1)) * torch.exp(-log_noise)
        unexplained = ratio * (2 * self.weight - (features**2).sum())
        return -0.5 * (log_determinant + observations * log_noise + self.log_spread + misfit + unexplained)

    def posterior(self, logs: Floats, evaluations: int) -> SparseFit:
        """The process at the given parameters: log lengthscale, log amplitudes, log noises in one vector."""
        with torch.no_grad():
            lengthscale, amplitude, noise = self.split(torch.as_tensor(logs, device=self.inputs.device))
            bound = self(lengthscale, amplitude, noise)
            factor, features, jitter = self.features(lengthscale)
            ratio, inner, reduced = self.parts(features, amplitude, noise)
            solved = torch.linalg.solve_triangular(inner.mT, reduced[:, :, None], upper=True)[:, :, 0]
            weights = torch.linalg.solve_triangular(factor.T, (ratio[:, None] * solved).T, upper=True).T
            sizes, vectors = torch.linalg.eigh(features @ features.T)
            directions = torch.linalg.solve_triangular(factor.T, vectors, upper=True)
            known = torch.exp(2 * amplitude)[:, None] * (1 - 1 / (1 + ratio[:, None] * sizes.clamp_min(0.0)))
        weights_ = weights.cpu().numpy() * self.scale[:, None]
        if not np.all(np.isfinite(weights_)):
            raise _unfactorised("The posterior of the process", float("nan"), LARGEST_JITTER)
        return SparseFit(
            lengthscale=float(np.exp(logs[0])),
            amplitude=np.exp(amplitude.cpu().numpy()) * self.scale,
            noise=np.exp(noise.cpu().numpy()) * self.scale**2,
            weights=weights_,
            mean=self.centre + weights_.sum(axis=1),
            directions=directions.cpu().numpy(),
            sharpness=known.cpu().numpy() * self.scale[:, None] ** 2,
            bound=bound.cpu().numpy() - (len(self.inputs) + self.freedom) * np.log(self.scale),
            jitter=jitter,
            evaluations=evaluations,
        )

    @staticmethod
    def split(logs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        columns = (len(logs) - 1) // 2
        return logs[0], logs[1 : 1 + columns], logs[1 + columns :]


def fit_sparse_process(
    data: CellTargets,
    inducing: Floats,
    kernel: KernelName,
    start: tuple[float, Floats] | None = None,
    device: str = "cpu",
) -> SparseFit:
    """Maximise the summed bound, from (lengthscale, amplitudes in the targets' units) if given."""
    small = len(inducing) * len(data.inputs) <= SMALL_KERNEL
    with one_thread() if small else nullcontext():
        return _maximise(CollapsedBound(data, inducing, kernel, device), data, start)


def _maximise(bound: CollapsedBound, data: CellTargets, start: tuple[float, Floats] | None) -> SparseFit:
    columns = len(bound.scale)
    likely = np.concatenate([np.zeros(1 + columns), bound.noise_guess])
    first = likely.copy()
    if start is not None:
        first[0], first[1 : 1 + columns] = np.log(start[0]), np.log(start[1] / bound.scale)
    first = np.clip(first, likely - FARTHEST, likely + FARTHEST)
    width = np.repeat(PRIOR_DEVIATION, [1, columns, columns])
    # All observations speak of the noise, few of the kernel: in these units curvatures are of a size.
    unit = np.repeat([1.0, 1.0, np.sqrt(2.0 / (len(data.inputs) + data.freedom))], [1, columns, columns])

    def loss(steps: Floats) -> tuple[float, Floats]:
        logs = first + unit * steps
        point = torch.tensor(logs, dtype=torch.float64, device=bound.inputs.device, requires_grad=True)
        value = -bound(*bound.split(point)).sum()
        value.backward()  # type: ignore[no-untyped-call]
        assert point.grad is not None
        away = (logs - likely) / width
        return value.item() + 0.5 * float(away @ away), unit * (point.grad.cpu().numpy() + away / width)

    found = optimize.minimize(
        loss,
        np.zeros(len(first)),
        jac=True,
        method="L-BFGS-B",
        bounds=optimize.Bounds((likely - FARTHEST - first) / unit, (likely + FARTHEST - first) / unit),
        options={"maxiter": MOST_ITERATIONS, "ftol": 1e-9, "gtol": 1e-2},
    )
    return bound.posterior(first + unit * np.asarray(found.x), int(found.nfev))


def check_finite(**arrays: Floats) -> None:
    for name, array in arrays.items():
        if not np.all(np.isfinite(array)):
            bad = np.count_nonzero(~np.isfinite(array))
            raise InvalidInput(name, "be finite", f"{bad} NaN or infinite of {array.size} values")
