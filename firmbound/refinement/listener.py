"""What is kept of a sequence while it is read: the state of a fixed size that refined evidence is a function of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from firmbound.arrays import Floats, Ints
from firmbound.errors import InvalidInput
from firmbound.refinement.echo import EchoNetwork, Singles
from firmbound.scaling import Scaling

# Numbers this many times their usual size are cut: nothing like them was seen when weights were learned.
FAR = 5.0


class Past(NamedTuple):
    """Of m sequences: units (m, N) of the memory, the evidence (m, K) after the last step, and its sum over all."""

    units: Singles
    last: Singles
    total: Singles


@dataclass(frozen=True)
class Listener:
    """Follows evidence, and by option features, step by step; a column of numbers a step is what readouts see.

    level, change: usual size of evidence and of its steps. features: mean and scale of each, where they are heard too.
    """

    echo: EchoNetwork
    classes: int
    level: float
    change: float
    features: Scaling | None = None

    @property
    def columns(self) -> int:
        return 1 + 2 * self.classes + self.echo.units

    def start(self, count: int) -> Past:
        nothing = np.zeros((count, self.classes), dtype=np.float32)
        return Past(np.zeros((count, self.echo.units), dtype=np.float32), nothing, nothing)

    def hear(
        self, past: Past, time: int | Ints, evidence: NDArray[Any], features: NDArray[Any] | None = None
    ) -> tuple[Past, Singles]:
        """One step: evidence (m, K) after `time` observations -> the new past, and its columns (m, p)."""
        now = centred(evidence)
        heard = [_cut(now / self.level), _cut((now - past.last) / self.change)]
        if self.features is not None:
            if features is None:
                raise InvalidInput("features", "be given, since this refinement hears them", "none")
            heard.append(_cut(self.features(features)))
        units = self.echo.advance(past.units, np.concatenate(heard, axis=1))
        total = past.total + now
        seen = np.asarray(time, dtype=np.float32).reshape(-1, 1)
        ones = np.ones((len(now), 1), dtype=np.float32)
        columns = np.concatenate([ones, heard[0], _cut(total / (seen * self.level)), units], axis=1)
        return Past(units, now, total), columns

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        kept = {"sizes": np.array([self.level, self.change])}
        if self.features is not None:
            kept |= {"features/mean": self.features.mean, "features/scale": self.features.scale}
        return kept | {f"echo/{name}": part for name, part in self.echo.arrays().items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], classes: int) -> Listener:
        echo = EchoNetwork(*(arrays[f"echo/{name}"] for name in ("back", "taken", "bias", "news")))
        level, change = (float(size) for size in arrays["sizes"])
        features = None
        if "features/mean" in arrays:
            features = Scaling(arrays["features/mean"], arrays["features/scale"])
        return cls(echo, classes, level, change, features)


def create_listener(
    evidence: NDArray[Any], lengths: Ints, units: int, seed: int, features: Scaling | None = None
) -> Listener:
    """For evidence (n, T, K) like this."""
    classes = evidence.shape[2]
    there = np.arange(evidence.shape[1]) < lengths[:, None]
    now = centred(evidence)
    steps = np.diff(now, axis=1, prepend=np.float32(0.0))
    heard = 2 * classes + (0 if features is None else len(features.mean))
    return Listener(EchoNetwork.create(heard, units, seed), classes, _usual(now[there]), _usual(steps[there]), features)


def centred(evidence: NDArray[Any]) -> Singles:
    """Without the constant that all classes share.  (.., K) -> (.., K)."""
    exact: Floats = np.asarray(evidence, dtype=np.float64)
    return np.asarray(exact - exact.mean(axis=-1, keepdims=True), dtype=np.float32)


def _usual(values: Singles) -> float:
    """Root of the mean square; 1 where there is nothing."""
    return float(np.sqrt(np.mean(np.square(values, dtype=np.float64)))) or 1.0


def _cut(values: NDArray[Any]) -> Singles:
    return np.clip(values, -FAR, FAR).astype(np.float32, copy=False)
