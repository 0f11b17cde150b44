"""Series that remember one observation: classes differ in how strongly, and the evidence is known exactly.

Single observations say little, pairs of neighbours say all: a problem that is not i.i.d., for networks of order 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from firmbound.datasets.generated import FeatureProblem, Seed
from firmbound.errors import InvalidInput
from firmbound.posterior import class_prior
from firmbound.trajectories import Batch


@dataclass(frozen=True)
class AutoregressiveProblem(FeatureProblem):
    """x_t = phi_y x_{t-1} + N(0, I), each of `dimension` axes alike, started from its stationary law."""

    coefficients: tuple[float, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dimension < 1:
            raise InvalidInput("dimension", "be at least 1", self.dimension)
        if not all(-1 < phi < 1 for phi in self.coefficients):
            raise InvalidInput("coefficients", "lie between -1 and 1, so that series stay bounded", self.coefficients)
        if len(set(self.coefficients)) < len(self.coefficients):
            raise InvalidInput("coefficients", "differ from class to class", self.coefficients)

    def batch(self, index: int, *, with_features: bool = True) -> Batch:
        choose, innovate = self._streams(index, 2)
        rows = self._rows(index)
        labels = choose.choice(self.classes, size=rows, p=self.prior)
        phi = np.array(self.coefficients)[labels][:, None]
        series = innovate.standard_normal((rows, self.horizon, self.dimension))
        series[:, 0] /= np.sqrt(1.0 - phi**2)
        for t in range(1, self.horizon):
            series[:, t] += phi * series[:, t - 1]
        # Evidence is that of the numbers handed out, which are rounded.
        features = series.astype(np.float32)
        evidence = self.evidence_of(features)
        return Batch(labels, self.classes, features if with_features else None, evidence)

    def evidence_of(self, features: NDArray[Any]) -> NDArray[Any]:
        """log p(x_1..t | phi_k) less what all share.  (n, T, d) -> (n, T, K) float32, the largest class at 0."""
        x = features.astype(np.float64)
        phi = np.array(self.coefficients)
        steps = np.empty((*x.shape[:2], self.classes))
        spread = 1.0 - phi**2
        steps[:, 0] = 0.5 * self.dimension * np.log(spread) - 0.5 * spread * (x[:, 0] ** 2).sum(-1, keepdims=True)
        missed = x[:, 1:, None] - phi[:, None] * x[:, :-1, None]
        steps[:, 1:] = -0.5 * (missed**2).sum(-1)
        evidence = np.cumsum(steps, axis=1)
        return np.asarray(evidence - evidence.max(axis=-1, keepdims=True), dtype=np.float32)


def autoregressive(
    coefficients: Sequence[float] = (0.1, 0.6),
    sequences: int = 20_000,
    horizon: int = 50,
    seed: Seed = 0,
    *,
    dimension: int = 2,
    prior: ArrayLike | None = None,
) -> AutoregressiveProblem:
    """A class for each coefficient; exact evidence.

    >>> autoregressive((-0.5, 0.0, 0.5), sequences=1_000).evidence.shape
    (1000, 50, 3)
    """
    if len(coefficients) < 2:
        raise InvalidInput("coefficients", "be one a class, two at least", tuple(coefficients))
    weights = tuple(float(p) for p in class_prior(prior, len(coefficients)))
    return AutoregressiveProblem(
        sequences, horizon, seed, weights, dimension, coefficients=tuple(float(phi) for phi in coefficients)
    )
