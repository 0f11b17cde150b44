"""Refiner: evidence in, refined evidence out: log P(y | everything up to t) - log prior, at every t."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from firmbound.arrays import Floats, Ints, finite_array
from firmbound.bundle import read_bundle, write_bundle
from firmbound.errors import BundleError, InvalidInput
from firmbound.refinement.echo import LARGEST, Singles
from firmbound.refinement.listener import Listener, Past, bounded
from firmbound.refinement.readout import Readout, refined

KIND = "refiner"
# Sequences that are refined together: their state stays in a core's cache.
TOGETHER = 2_000


@dataclass(frozen=True)
class Refiner:
    """Causal, with a state of fixed size. scales (T,) and weights (T, p, K): the readout of every step.

    ridge: what the weights were drawn to 0 with. Whatever finite evidence comes is refined to finite evidence.
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

    def refine(self, evidence: ArrayLike, features: ArrayLike | None = None) -> NDArray[np.float32]:
        """Evidence (n, T, K), and features (n, T, d) where they are heard -> (n, T, K), the largest class at 0."""
        given = finite_array("evidence", evidence, ndim=3, shape_words=f"(n, T, {self.classes})")
        if given.shape[2] != self.classes or given.shape[1] > self.horizon:
            rule = f"have {self.classes} classes and {self.horizon} steps at most, as it was fitted"
            raise InvalidInput("evidence", rule, f"shape {given.shape}")
        beside = self._beside(features, given.shape[:2])
        found = np.empty(given.shape, dtype=np.float32)
        for start in range(0, len(given), TOGETHER):
            some = slice(start, start + TOGETHER)
            past = self.listener.start(len(given[some]))
            for time in range(1, given.shape[1] + 1):
                heard = None if beside is None else beside[some, time - 1]
                past, found[some, time - 1] = self.step(past, time, given[some, time - 1], heard)
        return found

    def _beside(self, features: ArrayLike | None, steps: tuple[int, ...]) -> NDArray[Any] | None:
        """Features as they are heard beside evidence of so many sequences and steps."""
        scaling = self.listener.features
        if scaling is None or features is None:
            if (scaling is None) != (features is None):
                rule = "be left out: this refinement hears none" if scaling is None else "be given, as it was fitted"
                raise InvalidInput("features", rule, type(features).__name__)
            return None
        words = f"({steps[0]}, {steps[1]}, {len(scaling.mean)}), beside the evidence"
        heard = finite_array("features", features, ndim=3, shape_words=words)
        if heard.shape != (*steps, len(scaling.mean)):
            raise InvalidInput("features", f"have shape {words}", f"shape {heard.shape}")
        return heard

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
        found = refined(bounded(evidence), columns, Readout(float(self.scales[place]), self.weights[place]))
        return np.asarray(found - found.max(axis=-1, keepdims=True))

    def cooled(self, temperature: float) -> Refiner:
        """One whose evidence is this one's divided by a temperature: less sure above 1."""
        weights = (self.weights / temperature).astype(np.float32)
        return replace(self, scales=self.scales / temperature, weights=weights)

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
        shape = (found.horizon, listener.columns, listener.classes)
        if found.scales.ndim != 1 or not found.horizon or found.weights.shape != shape:
            raise ValueError(f"scales of shape {found.scales.shape}, weights of shape {found.weights.shape}")
        if found.scales.dtype != np.float64 or found.weights.dtype != np.float32:
            raise ValueError(f"scales are {found.scales.dtype}, weights {found.weights.dtype}")
        if not all(np.isfinite(part).all() for part in arrays.values()):
            raise ValueError("it holds what are no numbers")
        if max(np.abs(found.scales).max(), np.abs(found.weights).max()) > LARGEST:
            raise ValueError("its weights are too large")
        return found
