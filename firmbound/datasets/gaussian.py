"""Sequential Gaussian classes whose evidence is known exactly (the paper's first experiment)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from firmbound.arrays import Floats
from firmbound.datasets.generated import FeatureProblem, Seed
from firmbound.errors import InvalidInput
from firmbound.posterior import class_prior
from firmbound.trajectories import Batch


@dataclass(frozen=True)
class GaussianProblem(FeatureProblem):
    """x_t ~ N(separation * e_y, I) in `dimension` dimensions, independent over t given the class y."""

    separation: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dimension < self.classes:
            raise InvalidInput(
                "dimension",
                f"be at least the number of classes ({self.classes})",
                self.dimension,
                "Class k moves axis k.",
            )
        if not (np.isfinite(self.separation) and self.separation > 0):
            raise InvalidInput("separation", "be positive and finite", self.separation)

    @property
    def step_covariance(self) -> Floats:
        """Covariance of one step of evidence, whatever the class.  -> (K, K)."""
        return self.separation**2 * np.eye(self.classes)

    @property
    def step_means(self) -> Floats:
        """Mean of one step of evidence; row = true class.  -> (K, K)."""
        return self.separation**2 * np.eye(self.classes)

    def batch(self, index: int, *, with_features: bool = True) -> Batch:
        choose, informative, rest = self._streams(index, 3)
        rows = self._rows(index)
        labels = choose.choice(self.classes, size=rows, p=self.prior)
        # Only the first K axes tell classes apart. They have their own stream, so evidence alone costs K / d of all.
        signal = informative.standard_normal((rows, self.horizon, self.classes), dtype=np.float32)
        signal += np.float32(self.separation) * np.eye(self.classes, dtype=np.float32)[labels][:, None, :]
        evidence = self.evidence_of(signal)
        features = None
        if with_features:
            noise = (rows, self.horizon, self.dimension - self.classes)
            features = np.concatenate([signal, rest.standard_normal(noise, dtype=np.float32)], axis=-1)
        return Batch(labels=labels, classes=self.classes, features=features, evidence=evidence)

    def evidence_of(self, features: NDArray[Any]) -> NDArray[Any]:
        """log N(x_1..t; separation e_k, I) less what all classes share: separation * sum_s x_sk.  -> (n, T, K) float32.

        All means have the same length, so |mean|^2 / 2 is shared too. The largest class is put at 0, which keeps the
        digits of float32 for the differences that matter.
        """
        evidence = self.separation * np.cumsum(features[..., : self.classes], axis=1, dtype=np.float64)
        return np.asarray(evidence - evidence.max(axis=-1, keepdims=True), dtype=np.float32)


def gaussian(
    classes: int = 2,
    sequences: int = 20_000,
    horizon: int = 50,
    seed: Seed = 0,
    *,
    dimension: int = 128,
    separation: float = 0.5,
    prior: ArrayLike | None = None,
) -> GaussianProblem:
    """K Gaussian classes with means separation * e_k and identity covariance; exact evidence.

    >>> problem = gaussian(classes=3, sequences=5_000, seed=1)
    >>> problem.evidence.shape
    (5000, 50, 3)
    """
    if classes < 2:
        raise InvalidInput("classes", "be at least 2", classes)
    weights = tuple(float(p) for p in class_prior(prior, classes))
    return GaussianProblem(sequences, horizon, seed, weights, dimension=dimension, separation=separation)
