"""Error rates that hold with a given confidence: which rules of a front may be promised.

Rules are tested from the slowest to the fastest, each by an exact binomial test of "its error rate exceeds alpha" on
sequences that played no part in fitting. The first rule that cannot be shown to be good ends the walk. Walking in an
order that was fixed beforehand needs no correction for the number of rules: a wrong promise needs the first bad rule on
the way to pass its test, which happens with a probability of at most 1 - confidence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy import stats

from firmbound.arrays import is_real
from firmbound.errors import InvalidInput


def error_interval(wrong: int, sequences: int, confidence: float) -> tuple[float, float]:
    """Clopper and Pearson's interval of an error rate: it holds the true one with at least this probability."""
    check_share("confidence", confidence)
    tail = (1 - confidence) / 2
    low = stats.beta.ppf(tail, wrong, sequences - wrong + 1) if wrong else 0.0
    high = stats.beta.ppf(1 - tail, wrong + 1, sequences - wrong) if wrong < sequences else 1.0
    return float(low), float(high)


def fastest_safe(wrong: Sequence[int], sequences: int, alpha: float, confidence: float) -> int | None:
    """Index of the fastest rule whose error rate is at most alpha with this confidence; None if none can be promised.

    wrong: how often each rule erred on the same `sequences` held-out ones, the slowest rule first.
    """
    check_share("alpha", alpha)
    check_share("confidence", confidence)
    if sequences < 1 or any(not 0 <= count <= sequences for count in wrong):
        raise InvalidInput("wrong", f"count errors among {sequences} sequences", list(wrong))
    best = None
    for index, count in enumerate(wrong):
        if (
            stats.binom.cdf(count, sequences, alpha) > 1 - confidence
        ):  # so few errors are no surprise at a rate of alpha
            break
        best = index
    return best


def sequences_needed(alpha: float, confidence: float) -> int:
    """Below so many held-out sequences not even a rule that never errs can be promised."""
    check_share("alpha", alpha)
    check_share("confidence", confidence)
    return math.ceil(min(math.log1p(-confidence) / math.log1p(-alpha), 1e18))


def check_share(name: str, value: float) -> None:
    if not is_real(value) or not 0 < value < 1:
        raise InvalidInput(name, "lie between 0 and 1", value)
