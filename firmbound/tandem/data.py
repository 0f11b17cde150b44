"""Labelled sequences for training, from arrays or a store larger than memory, in a new order every epoch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from firmbound.arrays import Ints, check_lengths, class_labels, finite_array
from firmbound.errors import InvalidInput
from firmbound.scaling import Scaling
from firmbound.store import CHUNK_ROWS, TrajectoryStore

# Sequences in memory at a time when they come from a store: batches mix what lies in so many chunks.
POOL_CHUNKS = 40


def single_precision(features: ArrayLike) -> NDArray[np.float32]:
    """(n, T, d) features as networks take them; a number that is finite, yet too large for that, is refused too."""
    values = finite_array("features", features, ndim=3, shape_words="(n, T, d)")
    with np.errstate(over="ignore"):
        return np.asarray(
            finite_array("features", values.astype(np.float32, copy=False), ndim=3, shape_words="(n, T, d)")
        )


def _digest(*arrays: NDArray[Any]) -> str:
    found = hashlib.blake2b(digest_size=16)
    for array in arrays:
        found.update(array.data)
    return found.hexdigest()


class SequenceSource(Protocol):
    """n labelled sequences of features (n, T, d), of which `lengths` (n,) observations each are data."""

    @property
    def labels(self) -> Ints: ...

    @property
    def lengths(self) -> Ints: ...

    @property
    def horizon(self) -> int: ...

    @property
    def dimension(self) -> int: ...

    def read(self, rows: slice) -> NDArray[Any]:
        """Features of some neighbouring sequences."""
        ...

    def fingerprint(self) -> str:
        """Tells these sequences from others of the same shape."""
        ...


@dataclass(frozen=True)
class ArraySource:
    features: NDArray[Any]
    labels: Ints
    lengths: Ints

    @classmethod
    def of(cls, features: ArrayLike, labels: ArrayLike, classes: int, lengths: ArrayLike | None = None) -> ArraySource:
        values = single_precision(features)
        if min(values.shape) < 1 or values.shape[1] < 2:
            raise InvalidInput("features", "hold a sequence of two observations at least", f"shape {values.shape}")
        known = class_labels("labels", labels, count=len(values), classes=classes)
        return cls(values, known, check_lengths(lengths, count=len(values), horizon=values.shape[1]))

    @property
    def horizon(self) -> int:
        return int(self.features.shape[1])

    @property
    def dimension(self) -> int:
        return int(self.features.shape[2])

    def read(self, rows: slice) -> NDArray[Any]:
        return self.features[rows]

    def fingerprint(self) -> str:
        return _digest(self.labels, self.lengths, np.ascontiguousarray(self.features))


class StoreSource:
    """A trajectory store, read in whole chunks; with a scaling, features are put to scale as they are read."""

    def __init__(self, store: TrajectoryStore, scaling: Scaling | None = None) -> None:
        self.store, self.scaling = store, scaling
        if not store.description.dimension:
            raise InvalidInput("store", "hold features", f"{store.path}, which has none")
        self.labels, self.lengths = store.labels, store.lengths

    @property
    def horizon(self) -> int:
        return self.store.description.horizon

    @property
    def dimension(self) -> int:
        return self.store.description.dimension

    def read(self, rows: slice) -> NDArray[Any]:
        features = self.store.read("features", rows)
        return features if self.scaling is None else self.scaling(features)

    def fingerprint(self) -> str:
        """From the store's description, which holds the size of every compressed file, the labels and the scale."""
        scale = () if self.scaling is None else (self.scaling.mean, self.scaling.scale)
        return _digest(self.labels, np.frombuffer((self.store.path / "zarr.json").read_bytes(), dtype=np.uint8), *scale)


class LabelledBatch(NamedTuple):
    features: NDArray[Any]
    labels: Ints
    lengths: Ints


def shuffled_batches(source: SequenceSource, batch: int, seed: tuple[int, ...]) -> Iterator[LabelledBatch]:
    """Every sequence once, in batches of `batch` (the last may be smaller), in an order that `seed` decides.

    Chunks are drawn in a random order, and sequences are shuffled among POOL_CHUNKS of them at a time.
    """
    random = np.random.default_rng(seed)
    count = len(source.labels)
    starts = random.permutation(np.arange(0, count, CHUNK_ROWS))
    about = np.column_stack([source.labels, source.lengths])
    left_features: list[NDArray[Any]] = []
    left_about: list[Ints] = []
    for first in range(0, len(starts), POOL_CHUNKS):
        rows = [slice(int(start), min(int(start) + CHUNK_ROWS, count)) for start in starts[first : first + POOL_CHUNKS]]
        features = np.concatenate([*left_features, *(source.read(part) for part in rows)])
        known = np.concatenate([*left_about, *(about[part] for part in rows)])
        order = random.permutation(len(known))
        last = first + POOL_CHUNKS >= len(starts)
        whole = len(order) if last else len(order) // batch * batch
        for begin in range(0, whole, batch):
            chosen = order[begin : min(begin + batch, whole)]
            yield LabelledBatch(features[chosen], known[chosen, 0], known[chosen, 1])
        left_features, left_about = [features[order[whole:]]], [known[order[whole:]]]


def in_order(source: SequenceSource, batch: int) -> Iterator[LabelledBatch]:
    for start in range(0, len(source.labels), batch):
        rows = slice(start, min(start + batch, len(source.labels)))
        yield LabelledBatch(source.read(rows), source.labels[rows], source.lengths[rows])
