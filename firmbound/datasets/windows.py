"""Series cut into sequences of windows: a step of a sequence is the last `window` samples, moved on by `stride`.

Causal by construction: step t of a sequence holds samples up to (t - 1) stride + window of its segment, and none later.
The paper's FordA protocol is segments of 100, windows of 24, stride 4: 20 steps of 24 numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firmbound.arrays import Ints
from firmbound.errors import InvalidInput


@dataclass(frozen=True)
class WindowOptions:
    """segment: samples of a sequence; None: whole series. window, stride: samples of a step, and between steps.

    hop: samples between the beginnings of *training* segments; None: a segment, so that they do not overlap. Smaller
    ones show the network more of the same series; who validates and judges is never cut with an overlap.
    """

    segment: int | None = None
    window: int = 1
    stride: int = 1
    hop: int | None = None

    def __post_init__(self) -> None:
        for name in ("segment", "window", "stride", "hop"):
            value = getattr(self, name)
            if name in ("segment", "hop") and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InvalidInput(name, "be a whole number from 1", repr(value))
        if self.hop is not None and (self.segment is None or self.hop > self.segment):
            raise InvalidInput("hop", f"be at most the samples of a segment ({self.segment}), or None", self.hop)
        if self.segment is not None and self.segment < self.window + self.stride:
            rule = f"hold two windows at least ({self.window + self.stride} samples)"
            raise InvalidInput("segment", rule, self.segment)

    @property
    def plain(self) -> bool:
        """Whether every series is a sequence as it is."""
        return self == WindowOptions()

    @property
    def least(self) -> int:
        """Samples that a series must hold: a segment's or, where there are none, a window's."""
        return self.segment or self.window

    def steps(self, samples: Ints) -> Ints:
        """Whole windows in so many samples."""
        return np.asarray((samples - self.window) // self.stride + 1)

    def places(self, lengths: Ints, *, training: bool = False) -> tuple[Ints, Ints, Ints]:
        """Of every sequence: its series, its first sample and its number of steps, (n,) each.

        Every series must hold `least` samples. What is left of it behind its last whole segment is not used.
        """
        if self.segment is None:
            return np.arange(len(lengths)), np.zeros(len(lengths), dtype=np.int64), self.steps(lengths)
        hop = self.hop if training and self.hop is not None else self.segment
        count = (lengths - self.segment) // hop + 1
        series = np.repeat(np.arange(len(lengths)), count)
        inside = np.arange(len(series)) - np.repeat(np.cumsum(count) - count, count)
        return series, inside * hop, self.steps(np.full(len(series), self.segment))

    def cut(self, values: NDArray[Any], series: Ints, first: Ints, steps: Ints) -> NDArray[Any]:
        """Steps of m sequences: which series (m,), where in it they begin, how many.  (s, L, d) -> (m, T, window d).

        T is the largest of `steps`; zeros after the last step of a shorter sequence.
        """
        m, (_, samples, dimension) = len(series), values.shape
        horizon = int(steps.max())
        sample = np.arange(horizon)[:, None] * self.stride + np.arange(self.window)
        place = np.minimum(first[:, None, None] + sample, samples - 1)
        found = values[series[:, None, None], place].reshape(m, horizon, self.window * dimension)
        found[np.arange(horizon) >= steps[:, None]] = 0.0
        return np.asarray(found)


def held(values: NDArray[Any], lengths: Ints) -> NDArray[Any]:
    """NaN replaced by the number before it, 0 before the first: what a listener would still have.  (m, L, d)."""
    missing = np.isnan(values)
    if not missing.any():
        return values
    step = np.where(missing, 0, np.arange(values.shape[1])[None, :, None])
    latest = np.maximum.accumulate(step, axis=1)
    found = np.take_along_axis(values, latest, axis=1)
    found[np.isnan(found)] = 0.0
    found[np.arange(values.shape[1]) >= lengths[:, None]] = 0.0
    return np.asarray(found)
