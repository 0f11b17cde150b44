"""A Gaussian process' mean as a surface: one row of a kernel and one product. NumPy only, for deployment."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from firmbound.arrays import Floats
from firmbound.continuation.risk_frame import RiskFrame
from firmbound.errors import InvalidInput

KernelName = Literal["rbf", "matern-1.5", "matern-2.5"]
# The RBF kernel is the limit of Matern kernels of growing smoothness.
SMOOTHNESS: Mapping[str, float] = {"rbf": math.inf, "matern-1.5": 1.5, "matern-2.5": 2.5}
# Kernel values computed together: one MiB stays in the processor's cache.
VALUES_AT_ONCE = 2**17


def correlation(squared_distance: Floats, smoothness: float) -> Floats:
    """Kernel of unit lengthscale and variance as a function of |x - z|^2."""
    if smoothness == math.inf:
        return np.exp(-0.5 * squared_distance)
    root = np.sqrt((2.0 * smoothness) * squared_distance)
    if smoothness == 1.5:
        return np.asarray((1.0 + root) * np.exp(-root))
    return np.asarray((1.0 + root + root * root / 3.0) * np.exp(-root))


@dataclass(frozen=True)
class KernelSurface:
    """floor + scale * (mean_c + <weights_c, k(x)>), with k_i(x) = correlation of x and the i-th inducing point.

    Where the frame is scaled, the bracket is a share, and what a process says beyond [0, 1] is cut off.
    Inputs are (inputs of the frame - centre) @ projection, which standardises them and divides by the lengthscale.
    centre (G, d), projection (G, d, d), inducing (G, m, d): G = 1 if all C costs share them, as the collapsed fit
    does, or G = C. weights (C, m), mean (C,). The variance of the share is
    amplitude_c^2 + constant_c^2 - sum_j sharpness_cj (directions_j . [k(x), 1])^2; constant is the prior deviation of
    the mean, 0 where the mean is a fixed number; directions (G, m + 1, r), sharpness (C, r). noise (C,) and jitter (C,)
    say how the fit went; lengthscale (G,) and amplitude let the step before start from here.
    """

    frame: RiskFrame
    smoothness: float
    centre: Floats
    projection: Floats
    inducing: Floats
    weights: Floats
    mean: Floats
    amplitude: Floats
    constant: Floats
    directions: Floats
    sharpness: Floats
    lengthscale: Floats
    noise: Floats
    jitter: Floats
    kind: ClassVar[str] = "gaussian-process"

    def __post_init__(self) -> None:
        costs, points = self.weights.shape
        groups = len(self.inducing)
        # In memory as after loading, since products of other layouts differ in the last digit.
        for name in ARRAYS:
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name)))
        for name, holds in (
            ("inducing", self.inducing.ndim == 3 and self.inducing.shape[1] == points and groups in (1, costs)),
            ("mean", self.mean.shape == self.amplitude.shape == self.constant.shape == (costs,)),
            ("directions", self.directions.shape[:2] == (groups, points + 1)),
            ("sharpness", self.sharpness.shape == (costs, self.directions.shape[-1])),
            ("projection", self.projection.shape[:2] == self.centre.shape == (groups, self.frame.dimension)),
            ("smoothness", self.smoothness in SMOOTHNESS.values()),
        ):
            if not holds:
                raise InvalidInput(name, "fit the other parts of the surface", np.shape(getattr(self, name)))

    def __call__(self, statistic: Floats) -> Floats:
        belief, inputs = self.frame.belief(statistic), self.frame.inputs(statistic)
        share = np.empty((len(statistic), len(self.weights)), order="F")
        for rows in self._blocks(len(statistic)):
            for group in range(len(self.inducing)):
                costs = self._costs(group)
                share[rows, costs] = self._kernel(inputs[rows], group) @ self.weights[costs].T
        share += self.mean
        if self.frame.scaled:
            np.clip(share, 0.0, 1.0, out=share)
        share *= self.frame.scale(belief)[:, None]
        share += self.frame.floor(belief)[:, None]
        return share

    def at(self, statistic: Floats) -> float:
        kernel = self._row(statistic)
        share = float(kernel @ self.weights[0]) + self._first_mean
        if not self.frame.scaled:
            return share
        belief, share = self.frame.belief(statistic), min(max(share, 0.0), 1.0)
        return float(belief @ (self.frame.least + share * (self.frame.regret @ belief)))

    def deviation(self, statistic: Floats) -> Floats:
        """Standard deviation of the surface given the data of its time step, (m, p) -> (m, C).

        It says how well the risks one step later determine the regression, and takes those risks as true.
        """
        inputs = self.frame.inputs(statistic)
        variance = np.empty((len(statistic), len(self.weights)), order="F")
        prior = self.amplitude**2 + self.constant**2
        for rows in self._blocks(len(statistic)):
            for group in range(len(self.inducing)):
                costs = self._costs(group)
                kernel = self._kernel(inputs[rows], group)
                known = (kernel @ self.directions[group, :-1] + self.directions[group, -1]) ** 2
                variance[rows, costs] = prior[costs] - known @ self.sharpness[costs].T
        # A number in [0, 1] deviates by one half at most.
        np.clip(variance, 0.0, 0.25 if self.frame.scaled else math.inf, out=variance)
        scale = self.frame.scale(self.frame.belief(statistic))
        return np.asarray(np.sqrt(variance) * scale[:, None])

    def select(self, index: int) -> KernelSurface:
        one = slice(index, index + 1)
        shared = ("weights", "mean", "amplitude", "constant", "sharpness", "noise", "jitter")
        parts = {name: getattr(self, name)[one] for name in shared}
        if len(self.inducing) > 1:
            own = ("centre", "projection", "inducing", "directions", "lengthscale")
            parts |= {name: getattr(self, name)[one] for name in own}
        return replace(self, **parts)

    def facts(self) -> Mapping[str, float]:
        return {
            "inducing points": float(self.weights.shape[1]),
            "noise": float(self.noise.max()),
            "jitter": float(self.jitter.max()),
        }

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        own = {name: getattr(self, name) for name in ARRAYS} | {"smoothness": np.array([self.smoothness])}
        return own | {f"frame.{name}": array for name, array in self.frame.arrays().items()}

    @classmethod
    def from_arrays(cls, **arrays: NDArray[Any]) -> KernelSurface:
        start = "frame."
        frame = {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}
        own = {name: array for name, array in arrays.items() if not name.startswith(start)}
        smoothness = float(own.pop("smoothness")[0])
        return cls(RiskFrame.from_arrays(**frame), smoothness, **own)

    def _blocks(self, rows: int) -> list[slice]:
        size = max(VALUES_AT_ONCE // self.weights.shape[1], 1)
        return [slice(first, first + size) for first in range(0, rows, size)]

    def _costs(self, group: int) -> slice:
        return slice(None) if len(self.inducing) == 1 else slice(group, group + 1)

    def _kernel(self, inputs: Floats, group: int) -> Floats:
        """(n, m) correlations of standardised inputs and the inducing points of a group."""
        points = (inputs - self.centre[group]) @ self.projection[group]
        known = self.inducing[group]
        if points.shape[1] == 1:
            squared = (points - known[:, 0]) ** 2
        else:
            squared = points @ (-2.0 * known.T)
            squared += (points**2).sum(axis=1)[:, None]
            squared += (known**2).sum(axis=1)
            np.maximum(squared, 0.0, out=squared)
        return correlation(squared, self.smoothness)

    @cached_property
    def _first_mean(self) -> float:
        return float(self.mean[0])

    @cached_property
    def _projected_centre(self) -> Floats:
        return np.asarray(self.centre[0] @ self.projection[0])

    def _row(self, statistic: Floats) -> Floats:
        """Kernel row of one point, first group: what `at` needs, with as few calls as can be."""
        point = self.frame.inputs(statistic) @ self.projection[0] - self._projected_centre
        apart = self.inducing[0] - point
        return correlation(np.einsum("md,md->m", apart, apart), self.smoothness)


ARRAYS = tuple(field.name for field in fields(KernelSurface) if field.name not in ("frame", "smoothness"))
