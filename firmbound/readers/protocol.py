"""What reads evidence from observations: a trained network, classifiers of prefixes, or beliefs that come as they are.

EarlyClassifier, streams and pools know these protocols only, so whoever has a model already gets the same rules,
fronts, promises and streams as the network does.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from firmbound.arrays import Floats, Ints


class EvidenceStream(Protocol):
    """Evidence of one series. time: observations so far."""

    time: int

    def push(self, observation: ArrayLike) -> Floats:
        """One observation (d,) more -> the evidence (K,) of all so far."""
        ...

    def state(self) -> dict[str, NDArray[Any]]: ...

    def restore(self, state: Mapping[str, NDArray[Any]]) -> Floats:
        """Go on from a state; hands back the evidence so far. Raises ValueError or KeyError for a foreign one."""
        ...


class EvidencePool(Protocol):
    """Evidence of many series, each at its own time."""

    def reset(self, streams: Ints) -> None: ...

    def advance(self, streams: Ints, observations: NDArray[np.float32]) -> Floats:
        """One observation (m, d) for each of m different streams -> their evidence (m, K)."""
        ...


@runtime_checkable
class EvidenceReader(Protocol):
    @property
    def dimension(self) -> int:
        """Numbers an observation has."""
        ...

    def evidence(self, features: ArrayLike) -> NDArray[Any]:
        """(n, T, d) -> (n, T, K); causal: what comes after t changes nothing at t."""
        ...

    def stream(self) -> EvidenceStream: ...

    def pool(self, streams: int) -> EvidencePool: ...

    def save(self, path: str | Path) -> None: ...
