"""A concave surface as the minimum of affine functions: what convex function learning returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from firmbound.arrays import Floats, Ints
from firmbound.errors import InvalidInput

# Heights of pieces computed together: one MiB stays in the processor's cache, which is up to five times faster.
HEIGHTS_AT_ONCE = 2**17
QUALITY = ("objective", "violation", "gap", "regularisation")


@dataclass(frozen=True)
class MinAffineSurface:
    """min over the pieces of a cost of <slope, x> + offset.  (m, p) -> (m, C).

    Pieces of all costs lie one after the other: slopes (P, p), offsets (P,), and the pieces of cost c are
    starts[c] : starts[c + 1]. Evaluation is one matrix product. quality (C, 4): how good the fit behind each cost's
    surface is, in the order of QUALITY.
    """

    slopes: Floats
    offsets: Floats
    starts: Ints
    quality: Floats
    kind: ClassVar[str] = "min-affine"

    def __post_init__(self) -> None:
        if not (self.slopes.ndim == 2 and self.offsets.shape == self.slopes.shape[:1]):
            raise InvalidInput("slopes", "be (P, p) with (P,) offsets", (self.slopes.shape, self.offsets.shape))
        if self.starts[0] != 0 or self.starts[-1] != len(self.offsets) or np.any(np.diff(self.starts) < 1):
            raise InvalidInput("starts", "rise from 0 to P with a piece for each cost", self.starts.tolist())
        if self.quality.shape != (len(self.starts) - 1, len(QUALITY)):
            raise InvalidInput("quality", f"have shape (C, {len(QUALITY)})", self.quality.shape)

    @classmethod
    def from_pieces(cls, pieces: Sequence[tuple[Floats, Floats]], quality: Floats) -> MinAffineSurface:
        """One (slopes, offsets) pair a cost."""
        starts = np.cumsum([0, *[len(offsets) for _, offsets in pieces]])
        slopes, offsets = (np.concatenate([piece[part] for piece in pieces]) for part in (0, 1))
        return cls(slopes, offsets, starts, quality)

    def __call__(self, statistic: Floats) -> Floats:
        if statistic.shape[1] != self.slopes.shape[1]:
            raise InvalidInput("statistic", f"have shape (m, {self.slopes.shape[1]})", f"shape {statistic.shape}")
        # Costs are averaged and compared one by one: each column in one piece of memory.
        result = np.empty((len(statistic), len(self.starts) - 1), order="F")
        if (curves := self._curves) is not None:
            place = np.ascontiguousarray(statistic[:, 0])
            for column, curve in zip(result.T, curves, strict=True):
                column[:] = np.interp(place, *curve)
            return result
        block = max(HEIGHTS_AT_ONCE // len(self.offsets), 1)
        for first in range(0, len(statistic), block):
            rows = slice(first, first + block)
            heights = statistic[rows] @ self.slopes.T + self.offsets
            result[rows] = np.minimum.reduceat(heights, self.starts[:-1], axis=1)
        return result

    def at(self, statistic: Floats) -> float:
        return float((self.slopes @ statistic + self.offsets).min())

    @cached_property
    def _curves(self) -> list[tuple[Floats, Floats]] | None:
        """Two classes: knots pi_1 and heights of each cost's surface, if all its pieces show; evaluated by look-up."""
        if self.slopes.shape[1] != 2:
            return None
        curves = []
        for start, end in pairwise(self.starts):
            tilt = self.slopes[start:end, 0] - self.slopes[start:end, 1]
            height = self.slopes[start:end, 1] + self.offsets[start:end]
            order = np.argsort(-tilt, kind="stable")
            tilt, height = tilt[order], height[order]
            # Pieces of equal tilt meet nowhere: their knot is not a number in between, and there is no look-up.
            with np.errstate(divide="ignore", invalid="ignore"):
                knots = np.concatenate([[0.0], np.diff(height) / -np.diff(tilt), [1.0]])
            if not np.all(np.diff(knots) > 0):
                return None
            curves.append((knots, np.append(height[0], knots[1:] * tilt + height)))
        return curves

    def select(self, index: int) -> MinAffineSurface:
        part = slice(int(self.starts[index]), int(self.starts[index + 1]))
        count = np.array([0, part.stop - part.start])
        return MinAffineSurface(self.slopes[part], self.offsets[part], count, self.quality[index : index + 1])

    def facts(self) -> Mapping[str, float]:
        worst = dict(zip(QUALITY, self.quality.max(axis=0).tolist(), strict=True))
        return worst | {"pieces": float(np.diff(self.starts).max())}

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        return {"slopes": self.slopes, "offsets": self.offsets, "starts": self.starts, "quality": self.quality}
