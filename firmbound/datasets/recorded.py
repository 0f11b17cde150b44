"""Recorded data as sequences to be written: chosen series, cut into steps, classes as indices, one horizon for all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from firmbound.arrays import Bools, Ints, all_finite
from firmbound.datasets.recordings import Recordings, SourceError, check_together, class_names
from firmbound.datasets.splits import SplitOptions, select
from firmbound.datasets.windows import WindowOptions, held
from firmbound.errors import InvalidInput
from firmbound.posterior import class_prior
from firmbound.series import usual_horizon
from firmbound.trajectories import Batch

Gaps = Literal["refuse", "hold"]
Content = Literal["features", "posteriors", "evidence"]
SUM_TOLERANCE = 1e-3  # half precision


@dataclass(frozen=True)
class SequenceOptions:
    """How series become sequences.

    windows: how they are cut. horizon: steps at most; None: as many as all have or, where ends differ, as enough of the
    training sequences reach. missing: NaN is refused, or holds the number before it. prior: class probabilities; None:
    the shares of the training sequences. split: who trains, validates and judges. content: what samples are: features,
    or what some classifier believes after each, posteriors or evidence with a number a class.
    """

    windows: WindowOptions = field(default_factory=WindowOptions)
    horizon: int | None = None
    missing: Gaps = "refuse"
    prior: tuple[float, ...] | None = None
    split: SplitOptions = field(default_factory=SplitOptions)
    content: Content = "features"

    def __post_init__(self) -> None:
        if self.content != "features" and not self.windows.plain:
            raise InvalidInput("windows", f"be null, since {self.content} are not cut", self.windows)
        if self.horizon is not None and self.horizon < 2:
            raise InvalidInput("horizon", "be at least 2, or None", self.horizon)


@dataclass(frozen=True)
class RecordedSplit:
    """Sequences of one split. series (n,): where each lies among the recordings. first, steps (n,): where it begins
    there, and its steps. unequal: whether any sequence of the data set ends before the horizon. shares: of the classes
    among training sequences; posteriors hold them.
    """

    recordings: Recordings
    series: Ints
    first: Ints
    steps: Ints
    windows: WindowOptions
    missing: Gaps
    horizon: int
    names: tuple[str | int, ...]
    prior: tuple[float, ...]
    shares: tuple[float, ...]
    unequal: bool
    content: Content

    @property
    def sequences(self) -> int:
        return len(self.series)

    @property
    def classes(self) -> int:
        return len(self.names)

    @property
    def dimension(self) -> int:
        """Numbers of a step; 0 where there are no features."""
        return self.recordings.dimension * self.windows.window if self.content == "features" else 0

    @cached_property
    def labels(self) -> Ints:
        """(n,) classes as indices."""
        return _indices(self.recordings)[self.series]

    def rows(self, rows: slice) -> Batch:
        """Some neighbouring sequences."""
        series, inverse = np.unique(self.series[rows], return_inverse=True)
        steps = np.minimum(self.steps[rows], self.horizon)
        values = self._samples(series)
        if self.windows.plain:
            values = values[:, : self.horizon]
            if not np.array_equal(inverse, np.arange(len(series))):
                values = values[inverse]
            if values.shape[1] < self.horizon:
                values = np.pad(values, ((0, 0), (0, self.horizon - values.shape[1]), (0, 0)))
        else:
            values = self.windows.cut(values, inverse, self.first[rows], steps)
            values = np.pad(values, ((0, 0), (0, self.horizon - values.shape[1]), (0, 0)))
        ends = steps if self.unequal else None
        if self.content == "features":
            return Batch(self.labels[rows], self.classes, values, lengths=ends)
        return Batch(self.labels[rows], self.classes, evidence=self._evidence(values, steps), lengths=ends)

    def _evidence(self, values: NDArray[Any], steps: Ints) -> NDArray[Any]:
        """What posteriors say beyond the classes' shares, or evidence as it is; the largest class at 0."""
        there = np.arange(values.shape[1]) < steps[:, None]
        if self.content == "posteriors":
            if values[there].min() < 0 or np.abs(values[there].sum(axis=-1) - 1.0).max() > SUM_TOLERANCE:
                raise SourceError(f"{self.recordings.origin}: posteriors must be positive and sum to 1.")
            values = np.log(np.maximum(values, np.finfo(np.float32).tiny)) - np.log(self.shares)
        values = values - values.max(axis=-1, keepdims=True)
        return np.where(there[:, :, None], values, 0.0)

    def _samples(self, series: Ints) -> NDArray[Any]:
        """(m, L, d) in single precision, zeros after ends; what is no number is refused or held, by the options."""
        found, lengths = self.recordings.read(series), self.recordings.lengths[series]
        if self.windows.segment is None:  # what comes after the horizon is not looked at
            used = (self.horizon - 1) * self.windows.stride + self.windows.window
            found, lengths = found[:, :used], np.minimum(lengths, used)
        with np.errstate(over="ignore"):
            values = found.astype(np.float32, copy=False)
        whole = bool((lengths == values.shape[1]).all())
        if whole and all_finite(values):
            return values
        there = np.arange(values.shape[1]) < lengths[:, None]
        finite = np.isfinite(values)
        values = np.where(there[:, :, None], values, np.float32(0.0))
        gaps = there & ~finite.all(axis=2)
        if gaps.any():
            ended = self.recordings.lengths[series] <= values.shape[1]
            self._check_ends(np.isnan(values) & ended[:, None, None], lengths, series)
            self._check_gaps(gaps, np.isinf(values).any(axis=2) & there, series)
            values = held(values, lengths)
        return values

    def _check_ends(self, missing: Bools, lengths: Ints, series: Ints) -> None:
        """NaN up to the end is an end that nobody told of."""
        last = missing[np.arange(len(series)), lengths - 1].all(axis=1)
        if self.missing == "hold" and last.any():
            row = int(last.argmax())
            got = f"series {series[row]} is NaN at its last sample, {lengths[row]}"
            raise SourceError(f"{self.recordings.origin}: where series end must be told by lengths; {got}.")

    def _check_gaps(self, gaps: Bools, endless: Bools, series: Ints) -> None:
        wrong = gaps if self.missing == "refuse" else endless
        if wrong.any():
            row, sample = (int(place) for place in np.argwhere(wrong)[0])
            advice = "" if endless.any() else " With `missing: hold` the number before stays."
            raise SourceError(
                f"{self.recordings.origin}: samples must be finite; series {series[row]} is not at sample {sample + 1} "
                f"({int(wrong.sum())} like it here).{advice}"
            )


def recorded_splits(parts: Mapping[str, Recordings], options: SequenceOptions) -> dict[str, RecordedSplit]:
    """Train, validation and test sequences of a data set that was found in these parts."""
    found = [part for part in parts.values() if len(part.labels)]
    if len(found) < len(parts) or not found:
        empty = [part.origin for part in parts.values() if not len(part.labels)]
        raise SourceError(f"{empty[0] if empty else 'The data set'} must hold a series at least; got none.")
    check_together(found)
    names = class_names(found)
    if options.content != "features" and found[0].dimension != len(names):
        got = f"{found[0].dimension} for {len(names)} classes"
        raise SourceError(f"{found[0].origin}: {options.content} must be a number a class; got {got}.")
    with _of(found):
        chosen = select(parts, options.split)
    placed = {}
    for split, selection in chosen.items():
        part = parts[selection.part]
        _check_long_enough(part, selection.rows, options.windows)
        place, first, steps = options.windows.places(part.lengths[selection.rows], training=split == "train")
        placed[split] = (part, selection.rows[place], first, steps)
    with _of(found):
        horizon = _horizon([placed[split][3] for split in ("train", "validation")], options)
    unequal = any(bool((steps < horizon).any()) for *_, steps in placed.values())
    counts = {}
    for split, (part, series, *_) in placed.items():
        counts[split] = np.bincount(_indices(part)[series], minlength=len(names))
        missing = [names[place] for place in np.flatnonzero(counts[split] == 0)]
        if missing:
            raise SourceError(f"{part.origin}: no {split} sequence of {missing[:5]} is there after the split.")
    shares = counts["train"] / counts["train"].sum()
    prior = tuple((class_prior(options.prior, len(names)) if options.prior else shares).tolist())
    made = {}
    for split, (part, series, first, steps) in placed.items():
        order = _mixed(_indices(part)[series], options.split.seed)
        made[split] = RecordedSplit(
            part,
            series[order],
            first[order],
            steps[order],
            options.windows,
            options.missing,
            horizon,
            tuple(names),
            prior,
            tuple(shares.tolist()),
            unequal,
            options.content,
        )
    return made


@contextmanager
def _of(parts: Sequence[Recordings]) -> Iterator[None]:
    """Options that these recordings cannot serve: the message names their files too."""
    try:
        yield
    except InvalidInput as wrong:
        raise SourceError(f"{', '.join(part.origin for part in parts)}: {wrong}") from wrong


def _indices(part: Recordings) -> Ints:
    return np.unique(part.labels, return_inverse=True)[1].astype(np.int64)


def _check_long_enough(part: Recordings, rows: Ints, windows: WindowOptions) -> None:
    short = rows[part.lengths[rows] < windows.least]
    if len(short):
        got = f"{len(short)} shorter series; series {short[0]} has {part.lengths[short[0]]}"
        raise SourceError(f"{part.origin}: series must hold {windows.least} samples, a segment or a window; got {got}.")


def _horizon(steps: Sequence[Ints], options: SequenceOptions) -> int:
    """Of training and validation sequences; rules may be fitted on either."""
    horizon = min(int(part.max()) if part.min() == part.max() else usual_horizon(part) for part in steps)
    most = options.horizon
    if most is not None and most > horizon:
        raise InvalidInput("horizon", f"be at most the {horizon} steps that enough sequences have", most)
    horizon = most or horizon
    if horizon < 2:
        advice = "" if options.windows.plain else "Take shorter windows or a smaller stride."
        raise InvalidInput("series", "have two steps at least", horizon, advice)
    return horizon


def _mixed(labels: Ints, seed: int) -> Ints | slice:
    """An order in which classes are mixed: batches are drawn from neighbouring sequences.

    What is mixed already stays as it is, which reads fastest. It is, if labels change half as often as by chance.
    """
    shares = np.bincount(labels) / len(labels)
    by_chance = len(labels) * (1.0 - float((shares**2).sum()))
    if np.count_nonzero(np.diff(labels)) >= by_chance / 2:
        return slice(None)
    return np.random.default_rng(seed).permutation(len(labels))
