"""Beliefs that come as they are: evidence or posteriors after each step, from any model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from firmbound.arrays import Floats, Ints, finite_array
from firmbound.bundle import read_bundle, write_bundle
from firmbound.errors import BundleError, InvalidInput
from firmbound.posterior import SUM_TOLERANCE, class_prior

KIND = "beliefs"


@dataclass(frozen=True)
class BeliefReader:
    """Observations that are beliefs already: evidence (K,) or posteriors (K,) after each step, from any model.

    shares: of the classes where those posteriors were learned; evidence is what they say beyond that.
    """

    form: Literal["given", "posteriors"]
    shares: Floats

    @property
    def dimension(self) -> int:
        return len(self.shares)

    def evidence(self, features: ArrayLike) -> Floats:
        return self.of(finite_array("features", features, ndim=3, shape_words=f"(n, T, {self.dimension})"))

    def of(self, values: NDArray[Any]) -> Floats:
        """(.., K) -> (.., K)."""
        if values.shape[-1] != self.dimension:
            rule = f"hold {self.dimension} numbers a step, one a class"
            raise InvalidInput("features", rule, f"shape {values.shape}")
        exact = values.astype(np.float64)
        if self.form == "given":
            return np.asarray(exact - exact.max(axis=-1, keepdims=True))
        worst = float(np.abs(exact.sum(axis=-1) - 1.0).max(initial=0.0))
        if exact.min(initial=0.0) < 0 or worst > 100 * SUM_TOLERANCE:  # single precision
            raise InvalidInput("features", "be posteriors, which sum to 1", f"a sum that is off by {worst:.3g}")
        return np.asarray(np.log(np.maximum(exact, np.finfo(np.float32).tiny)) - np.log(self.shares))

    def stream(self) -> BeliefStream:
        return BeliefStream(self)

    def pool(self, streams: int) -> BeliefPool:
        return BeliefPool(self)

    def save(self, path: str | Path) -> None:
        write_bundle(path, kind=KIND, header={"form": self.form}, arrays={"shares": self.shares})

    @classmethod
    def load(cls, path: str | Path) -> BeliefReader:
        header, arrays = read_bundle(path, kind=KIND)
        shares, form = arrays.get("shares"), header.get("form")
        if shares is None or shares.ndim != 1 or form not in ("given", "posteriors"):
            raise BundleError(f"{path} does not say what form of beliefs it reads.")
        return cls(form, class_prior(shares, len(shares)))


class BeliefStream:
    def __init__(self, reader: BeliefReader) -> None:
        self.reader, self.time = reader, 0
        self._latest = np.zeros(reader.dimension)

    def push(self, observation: ArrayLike) -> Floats:
        wanted = f"({self.reader.dimension},)"
        self._latest = self.reader.of(finite_array("observation", observation, ndim=1, shape_words=wanted))
        self.time += 1
        return self._latest

    def state(self) -> dict[str, NDArray[Any]]:
        return {"time": np.array([self.time]), "evidence": self._latest}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> Floats:
        time, evidence = int(state["time"][0]), state["evidence"]
        if time < 0 or evidence.shape != (self.reader.dimension,) or not np.isfinite(evidence).all():
            raise ValueError(f"it holds {evidence.shape} after {time} observations")
        self.time, self._latest = time, np.asarray(evidence, dtype=np.float64)
        return self._latest


@dataclass(frozen=True)
class BeliefPool:
    reader: BeliefReader

    def reset(self, streams: Ints) -> None:
        """Nothing is kept between steps."""

    def advance(self, streams: Ints, observations: NDArray[np.float32]) -> Floats:
        return self.reader.of(observations)
