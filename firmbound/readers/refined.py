"""A reader whose evidence is refined: whatever reads the observations, its evidence goes through a Refiner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from firmbound.arrays import Floats, Ints
from firmbound.bundle import write_bundle
from firmbound.errors import InvalidInput
from firmbound.publishing import publish
from firmbound.readers.protocol import EvidenceReader, EvidenceStream
from firmbound.refinement.listener import Past
from firmbound.refinement.refiner import Refiner

KIND = "refined-reader"
# Inside a saved reader: what it is, the reader of observations, and what refines its evidence.
ABOUT, INNER, REFINER = "about", "inner", "refiner"


@dataclass(frozen=True)
class RefinedReader:
    reader: EvidenceReader
    refiner: Refiner

    def __post_init__(self) -> None:
        scaling = self.refiner.listener.features
        if scaling is not None and len(scaling.mean) != self.reader.dimension:
            rule = f"hear features of the {self.reader.dimension} numbers that the reader reads"
            raise InvalidInput("refiner", rule, f"one of {len(scaling.mean)}")

    @property
    def dimension(self) -> int:
        return self.reader.dimension

    def evidence(self, features: ArrayLike) -> NDArray[Any]:
        return self.refiner.refine(self.reader.evidence(features), self.heard(np.asarray(features)))

    def heard(self, observations: NDArray[Any]) -> NDArray[Any] | None:
        """What the refiner wants of observations."""
        return observations if self.refiner.hears_features else None

    def stream(self) -> RefinedStream:
        return RefinedStream(self)

    def pool(self, streams: int) -> RefinedPool:
        return RefinedPool(self, streams)

    def save(self, path: str | Path) -> None:
        """A folder of three bundles."""
        with publish(path) as folder:
            write_bundle(folder / ABOUT, kind=KIND, header={}, arrays={})
            self.reader.save(folder / INNER)
            self.refiner.save(folder / REFINER)


class RefinedStream:
    def __init__(self, parts: RefinedReader) -> None:
        self.parts = parts
        self._inner: EvidenceStream = parts.reader.stream()
        self._past = parts.refiner.listener.start(1)
        self._latest = np.zeros(parts.refiner.classes)
        self.time = 0

    def push(self, observation: ArrayLike) -> Floats:
        """What the reader refuses changes nothing; whatever it says can be refined."""
        given = self._inner.push(observation)
        beside = self.parts.heard(np.asarray(observation, dtype=np.float32)[None])
        self._past, found = self.parts.refiner.step(self._past, self._inner.time, given[None], beside)
        self.time, self._latest = self._inner.time, found[0].astype(np.float64)
        return self._latest

    def state(self) -> dict[str, NDArray[Any]]:
        kept = {f"inner/{name}": part for name, part in self._inner.state().items()}
        return kept | {f"past/{name}": part for name, part in self._past._asdict().items()} | {"refined": self._latest}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> Floats:
        past, latest = Past(*(state[f"past/{name}"] for name in Past._fields)), state["refined"]
        if not self.parts.refiner.listener.could_have(past):
            raise ValueError(f"it remembers {[part.shape for part in past]}, which this refinement cannot")
        if latest.shape != self._latest.shape or latest.dtype != np.float64 or not np.isfinite(latest).all():
            raise ValueError(f"it holds refined evidence {latest.dtype} of {latest.shape}")
        self._inner.restore({name[6:]: part for name, part in state.items() if name.startswith("inner/")})
        self.time, self._past, self._latest = self._inner.time, past, latest
        return self._latest


class RefinedPool:
    """Each series at its own time, as the pool of the reader inside: what that refuses changes nothing here."""

    def __init__(self, parts: RefinedReader, streams: int) -> None:
        self.parts, self._inner = parts, parts.reader.pool(streams)
        self._past, self._time = parts.refiner.listener.start(streams), np.zeros(streams, dtype=np.int64)
        # Two of the parts begin as one array of zeros.
        self._past = Past(*(part.copy() for part in self._past))

    def reset(self, streams: Ints) -> None:
        self._inner.reset(streams)
        self._time[streams] = 0
        for part in self._past:
            part[streams] = 0.0

    def advance(self, streams: Ints, observations: NDArray[np.float32]) -> Floats:
        given, times = self._inner.advance(streams, observations), self._time[streams] + 1
        before = Past(*(part[streams] for part in self._past))
        past, found = self.parts.refiner.steps(before, times, given, self.parts.heard(observations))
        self._time[streams] = times
        for part, new in zip(self._past, past, strict=True):
            part[streams] = new
        return found.astype(np.float64)
