"""What generated problems share: blocks with random streams of their own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from firmbound.arrays import Ints
from firmbound.errors import InvalidInput
from firmbound.trajectories import Batch, join

BLOCK_ROWS = 1_000
Seed = int | Sequence[int]


@dataclass(frozen=True)
class GeneratedProblem(ABC):
    """Sequences made on demand in blocks of BLOCK_ROWS; block i depends on the seed and i alone."""

    # Whether `evidence` is the log density of what was seen, so that risks counted with it are the true ones.
    exact: ClassVar[bool] = True

    sequences: int
    horizon: int
    seed: Seed
    prior: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.sequences < 1:
            raise InvalidInput("sequences", "be at least 1", self.sequences)
        if self.horizon < 2:
            raise InvalidInput("horizon", "be at least 2", self.horizon)

    @property
    def classes(self) -> int:
        """K."""
        return len(self.prior)

    @abstractmethod
    def batch(self, index: int, *, with_features: bool = True) -> Batch:
        """Block `index`: labels, exact evidence and, where the problem has them and they are wanted, features."""

    @property
    def blocks(self) -> int:
        return -(-self.sequences // BLOCK_ROWS)

    def batches(self, *, with_features: bool = True) -> Iterator[Batch]:
        """All blocks in order, one in memory at a time."""
        for index in range(self.blocks):
            yield self.batch(index, with_features=with_features)

    def rows(self, rows: slice) -> Batch:
        """Sequences rows.start .. rows.stop; whole blocks are made, so ask for whole ones where you can."""
        first = rows.start // BLOCK_ROWS
        made = join([self.batch(index) for index in range(first, -(-rows.stop // BLOCK_ROWS))])
        begin = rows.start - first * BLOCK_ROWS
        return (
            made
            if len(made.labels) == rows.stop - rows.start
            else made.part(slice(begin, begin + rows.stop - rows.start))
        )

    @cached_property
    def labels(self) -> Ints:
        """(n,) class of each sequence."""
        return self._known[0]

    @cached_property
    def evidence(self) -> NDArray[Any]:
        """(n, T, K) evidence of each prefix; exact unless the problem says otherwise."""
        return self._known[1]

    @cached_property
    def _known(self) -> tuple[Ints, NDArray[Any]]:
        known = join(list(self.batches(with_features=False)))
        assert known.evidence is not None
        return known.labels, known.evidence

    def _streams(self, index: int, count: int) -> list[np.random.Generator]:
        """`count` independent generators of block `index`."""
        if not 0 <= index < self.blocks:
            raise InvalidInput("index", f"lie in 0..{self.blocks - 1}", index)
        children = np.random.SeedSequence(self.seed, spawn_key=(index,)).spawn(count)
        return [np.random.default_rng(child) for child in children]

    def _rows(self, index: int) -> int:
        return min(BLOCK_ROWS, self.sequences - index * BLOCK_ROWS)


@dataclass(frozen=True)
class FeatureProblem(GeneratedProblem):
    """A generated problem with features (n, T, d) behind its evidence."""

    dimension: int

    @cached_property
    def features(self) -> NDArray[Any]:
        """(n, T, d) float32, all in memory; use `batches()` for sets that do not fit."""
        features = join(list(self.batches())).features
        assert features is not None
        return features
