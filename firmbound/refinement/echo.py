"""A memory that needs no training: a recurrent network with random weights, whose units forget at different speeds.

Its units are causal functions of all that came before, fast and slow, nearly linear and bent. What they tell about the
class is read off by weights that are learned (see `readout`): a convex problem with one answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Singles = NDArray[np.float32]

# Of random weights: how much of the units' own state comes back, logarithms of the least and largest weight of the
# inputs, size of the biases, and the slowest unit's share of news.
RETURN = 0.95
INPUT_SIZE = (np.log(0.15), np.log(1.4))
BIAS = 0.4
SLOWEST = 0.05
# Weights that come from a file are below.
LARGEST = 1e12


@dataclass(frozen=True)
class EchoNetwork:
    """h_t = (1 - news) h_{t-1} + news tanh(h_{t-1} back + u_t taken + bias).  (m, d) inputs -> (m, N) units.

    back (N, N), taken (d, N), bias (N,), news (N,).
    """

    back: Singles
    taken: Singles
    bias: Singles
    news: Singles

    @classmethod
    def create(cls, dimension: int, units: int, seed: int) -> EchoNetwork:
        random = np.random.default_rng(seed)
        back = random.standard_normal((units, units)) * (RETURN / np.sqrt(units))
        sizes = np.exp(random.uniform(*INPUT_SIZE, units))
        taken = random.standard_normal((dimension, units)) * sizes / np.sqrt(max(1.0, dimension / 2))
        bias = BIAS * random.standard_normal(units)
        news = np.exp(random.uniform(np.log(SLOWEST), 0.0, units))
        return cls(*(part.astype(np.float32) for part in (back, taken, bias, news)))

    @property
    def units(self) -> int:
        return len(self.bias)

    @property
    def dimension(self) -> int:
        return len(self.taken)

    def advance(self, units: Singles, inputs: Singles) -> Singles:
        """One step: units (m, N) and inputs (m, d) -> units (m, N)."""
        heard = units @ self.back
        heard += inputs @ self.taken
        heard += self.bias
        np.tanh(heard, out=heard)
        heard -= units
        heard *= self.news
        heard += units
        return heard

    def check(self, dimension: int) -> None:
        """Raises ValueError if these are no weights for so many inputs, or none under which units stay within 1."""
        units = len(self.bias)
        shapes = {"back": (units, units), "taken": (dimension, units), "bias": (units,), "news": (units,)}
        for name, part in self.arrays().items():
            if part.shape != shapes[name] or part.dtype != np.float32 or not (np.abs(part) < LARGEST).all():
                raise ValueError(f"weights {name} are {part.dtype} of {part.shape}, not float32 of {shapes[name]}")
        if not units or self.news.min() < 0 or self.news.max() > 1:
            raise ValueError("no units, or some that take in more than all news")

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        return {"back": self.back, "taken": self.taken, "bias": self.bias, "news": self.news}
