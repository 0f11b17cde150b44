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
# Nats that a class may lie behind: more is no more impossible, and squares of these are numbers in single precision.
FARTHEST = 1e6
# Sizes below this are of rounding.
NOTHING = 1e-30
# Classes up to which columns are joined one by one.
FEW = 8


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

    @property
    def heard(self) -> int:
        """Numbers that the memory is told at each step."""
        return 2 * self.classes + (0 if self.features is None else len(self.features.mean))

    def start(self, count: int) -> Past:
        nothing = np.zeros((count, self.classes), dtype=np.float32)
        return Past(np.zeros((count, self.echo.units), dtype=np.float32), nothing, nothing)

    def hear(
        self, past: Past, time: int | Ints, evidence: NDArray[Any], features: NDArray[Any] | None = None
    ) -> tuple[Past, Singles]:
        """One step: evidence (m, K) after `time` observations -> the new past, and its columns (m, p).

        Whatever is finite can be heard: what is too large for a division is cut.
        """
        if evidence.shape[1:] != (self.classes,):
            raise InvalidInput("evidence", f"have shape (m, {self.classes})", f"shape {evidence.shape}")
        if self.features is not None and features is None:
            raise InvalidInput("features", "be given, since this refinement hears them", "none")
        now = centred(evidence)
        with np.errstate(over="ignore"):
            heard = [_cut(now / self.level), _cut((now - past.last) / self.change)]
            if self.features is not None and features is not None:
                heard.append(_cut(self.features(features)))
            units = self.echo.advance(past.units, np.concatenate(heard, axis=1))
            total = past.total + now
            seen = np.asarray(time, dtype=np.float32).reshape(-1, 1)
            average = _cut(total / (seen * self.level))
        ones = np.ones((len(now), 1), dtype=np.float32)
        return Past(units, now, total), np.concatenate([ones, heard[0], average, units], axis=1)

    def could_have(self, past: Past) -> bool:
        """Whether this can be the past of one sequence."""
        alike = all(
            part.shape == wanted.shape and part.dtype == wanted.dtype and bool(np.isfinite(part).all())
            for part, wanted in zip(past, self.start(1), strict=True)
        )
        return alike and bool(np.abs(past.units).max() <= 1.0)

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        kept = {"sizes": np.array([self.level, self.change])}
        if self.features is not None:
            kept |= {"features/mean": self.features.mean, "features/scale": self.features.scale}
        return kept | {f"echo/{name}": part for name, part in self.echo.arrays().items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], classes: int) -> Listener:
        """Raises ValueError for arrays that do not belong together."""
        echo = EchoNetwork(*(arrays[f"echo/{name}"] for name in ("back", "taken", "bias", "news")))
        level, change = (float(size) for size in arrays["sizes"])
        features = None
        if "features/mean" in arrays:
            features = Scaling(arrays["features/mean"], arrays["features/scale"])
            if features.mean.ndim != 1 or features.scale.shape != features.mean.shape or not (features.scale > 0).all():
                raise ValueError("features without a mean and a positive scale of each")
        found = cls(echo, classes, level, change, features)
        echo.check(found.heard)
        if classes < 2 or min(level, change) < NOTHING:
            raise ValueError(f"{classes} classes and sizes of {level} and {change}")
        return found


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


def bounded(evidence: NDArray[Any]) -> Singles:
    """The largest class at 0, none so far behind that it is no number any more.  (.., K) -> (.., K)."""
    given = np.asarray(evidence, dtype=np.result_type(evidence, np.float32))
    with np.errstate(over="ignore"):
        behind = given - over_classes(np.maximum, given)
    return np.asarray(np.maximum(behind, -FARTHEST), dtype=np.float32)


def centred(evidence: NDArray[Any]) -> Singles:
    """Without the constant that all classes share.  (.., K) -> (.., K)."""
    exact: Floats = bounded(evidence).astype(np.float64)
    return np.asarray(exact - over_classes(np.add, exact) / exact.shape[-1], dtype=np.float32)


def over_classes(join: np.ufunc, values: NDArray[Any]) -> NDArray[Any]:
    """`join.reduce` over the last axis, which stays with length 1: for a few classes, column by column is quickest."""
    if values.shape[-1] > FEW:
        return np.asarray(join.reduce(values, axis=-1, keepdims=True))
    found = values[..., 0]
    for k in range(1, values.shape[-1]):
        found = join(found, values[..., k])
    return np.asarray(found[..., None])


def _usual(values: Singles) -> float:
    """Root of the mean square; 1 where there is nothing."""
    size = float(np.sqrt(np.mean(np.square(values, dtype=np.float64))))
    return size if size > NOTHING else 1.0


def _cut(values: NDArray[Any]) -> Singles:
    return np.clip(values, -FAR, FAR).astype(np.float32, copy=False)
