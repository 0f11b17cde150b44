"""Damped-oscillating log-likelihood ratios (App. "Dumped Oscillating Log-likelihood Ratio Function").

What the paper calls a log-likelihood ratio here is a made-up trajectory: neither calibrated nor Markov. Risks that a
rule believes on it are not the risks that happen; always show both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from firmbound.datasets.generated import GeneratedProblem, Seed
from firmbound.trajectories import Batch


@dataclass(frozen=True)
class OscillationTable:
    """Where the parameters of each trajectory come from (Tab. "Parameter space of DOL dataset")."""

    amplitude_mean: float = 2.0
    amplitude_deviation: float = 2.0
    damping: tuple[float, float] = (0.02, 0.2)
    frequency: tuple[float, float] = (-2.0, 3.0)
    curvature: tuple[float, float] = (-2.5, 0.0)
    noise_deviation: float = 1.0


@dataclass(frozen=True)
class OscillatingProblem(GeneratedProblem):
    """gamma (1 - (1 - t/T)^exp(kappa)) + A exp(-beta t) sin(omega t) + N(0, sigma); label 1 is gamma = +1."""

    exact: ClassVar[bool] = False
    table: OscillationTable = OscillationTable()

    def batch(self, index: int, *, with_features: bool = True) -> Batch:
        """Block `index`; there are no features behind these trajectories, so `with_features` changes nothing."""
        (random,) = self._streams(index, 1)
        rows, table = self._rows(index), self.table
        labels = random.integers(0, 2, size=rows)
        column = (rows, 1)
        amplitude = random.normal(table.amplitude_mean, table.amplitude_deviation, column)
        damping = random.uniform(*table.damping, column)
        frequency = random.uniform(*table.frequency, column)
        curvature = random.uniform(*table.curvature, column)
        # The paper draws sigma from N(0, 1), which may be negative: its absolute value is taken, one a sequence.
        noise = np.abs(random.normal(0.0, table.noise_deviation, column))
        t = np.arange(1, self.horizon + 1)
        target = np.where(labels == 1, 1.0, -1.0)[:, None]
        drift = target * (1.0 - (1.0 - t / self.horizon) ** np.exp(curvature))
        wave = amplitude * np.exp(-damping * t) * np.sin(frequency * t)
        ratio = drift + wave + noise * random.standard_normal((rows, self.horizon))
        return Batch(labels=labels, classes=2, evidence=two_class_evidence(ratio))


def two_class_evidence(ratio: NDArray[Any]) -> NDArray[Any]:
    """Evidence whose difference e_1 - e_0 is `ratio`.  (n, T) -> (n, T, 2) float32."""
    return np.stack([-ratio / 2.0, ratio / 2.0], axis=-1).astype(np.float32)


def oscillating(
    sequences: int = 20_000, horizon: int = 50, seed: Seed = 0, *, table: OscillationTable | None = None
) -> OscillatingProblem:
    """Two classes of damped-oscillating trajectories, given as evidence.

    >>> oscillating(sequences=1_000).evidence.shape
    (1000, 50, 2)
    """
    return OscillatingProblem(sequences, horizon, seed, (0.5, 0.5), table=table or OscillationTable())
