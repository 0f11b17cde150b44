"""Features at a common scale: mean and deviation of each over all training steps, gathered part by part.

Of training sequences alone, and the same numbers at every step: nothing of a sequence's future enters its features.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firmbound.arrays import Floats, Ints
from firmbound.bundle import read_bundle, write_bundle
from firmbound.errors import BundleError, InvalidInput

KIND = "scaling"
# Deviations below this share of the mean are rounding: such a feature does not vary.
ROUNDING = 1e-6
# Numbers that are looked at together: they stay in a core's cache.
BLOCK_NUMBERS = 200_000


@dataclass(frozen=True)
class Moments:
    """Of `count` steps: mean (d,), and sum of squared distances from it (d,)."""

    count: int
    mean: Floats
    squares: Floats

    @classmethod
    def of(cls, features: NDArray[Any], lengths: Ints | None = None) -> Moments:
        """Of the steps that sequences (n, T, d) have, a few sequences at a time."""
        n, horizon, dimension = features.shape
        # Distances from some number of the right size lose no digits, as distances from 0 would.
        origin = features[0, 0].astype(np.float32)
        total, squares = np.zeros(dimension), np.zeros(dimension)
        together = max(1, BLOCK_NUMBERS // (horizon * dimension))
        for start in range(0, n, together):
            block = features[start : start + together]
            there: Any = slice(None)
            if lengths is not None:
                there = (np.arange(horizon) < lengths[start : start + together, None]).reshape(-1)
            steps = block.reshape(-1, dimension)[there] - origin
            total += np.ones(len(steps), dtype=np.float32) @ steps
            with np.errstate(over="ignore", invalid="ignore"):
                squares += np.einsum("td,td->d", steps, steps)
        count = n * horizon if lengths is None else int(lengths.sum())
        mean = total / count
        return cls(count, mean + origin, np.maximum(squares - count * mean**2, 0.0))

    def __add__(self, other: Moments) -> Moments:
        count = self.count + other.count
        apart = other.mean - self.mean
        mean = self.mean + apart * (other.count / count)
        squares = self.squares + other.squares + apart**2 * (self.count * other.count / count)
        return Moments(count, mean, squares)

    def scaling(self) -> Scaling:
        if not (np.isfinite(self.mean).all() and np.isfinite(self.squares).all()):
            got = f"others, the first feature {int(np.argmin(np.isfinite(self.mean + self.squares)))}"
            raise InvalidInput("features", "be of a size whose squares are numbers, to be put to scale", got)
        deviation = np.sqrt(self.squares / self.count)
        varies = deviation > ROUNDING * np.abs(self.mean)
        return Scaling(self.mean, np.where(varies, deviation, 1.0))


@dataclass(frozen=True)
class Scaling:
    """(features - mean) / scale, (d,) each."""

    mean: Floats
    scale: Floats

    def __call__(self, features: NDArray[Any]) -> NDArray[np.float32]:
        """(.., d) -> (.., d)."""
        return ((features - self.mean) / self.scale).astype(np.float32)

    def save(self, path: str | Path) -> None:
        write_bundle(path, kind=KIND, header={}, arrays={"mean": self.mean, "scale": self.scale})

    @classmethod
    def load(cls, path: str | Path) -> Scaling:
        _, arrays = read_bundle(path, kind=KIND)
        mean, scale = arrays.get("mean"), arrays.get("scale")
        if mean is None or scale is None or mean.shape != scale.shape or not (scale > 0).all():
            raise BundleError(f"{path} holds no mean and positive scale of each feature.")
        return cls(mean.astype(np.float64), scale.astype(np.float64))
