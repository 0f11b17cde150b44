"""Whether one method is better than others on the same sequences or repeats, and not by chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from firmbound.arrays import Floats, finite_array
from firmbound.errors import InvalidInput


def holm(chances: ArrayLike) -> Floats:
    """p-values of m tests, corrected so that the chance of a single false alarm among them stays below its level."""
    values = finite_array("p-values", chances, ndim=1, shape_words="(m,)")
    if values.size and (values.min() < 0 or values.max() > 1):
        raise InvalidInput("p-values", "lie in [0, 1]", values.tolist()[:20])
    order = np.argsort(values)
    stepped = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    corrected = np.empty_like(values)
    corrected[order] = np.minimum(stepped, 1.0)
    return corrected


def signed_rank_chance(differences: ArrayLike) -> float:
    """Wilcoxon's signed-rank test that differences lie above 0, one-sided.  (n,) -> p; 1 where all are 0."""
    values = finite_array("differences", differences, ndim=1, shape_words="(n,)")
    if not np.any(values):
        return 1.0
    return float(stats.wilcoxon(values, alternative="greater").pvalue)


@dataclass(frozen=True)
class Ranking:
    """Mean ranks (m,) of methods over data sets, 1 the best, and how far two must lie apart to differ.

    chance: that of ranks so uneven if all methods were alike (Friedman). critical: Nemenyi's distance at 5 %. cliques:
    groups of neighbours, as places in `names`, within which nobody differs.
    """

    names: tuple[str, ...]
    ranks: Floats
    chance: float
    critical: float
    cliques: tuple[tuple[int, ...], ...]


def rank_methods(names: Sequence[str], losses: ArrayLike, level: float = 0.05) -> Ranking:
    """From losses (data sets, methods), lower is better; two data sets and three methods at least."""
    values = finite_array("losses", losses, ndim=2, shape_words="(data sets, methods)")
    count, methods = values.shape
    if count < 2 or methods < 3 or methods != len(names):
        raise InvalidInput("losses", "be of two data sets and three named methods at least", f"shape {values.shape}")
    ranks = stats.rankdata(values, axis=1).mean(axis=0)
    chance = float(stats.friedmanchisquare(*values.T).pvalue) if np.ptp(values, axis=1).any() else 1.0
    spread = float(stats.studentized_range.isf(level, methods, np.inf)) / np.sqrt(2)
    critical = spread * float(np.sqrt(methods * (methods + 1) / (6 * count)))
    return Ranking(tuple(names), ranks, chance, critical, _cliques(ranks, critical))


def _cliques(ranks: Floats, critical: float) -> tuple[tuple[int, ...], ...]:
    """Longest runs of methods, in the order of ranks, whose first and last are no further apart than `critical`."""
    order, found = np.argsort(ranks, kind="stable"), list[tuple[int, ...]]()
    for first in range(len(order)):
        run = [int(one) for one in order[first:] if ranks[one] - ranks[order[first]] <= critical]
        if len(run) > 1 and not any(set(run) <= set(one) for one in found):
            found.append(tuple(run))
    return tuple(found)
