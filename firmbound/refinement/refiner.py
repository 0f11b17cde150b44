"""Refiner: evidence in, refined evidence out: log P(y | everything up to t) - log prior, at every t."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from firmbound.arrays import Floats, Ints, finite_array
from firmbound.bundle import read_bundle, write_bundle
from firmbound.errors import BundleError, InvalidInput
from firmbound.refinement.echo import Singles
from firmbound.refinement.listener import Listener, Past
from firmbound.refinement.readout import Readout, refined

KIND = "refiner"
# Sequences that are refined together: their state stays in a core's cache.
TOGETHER = 2_000


@dataclass(frozen=True)
class Refiner:
    """Causal, with a state of fixed size. scales (T,) and weights (T, p, K): the readout of every step.

    ridge: what the weights were drawn to 0 with.
    """

    listener: Listener
    scales: Floats
    weights: Singles
    ridge: float

    @property
    def classes(self) -> int:
        return self.listener.classes

    @property
    def horizon(self) -> int:
        return len(self.scales)

    @property
    def hears_features(self) -> bool:
        return self.listener.features is not None

    def refine(self, evidence: ArrayLike, features: NDArray[Any] | None = None) -> NDArray[np.float32]:
        """Evidence (n, T, K), and features (n, T, d) where they are heard -> (n, T, K), the largest class at 0."""
        given = finite_array("evidence", evidence, ndim=3, shape_words=f"(n, T, {self.classes})")
        if given.shape[2] != self.classes or given.shape[1] > self.horizon:
            rule = f"have {self.classes} classes and {self.horizon} steps at most, as it was fitted"
            raise InvalidInput("evidence", rule, f"shape {given.shape}")
        if self.hears_features and (features is None or features.shape[:2] != given.shape[:2]):
            got = "none" if features is None else f"shape {features.shape}"
            raise InvalidInput("features", f"be {given.shape[:2]} steps like the evidence", got)
        found = np.empty(given.shape, dtype=np.float32)
        for start in range(0, len(given), TOGETHER):
            some = slice(start, start + TOGETHER)
            past = self.listener.start(len(given[some]))
            for time in range(1, given.shape[1] + 1):
                beside = features[some, time - 1] if self.hears_features and features is not None else None
                past, found[some, time - 1] = self.step(past, time, given[some, time - 1], beside)
        return found

    def step(
        self, past: Past, time: int, evidence: NDArray[Any], features: NDArray[Any] | None = None
    ) -> tuple[Past, NDArray[np.float32]]:
        """One step of m sequences that are all at the same time: evidence (m, K) -> (m, K)."""
        past, columns = self.listener.hear(past, time, evidence, features)
        return past, self._read(time, evidence, columns)

    def steps(
        self, past: Past, times: Ints, evidence: NDArray[Any], features: NDArray[Any] | None = None
    ) -> tuple[Past, NDArray[np.float32]]:
        """As `step`, each sequence at its own time (m,)."""
        past, columns = self.listener.hear(past, times, evidence, features)
        found = np.empty(evidence.shape, dtype=np.float32)
        for time in np.unique(times):
            here = times == time
            found[here] = self._read(int(time), evidence[here], columns[here])
        return past, found

    def _read(self, time: int, evidence: NDArray[Any], columns: Singles) -> NDArray[np.float32]:
        place = min(time, self.horizon) - 1
        found = refined(evidence, columns, Readout(float(self.scales[place]), self.weights[place]))
        return np.asarray(found - found.max(axis=-1, keepdims=True))

    def save(self, path: str | Path) -> None:
        arrays: dict[str, NDArray[Any]] = {"scales": self.scales, "weights": self.weights, **self.listener.arrays()}
        write_bundle(path, kind=KIND, header={"classes": self.classes, "ridge": self.ridge}, arrays=arrays)

    @classmethod
    def load(cls, path: str | Path) -> Refiner:
        header, arrays = read_bundle(path, kind=KIND)
        try:
            return cls._of(header, arrays)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as problem:
            raise BundleError(f"{path} is no refiner that this version can read: {problem}") from None

    @classmethod
    def _of(cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Refiner:
        listener = Listener.from_arrays(arrays, int(header["classes"]))
        found = cls(listener, arrays["scales"], arrays["weights"], float(header["ridge"]))
        if found.weights.shape != (found.horizon, listener.columns, listener.classes):
            raise ValueError(f"weights of shape {found.weights.shape}")
        if not all(np.isfinite(part).all() for part in arrays.values()):
            raise ValueError("it holds what are no numbers")
        return found
