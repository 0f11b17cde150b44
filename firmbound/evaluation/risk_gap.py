"""The calibration alarm: what decisions cost against what the rule believed that they would, sequence by sequence.

Were beliefs honest, the two would agree on average. Where they do not, by more than chance explains and by enough to
matter, a rule must be judged by what it pays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from firmbound.arrays import Floats, Ints
from firmbound.costs import DecisionProblem
from firmbound.errors import InvalidInput
from firmbound.evaluation.estimates import Estimate, mean_of
from firmbound.evaluation.risk import realised_risk
from firmbound.trajectories import Decisions

Alarm = Literal["overconfident", "underconfident"]
# So many standard errors are no chance: honest beliefs would show them, either way, three times in a thousand.
SURE = 3.0
# A gap below this share of the realised risk changes no choice worth making.
LIMIT = 0.05


@dataclass(frozen=True)
class RiskGap:
    """Realised less believed risk: above 0 the rule pays more than it believes.

    standard_error: of the mean of the paired differences, as they spread. chance: what that would be were beliefs
    honest; where errors are rare, a few of them tell less of the spread than the beliefs do.
    """

    value: float
    standard_error: float
    chance: float
    realised: float

    def alarm(self, limit: float = LIMIT) -> Alarm | None:
        """Which way beliefs are wrong, if beyond chance and by more than this share of the realised risk."""
        noise = SURE * max(self.standard_error, self.chance)
        if abs(self.value) <= max(noise, limit * self.realised):
            return None
        return "overconfident" if self.value > 0 else "underconfident"


def risk_gap(decisions: Decisions, believed: Floats, labels: Ints, problem: DecisionProblem, cost: float) -> RiskGap:
    """Of (n,) decisions with their believed risks (n,) and true labels (n,)."""
    realised = realised_risk(decisions, labels, problem, cost)
    if believed.shape != realised.shape:
        raise InvalidInput("believed", "have one risk a decision", f"shapes {believed.shape} and {realised.shape}")
    gap: Estimate = mean_of(realised - believed)
    expected = believed - problem.spent(decisions.time, cost)
    most, least = (part[decisions.label] for part in (problem.penalty.max(axis=0), problem.penalty.min(axis=0)))
    # The largest variance that a penalty of this mean can have; it has it where a decision is right or wrong.
    variance = np.maximum((most - expected) * (expected - least), 0.0)
    chance = float(np.sqrt(variance.sum()) / len(variance))
    return RiskGap(gap.value, gap.standard_error, chance, float(realised.mean()))


def in_words(cost: float, believed: float, realised: float, error: float) -> str:
    """What a rule believes and pays at one cost, with the standard error of the latter."""
    return f"at a cost of {cost:g} it believes {believed:.3f} and pays {realised:.3f} ± {error:.3f}"
