"""A concave surface for each kind of past: cells of memory, and a minimum of affine pieces in each.

For a fixed past the continuation risk is concave in the posterior; between pasts it may be anything. So the summaries
of the past are cut into cells, and the surface of a row's cell is concave without any tolerance: wherever the memory
stays the same, so is the whole. With one cell it is the plain surface.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from firmbound.arrays import Floats, Ints
from firmbound.continuation.affine import MinAffineSurface
from firmbound.errors import InvalidInput


@dataclass(frozen=True)
class MemoryTree:
    """Which cell a past belongs to, (n, M) summaries -> (n,) cells in 0..cells - 1.

    Node i asks whether summary feature[i] is above threshold[i] and goes on to below[i] or above[i], both behind i; a
    node with feature -1 is the cell below[i].
    """

    feature: Ints
    threshold: Floats
    below: Ints
    above: Ints

    def __post_init__(self) -> None:
        count, nodes = len(self.feature), np.arange(len(self.feature))
        leaf = self.feature < 0
        for name in ("threshold", "below", "above"):
            if getattr(self, name).shape != (count,):
                raise InvalidInput(name, "have one number a node", f"shape {getattr(self, name).shape}")
        onward = np.minimum(self.below, self.above)[~leaf], np.maximum(self.below, self.above)[~leaf]
        if not count or np.any(onward[0] <= nodes[~leaf]) or np.any(onward[1] >= count):
            raise InvalidInput("tree", "lead from the first node to cells", f"{count} nodes")
        if not np.array_equal(np.sort(self.below[leaf]), np.arange(leaf.sum())):
            raise InvalidInput("tree", "name each cell once", self.below[leaf].tolist())

    @property
    def cells(self) -> int:
        return int((self.feature < 0).sum())

    def __call__(self, memory: Floats) -> Ints:
        node = np.zeros(len(memory), dtype=np.int64)
        rows = np.flatnonzero(self.feature[node] >= 0)
        while len(rows):
            here = node[rows]
            onward = memory[rows, self.feature[here]] > self.threshold[here]
            node[rows] = np.where(onward, self.above[here], self.below[here])
            rows = rows[self.feature[node[rows]] >= 0]
        return self.below[node]

    def at(self, memory: Floats) -> int:
        """The cell of one past (M,)."""
        node = 0
        while self.feature[node] >= 0:
            node = int((self.above if memory[self.feature[node]] > self.threshold[node] else self.below)[node])
        return int(self.below[node])


@dataclass(frozen=True)
class MemoryCellsSurface:
    """The surface of the cell that a row's past belongs to.  (m, K + M) posteriors and summaries -> (m, C)."""

    tree: MemoryTree
    surfaces: Sequence[MinAffineSurface]
    kind: ClassVar[str] = "memory-cells"

    def __post_init__(self) -> None:
        shapes = {(len(surface.starts), surface.slopes.shape[1]) for surface in self.surfaces}
        if len(self.surfaces) != self.tree.cells or len(shapes) != 1:
            raise InvalidInput("surfaces", "be alike, one a cell", f"{len(self.surfaces)} for {self.tree.cells} cells")

    @property
    def classes(self) -> int:
        return int(self.surfaces[0].slopes.shape[1])

    def __call__(self, statistic: Floats) -> Floats:
        belief, memory = statistic[:, : self.classes], statistic[:, self.classes :]
        if memory.shape[1] <= self.tree.feature.max():
            raise InvalidInput("statistic", f"have {self.classes} posteriors and summaries a row", statistic.shape)
        if len(self.surfaces) == 1:
            return self.surfaces[0](belief)
        cell = self.tree(memory)
        result = np.empty((len(statistic), len(self.surfaces[0].starts) - 1), order="F")
        for index, surface in enumerate(self.surfaces):
            rows = np.flatnonzero(cell == index)
            if len(rows):
                result[rows] = surface(belief[rows])
        return result

    def at(self, statistic: Floats) -> float:
        return self.surfaces[self.tree.at(statistic[self.classes :])].at(statistic[: self.classes])

    def select(self, index: int) -> MemoryCellsSurface:
        return MemoryCellsSurface(self.tree, [surface.select(index) for surface in self.surfaces])

    def facts(self) -> Mapping[str, float]:
        parts = [surface.facts() for surface in self.surfaces]
        return {name: float(np.max([part[name] for part in parts])) for name in parts[0]} | {
            "cells": float(len(self.surfaces))
        }

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        tree = self.tree
        found: dict[str, NDArray[Any]] = {
            "tree.feature": tree.feature,
            "tree.threshold": tree.threshold,
            "tree.below": tree.below,
            "tree.above": tree.above,
        }
        for cell, surface in enumerate(self.surfaces):
            found |= {f"{cell}.{name}": part for name, part in surface.arrays().items()}
        return found

    @classmethod
    def from_arrays(cls, **arrays: NDArray[Any]) -> MemoryCellsSurface:
        parts: dict[str, dict[str, NDArray[Any]]] = {}
        for name, array in arrays.items():
            owner, part = name.split(".")
            parts.setdefault(owner, {})[part] = array
        tree = MemoryTree(**parts.pop("tree"))
        return cls(tree, [MinAffineSurface(**parts.pop(str(cell))) for cell in range(len(parts))])
