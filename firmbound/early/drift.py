"""Has the world changed since the classifier was fitted? What it decides now against what it did on held-out sequences.

Labels are not needed to see that decisions fall at other times, that they are more or less sure, or that classes are
decided for in other proportions; with labels the error is compared too. Each comparison is a two-sample test, and
Holm's correction keeps the chance of any false alarm below the level, however many are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from firmbound.arrays import Floats, Ints
from firmbound.early.front import Record
from firmbound.early.guarantees import check_share
from firmbound.errors import InvalidInput

# Fewer new sequences than this say nothing.
LEAST = 10
# Up to so many sequences probabilities are exact.
SMALL = 500
# Of a confidence; what lies behind depends on how many sequences are computed together.
DIGITS = 5
# Classes that fewer decisions are expected for are counted together.
RARE = 5


@dataclass(frozen=True)
class Change:
    """One comparison. before, now: means, or the shares of the class that changed most. p: after the correction."""

    what: str
    before: float
    now: float
    p: float
    changed: bool


@dataclass(frozen=True)
class Drift:
    """All comparisons of n new sequences with m held-out ones."""

    changes: list[Change]
    new: int
    held_out: int
    level: float

    @property
    def found(self) -> bool:
        return any(change.changed for change in self.changes)


def compare(before: Record, now: Record, classes: Sequence[Any], level: float = 0.05) -> Drift:
    """Records of one rule: on held-out sequences when it was fitted, and on new ones; `now.truth` may be None.

    classes: what they are called.
    """
    check_share("level", level)
    if now.sequences < LEAST or before.sequences < LEAST:
        got = f"{now.sequences} new and {before.sequences} held-out ones"
        raise InvalidInput("sequences", f"be {LEAST} at least, to compare", got)
    found = [
        _distribution("hitting time", before.time[0], now.time[0]),
        _distribution("confidence at the decision", before.confidence[0], now.confidence[0]),
        _shares("share of decisions", before.label[0], now.label[0], classes),
    ]
    if before.truth is not None and now.truth is not None:
        found.append(_errors(before, now))
    corrected = holm([p for *_, p in found])
    changes = [Change(what, old, new, p, p < level) for (what, old, new, _), p in zip(found, corrected, strict=True)]
    return Drift(changes, now.sequences, before.sequences, level)


def holm(values: list[float]) -> list[float]:
    """p-values corrected for their number: the smallest counts for all, the next for all but one, never falling."""
    order = np.argsort(values)
    corrected = np.empty(len(values))
    running = 0.0
    for rank, place in enumerate(order):
        running = max(running, min(1.0, (len(values) - rank) * values[place]))
        corrected[place] = running
    return [float(p) for p in corrected]


def _distribution(what: str, before: Ints | Floats, now: Ints | Floats) -> tuple[str, float, float, float]:
    """Kolmogorov and Smirnov's test; ties, of which hitting times have many, make it cautious."""
    small = max(len(before), len(now)) <= SMALL
    # Equal up to rounding is equal: a value that occurs often must not look like two.
    old, new = (np.round(part.astype(float), DIGITS) for part in (before, now))
    p = stats.ks_2samp(old, new, method="exact" if small else "asymp").pvalue
    return what, float(before.mean()), float(now.mean()), float(p)


def _shares(what: str, before: Ints, now: Ints, classes: Sequence[Any]) -> tuple[str, float, float, float]:
    """Chi-squared test of the table of decisions, rare classes counted together; shown: the largest change."""
    table = np.stack([np.bincount(part, minlength=len(classes)) for part in (before, now)])
    rare = table.sum(axis=0) * table.sum(axis=1).min() / table.sum() < RARE
    kept = np.column_stack([table[:, ~rare], table[:, rare].sum(axis=1)])
    kept = kept[:, kept.sum(axis=0) > 0]
    shares = table / table.sum(axis=1, keepdims=True)
    most = int(np.abs(shares[1] - shares[0]).argmax())
    if kept.shape[1] < 2:
        p = 1.0
    elif kept.shape[1] == 2:
        p = float(stats.fisher_exact(kept).pvalue)
    else:
        p = float(stats.chi2_contingency(kept).pvalue)
    return f"{what} for {classes[most]}", float(shares[0, most]), float(shares[1, most]), p


def _errors(before: Record, now: Record) -> tuple[str, float, float, float]:
    """Fisher's exact test of how often each was wrong."""
    wrong = [int(part.wrong[0].sum()) for part in (before, now)]
    table = [[count, part.sequences - count] for count, part in zip(wrong, (before, now), strict=True)]
    p = float(stats.fisher_exact(np.array(table)).pvalue)
    return "error", wrong[0] / before.sequences, wrong[1] / now.sequences, p
