"""Series as people have them: of one length or of many, whole or with observations that are missing.

Readers of evidence take series of one length without gaps. So a series is laid out with its observations first, the
missing ones left out and zeros after its end, and evidence is spread again over the steps at which it was there: where
an observation is missing time goes on, but nothing is learned. All readers are causal, so what stands after an end
changes nothing before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from firmbound.arrays import Bools, Ints, any_array, check_lengths
from firmbound.errors import InvalidInput

Missing = Literal["refuse", "skip"]
SHAPE = "(n, T, d), or a list of (T_i, d)"
# A step that fewer sequences reach, or fewer than a tenth of a few, tells too little of what is to be expected there:
# the horizon ends before it.
ENOUGH = 30


@dataclass(frozen=True)
class Series:
    """n series. values (n, T, d): observations in order, then zeros. seen (n, T): how many are in after t steps.

    lengths (n,): steps of each series, missing observations counted.
    """

    values: NDArray[np.float32]
    seen: Ints
    lengths: Ints

    @classmethod
    def of(cls, X: Any, lengths: ArrayLike | None = None, *, missing: Missing = "refuse") -> Series:
        """From an array (n, T, d), with `lengths` where series end before T, or from a list of arrays (T_i, d).

        missing: whether steps with a NaN are errors or skipped. What stands after an end is not looked at.
        """
        if not isinstance(missing, str) or missing not in get_args(Missing):
            raise InvalidInput("missing", f"be one of {get_args(Missing)}", repr(missing))
        if isinstance(X, list | tuple) and len({_length(one) for one in X}) > 1:
            if lengths is not None:
                raise InvalidInput("lengths", "be left out where series come as a list", "both")
            X, lengths = padded(X)
        array = _numbers(X)
        count, horizon, _ = array.shape
        ends = check_lengths(lengths, count=count, horizon=horizon)
        there = np.arange(horizon) < ends[:, None]
        observed = there & ~_gaps(array, there, missing)
        values = array.astype(np.float32)
        if observed.all():
            return cls(values, np.tile(np.arange(1, horizon + 1), (count, 1)), ends)
        order = np.argsort(~observed, axis=1, kind="stable")
        seen = np.cumsum(observed, axis=1, dtype=np.int64)
        values = np.take_along_axis(values, order[:, :, None], axis=1)
        values[np.arange(horizon) >= seen[:, -1:]] = 0.0
        return cls(values, seen, ends)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def horizon(self) -> int:
        return int(self.values.shape[1])

    @property
    def dimension(self) -> int:
        return int(self.values.shape[2])

    @property
    def observations(self) -> Ints:
        """(n,) observations that are not missing."""
        return self.seen[:, -1]

    def take(self, rows: Ints) -> Series:
        return Series(self.values[rows], self.seen[rows], self.lengths[rows])

    def until(self, horizon: int) -> Series:
        """The first steps alone."""
        if horizon >= self.horizon:
            return self
        seen = self.seen[:, :horizon]
        values = self.values[:, :horizon].copy()
        values[np.arange(horizon) >= seen[:, -1:]] = 0.0
        return Series(values, seen, np.minimum(self.lengths, horizon))

    def reaching(self, horizon: int) -> Series:
        """With room for `horizon` steps; series end where they did."""
        added = horizon - self.horizon
        if added <= 0:
            return self
        values = np.pad(self.values, ((0, 0), (0, added), (0, 0)))
        return Series(values, np.pad(self.seen, ((0, 0), (0, added)), mode="edge"), self.lengths)

    def spread(self, evidence: NDArray[Any]) -> NDArray[Any]:
        """Evidence (n, T, K) after so many observations, as evidence after t steps; 0 before the first."""
        if np.array_equal(self.seen[:1], np.arange(1, self.horizon + 1)[None]) and (self.seen == self.seen[:1]).all():
            return evidence
        rows = np.arange(len(self))[:, None]
        found = evidence[rows, np.maximum(self.seen - 1, 0)]
        return np.where((self.seen > 0)[:, :, None], found, np.zeros(1, dtype=evidence.dtype))

    def gathered(self, evidence: NDArray[Any]) -> NDArray[Any]:
        """The way back: evidence (n, T, K) after t steps, as evidence after so many observations, then zeros."""
        observed = np.diff(self.seen, axis=1, prepend=0) > 0
        if observed.all():
            return evidence
        order = np.argsort(~observed, axis=1, kind="stable")
        found = np.take_along_axis(evidence, order[:, :, None], axis=1)
        found[np.arange(self.horizon) >= self.observations[:, None]] = 0.0
        return found


def usual_horizon(lengths: Ints) -> int:
    """The last step that enough sequences reach."""
    enough = min(ENOUGH, -(-len(lengths) // 10))
    horizon = int(np.sort(lengths)[::-1][enough - 1])
    if horizon < 2:
        raise InvalidInput("X", "hold series of two observations and more", f"{enough} of {len(lengths)} at most")
    return horizon


def is_list_of_series(X: Any) -> bool:
    """A list of arrays says where each series ends; one array, or lists of numbers, do not."""
    return isinstance(X, list | tuple) and all(hasattr(one, "shape") for one in X)


def _length(one: Any) -> int:
    try:
        return len(one)
    except TypeError:
        return -1


def padded(series: Sequence[ArrayLike]) -> tuple[NDArray[Any], Ints]:
    """A list of arrays (T_i, d) as one array (n, T, d) with zeros after each end, and the lengths (n,)."""
    parts = [_numbers(one, rank=2, words="(T_i, d)") for one in series]
    if not parts or min(len(part) for part in parts) < 1 or len({part.shape[1] for part in parts}) > 1:
        shapes = sorted({part.shape for part in parts})[:5]
        raise InvalidInput("X", "hold series of an observation at least, all with the same features", f"{shapes}")
    lengths = np.array([len(part) for part in parts])
    values = np.zeros((len(parts), lengths.max(), parts[0].shape[1]), dtype=np.result_type(*parts))
    for row, part in enumerate(parts):
        values[row, : len(part)] = part
    return values, lengths


def observations(given: ArrayLike, shape: tuple[int, ...], missing: Missing) -> NDArray[np.float32]:
    """One observation (d,) or one for each of m streams (m, d), in single precision; NaN only where it is skipped."""
    array = any_array("observation", given, f"numbers of shape {shape}")
    if array.dtype.kind not in "fiub":
        raise InvalidInput("observation", f"be numbers of shape {shape}", f"{given!r:.60}")
    if array.shape != shape:
        words = "a row a stream" if len(shape) == 2 else "as the classifier was fitted"
        raise InvalidInput("observation", f"have shape {shape}, {words}", f"shape {array.shape}")
    with np.errstate(over="ignore"):
        single = array.astype(np.float32)
    bad = np.isinf(single) if missing == "skip" else ~np.isfinite(single)
    if bad.any():
        raise InvalidInput("observation", "be finite", f"{int(bad.sum())} of {bad.size} numbers that are not")
    return single


def is_missing(observation: NDArray[np.float32], missing: Missing) -> bool:
    """Whether an observation (d,) of a stream is to be skipped."""
    return missing == "skip" and bool(np.isnan(observation).any())


def _numbers(values: ArrayLike, rank: int = 3, words: str = SHAPE) -> NDArray[Any]:
    array = any_array("X", values, f"a numeric array {words}")
    if array.dtype.kind not in "fiub":
        raise InvalidInput("X", f"be a numeric array {words}", f"dtype {array.dtype}")
    if array.ndim != rank or (rank == 3 and min(array.shape) < 1):
        raise InvalidInput("X", f"have shape {words}", f"shape {array.shape}")
    return array


def _gaps(array: NDArray[Any], there: Bools, missing: Missing) -> Bools:
    """(n, T) steps with a NaN; what is infinite, or too large for a network, is refused."""
    with np.errstate(over="ignore", invalid="ignore"):
        single = array.astype(np.float32, copy=False)
    bad = ~np.isfinite(single).all(axis=2) & there
    gaps = np.isnan(array).any(axis=2) if array.dtype.kind == "f" else np.zeros_like(there)
    wrong = bad if missing == "refuse" else np.isinf(single).any(axis=2) & there
    if wrong.any():
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        advice = "" if missing == "skip" else "Give lengths where series end early; missing='skip' leaves NaN out."
        raise InvalidInput("X", "be finite", f"{int(wrong.sum())} steps that are not, the first at {place}", advice)
    return gaps
