"""Where a two-class rule goes on: the interval of log-likelihood ratios at each t."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from firmbound.arrays import Bools, Floats
from firmbound.costs import DecisionProblem
from firmbound.errors import InvalidInput

REACH, NODES = 15.0, 3_001


class TwoClassRule(Protocol):
    """A fitted rule or the oracle."""

    @property
    def problem(self) -> DecisionProblem: ...

    def stops(self, evidence: Floats, *, t: int, cost: float | None = None) -> Bools: ...


def continuation_interval(rule: TwoClassRule, cost: float) -> Floats:
    """Lowest and highest e_1 - e_0 at which the rule goes on, t = 1..T-1.  -> (T - 1, 2), NaN where it never does."""
    if rule.problem.classes != 2:
        raise InvalidInput("rule", "have 2 classes", rule.problem.classes)
    ratio = np.linspace(-REACH, REACH, NODES)
    evidence = np.stack([-ratio / 2, ratio / 2], axis=1)
    interval = np.full((rule.problem.horizon - 1, 2), np.nan)
    for t in range(1, rule.problem.horizon):
        going_on = np.flatnonzero(~rule.stops(evidence, t=t, cost=cost))
        if len(going_on):
            interval[t - 1] = ratio[going_on[0]], ratio[going_on[-1]]
    return interval
