"""All measures of one rule at one cost, in one row."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from numpy.typing import NDArray

from firmbound.arrays import Floats, Ints
from firmbound.costs import DecisionProblem
from firmbound.evaluation.estimates import mean_of
from firmbound.evaluation.hitting_time import mean_time, time_variance
from firmbound.evaluation.risk import believed_risk, realised_risk
from firmbound.evaluation.risk_gap import RiskGap, risk_gap
from firmbound.evaluation.speed_accuracy import accuracy, earliness, harmonic_mean, macro_error
from firmbound.trajectories import Decisions


@dataclass(frozen=True)
class Score:
    """`_error` fields are standard errors; aapr is believed, realised_risk is what happened, risk_gap how far above."""

    cost: float
    aapr: float
    aapr_error: float
    realised_risk: float
    realised_risk_error: float
    risk_gap: float
    risk_gap_error: float
    risk_gap_chance: float
    error_rate: float
    error_rate_error: float
    mean_time: float
    mean_time_error: float
    time_variance: float
    time_variance_error: float
    accuracy: float
    earliness: float
    harmonic_mean: float

    @property
    def gap(self) -> RiskGap:
        return RiskGap(self.risk_gap, self.risk_gap_error, self.risk_gap_chance, self.realised_risk)

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


def score(
    decisions: Decisions,
    *,
    evidence: NDArray[Any],
    labels: Ints,
    prior: Floats,
    problem: DecisionProblem,
    cost: float,
) -> Score:
    """Score decisions on (n, T, K) evidence with true labels (n,)."""
    risks = believed_risk(decisions, evidence, prior, problem, cost)
    believed, gap = mean_of(risks), risk_gap(decisions, risks, labels, problem, cost)
    realised = mean_of(realised_risk(decisions, labels, problem, cost))
    error = macro_error(decisions, labels, problem.classes)
    time, variance = mean_time(decisions), time_variance(decisions)
    return Score(
        cost=cost,
        aapr=believed.value,
        aapr_error=believed.standard_error,
        realised_risk=realised.value,
        realised_risk_error=realised.standard_error,
        risk_gap=gap.value,
        risk_gap_error=gap.standard_error,
        risk_gap_chance=gap.chance,
        error_rate=error.value,
        error_rate_error=error.standard_error,
        mean_time=time.value,
        mean_time_error=time.standard_error,
        time_variance=variance.value,
        time_variance_error=variance.standard_error,
        accuracy=accuracy(decisions, labels),
        earliness=earliness(decisions),
        harmonic_mean=harmonic_mean(decisions, labels),
    )
