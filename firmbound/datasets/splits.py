"""Who trains, who validates, who judges: parts as the data set gives them, the rest drawn by class or by group."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from firmbound.arrays import Ints
from firmbound.datasets.recordings import Recordings
from firmbound.errors import InvalidInput

SPLITS = ("train", "validation", "test")
By = Literal["class", "group"]
Given = Literal["train", "test"]


# Whole groups may be drawn that are this share more or fewer series than were asked for, without a word.
FAR = 0.25


class GroupsDifferWarning(UserWarning):
    """A split drawn by group is not of the size that was asked for."""


@dataclass(frozen=True)
class SplitOptions:
    """validation, test: share or number of series; None: as the data set gives it.

    taken_from: the part that validation series are taken from. by: drawn so that classes keep their shares, or also so
    that no group (speaker, subject) is on both sides. swap: learn from the data set's test part and be judged on its
    training part, as the paper does with FordA.
    """

    validation: float | None = 0.15
    test: float | None = None
    taken_from: Given = "train"
    by: By = "class"
    swap: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("validation", "test"):
            size = getattr(self, name)
            whole = isinstance(size, int) and not isinstance(size, bool) and size >= 1
            if not (size is None or whole or (isinstance(size, float) and 0 < size < 1)):
                raise InvalidInput(name, "be a share between 0 and 1, a number of series, or None", repr(size))
        for name, choices in (("taken_from", get_args(Given)), ("by", get_args(By))):
            if getattr(self, name) not in choices:
                raise InvalidInput(name, f"be one of {choices}", repr(getattr(self, name)))


@dataclass(frozen=True)
class Selection:
    """Series of one part of a data set: the part's name, and places in it (n,), in rising order."""

    part: str
    rows: Ints


def select(parts: Mapping[str, Recordings], options: SplitOptions) -> dict[str, Selection]:
    """Series of each split. parts: "train" and "test" and perhaps "validation", or "all", of which a test is drawn."""
    found = {name: Selection(name, np.arange(len(part.labels))) for name, part in parts.items()}
    if "all" in found:
        if options.test is None:
            raise InvalidInput("test", "be a share or a number, since the data set has no test part", "null")
        found["train"], found["test"] = _drawn(parts, found.pop("all"), options.test, options, "test")
    elif options.test is not None:
        raise InvalidInput("test", "be null, since the data set has a test part", options.test)
    if options.swap:
        found["train"], found["test"] = found["test"], found["train"]
    if options.validation is not None:
        if "validation" in found:
            raise InvalidInput("validation", "be null, since the data set has a validation part", options.validation)
        taken = found[options.taken_from]
        found[options.taken_from], found["validation"] = _drawn(parts, taken, options.validation, options, "validation")
    if "validation" not in found:
        raise InvalidInput("validation", "be a share or a number, since the data set has no such part", "null")
    return {split: found[split] for split in SPLITS}


def _drawn(
    parts: Mapping[str, Recordings], whole: Selection, size: float, options: SplitOptions, name: str
) -> tuple[Selection, Selection]:
    """What stays, and what is drawn."""
    part = parts[whole.part]
    labels = part.labels[whole.rows]
    count = size if isinstance(size, int) else max(1, round(size * len(labels)))
    if count >= len(labels):
        raise InvalidInput(name, f"leave some of the {len(labels)} series of part {whole.part!r}", size)
    if options.by == "group":
        if part.groups is None:
            raise InvalidInput("by", "be 'class', since no groups are known", "'group'")
        drawn = _by_group(labels, part.groups[whole.rows], int(count), options.seed, name)
    else:
        drawn = _by_class(labels, int(count), options.seed, name)
    chosen = np.zeros(len(labels), dtype=bool)
    chosen[drawn] = True
    return Selection(whole.part, whole.rows[~chosen]), Selection(whole.part, whole.rows[chosen])


def _by_class(labels: np.ndarray, count: int, seed: int, name: str) -> Ints:
    from sklearn.model_selection import train_test_split  # takes long to import; nobody else waits for it

    classes, sizes = np.unique(labels, return_counts=True)
    if sizes.min() < 2 or min(count, len(labels) - count) < len(classes):
        rule = f"leave every one of {len(classes)} classes on both sides"
        raise InvalidInput(name, rule, f"{count} of {len(labels)} series, the rarest class {sizes.min()} times")
    known = np.unique(labels, return_inverse=True)[1]
    _, drawn = train_test_split(np.arange(len(labels)), test_size=count, stratify=known, random_state=seed)
    return np.asarray(drawn)


def _by_group(labels: np.ndarray, groups: np.ndarray, count: int, seed: int, name: str) -> Ints:
    """One of as many folds as the share asks for: whole groups, classes in nearly their shares."""
    from sklearn.model_selection import StratifiedGroupKFold

    if 2 * count > len(labels):
        raise InvalidInput(name, "be half of the series at most, to be drawn by group", f"{count} of {len(labels)}")
    folds = round(len(labels) / count)
    there, (_, known, sizes) = len(np.unique(groups)), np.unique(labels, return_inverse=True, return_counts=True)
    if min(there, int(sizes.max())) < folds:
        rule = f"ask for as few folds ({folds}) as there are groups, and series of a class"
        raise InvalidInput(
            name, rule, f"{there} groups, {sizes.max()} series of the largest class", "Take a larger share."
        )
    with warnings.catch_warnings():  # of classes with fewer series than folds; who lacks a class is told later
        warnings.simplefilter("ignore", UserWarning)
        splitter = StratifiedGroupKFold(folds, shuffle=True, random_state=seed)
        _, drawn = next(iter(splitter.split(known, known, groups)))
    if abs(len(drawn) - count) > FAR * count:
        got = f"{name}: {count} of {len(labels)} series were asked for; whole groups make {len(drawn)}."
        warnings.warn(f"{got} Ask for another share, or draw by class.", GroupsDifferWarning, stacklevel=4)
    return np.asarray(drawn)
