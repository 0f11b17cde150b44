"""Streams for readers of prefixes: the observations so far are kept, up to the last at which a reader answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from firmbound.arrays import Floats, Ints, finite_array
from firmbound.errors import InvalidInput


class AsksPrefixes(Protocol):
    asked: Ints
    shares: Floats
    dimension: int

    def evidence_at(self, place: int, prefixes: NDArray[Any]) -> Floats:
        """(n, asked[place], d) -> (n, K)."""
        ...


class PrefixStream:
    def __init__(self, reader: AsksPrefixes) -> None:
        self.reader, self.time = reader, 0
        self._places = {int(t): place for place, t in enumerate(reader.asked)}
        self._prefix = np.zeros((int(reader.asked[-1]), reader.dimension), dtype=np.float32)
        self._latest = np.zeros(len(reader.shares))

    def push(self, observation: ArrayLike) -> Floats:
        dimension = self.reader.dimension
        given = finite_array("observation", observation, ndim=1, shape_words=f"({dimension},)")
        if len(given) != dimension:
            raise InvalidInput("observation", f"hold {dimension} numbers", len(given))
        time, latest = self.time + 1, self._latest
        if time <= len(self._prefix):
            self._prefix[time - 1] = given
        if time in self._places:
            latest = self.reader.evidence_at(self._places[time], self._prefix[None, :time])[0]
        self.time, self._latest = time, latest  # only now: a reader that fails has seen nothing
        return latest

    def state(self) -> dict[str, NDArray[Any]]:
        return {"time": np.array([self.time]), "prefix": self._prefix[: self.time], "evidence": self._latest}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> Floats:
        time, prefix, evidence = int(state["time"][0]), state["prefix"], state["evidence"]
        kept = min(time, len(self._prefix))
        if time < 0 or prefix.shape != (kept, self.reader.dimension) or evidence.shape != self._latest.shape:
            raise ValueError(f"it holds {prefix.shape} and {evidence.shape} after {time} observations")
        if prefix.dtype != np.float32 or not (np.isfinite(prefix).all() and np.isfinite(evidence).all()):
            raise ValueError("it holds what are no numbers")
        self.time = time
        self._prefix[:kept] = prefix
        self._latest = np.asarray(evidence, dtype=np.float64)
        return self._latest


class PrefixPool:
    def __init__(self, reader: AsksPrefixes, streams: int) -> None:
        self.reader = reader
        self._time = np.zeros(streams, dtype=np.int64)
        self._prefix = np.zeros((streams, int(reader.asked[-1]), reader.dimension), dtype=np.float32)
        self._latest = np.zeros((streams, len(reader.shares)))

    def reset(self, streams: Ints) -> None:
        self._time[streams], self._latest[streams] = 0, 0.0

    def advance(self, streams: Ints, observations: NDArray[np.float32]) -> Floats:
        time, latest = self._time[streams] + 1, self._latest[streams]
        kept = time <= self._prefix.shape[1]
        self._prefix[streams[kept], time[kept] - 1] = observations[kept]
        for place, t in enumerate(self.reader.asked.tolist()):
            here = np.flatnonzero(time == t)
            if len(here):
                latest[here] = self.reader.evidence_at(place, self._prefix[streams[here], :t])
        self._time[streams], self._latest[streams] = time, latest  # only now: a reader that fails has seen nothing
        return latest
