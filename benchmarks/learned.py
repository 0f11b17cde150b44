"""What benchmarks of learned evidence share: decisions made from it, risks counted with exact evidence."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import firmbound
from firmbound.arrays import Floats
from firmbound.evaluation.risk import believed_risk
from firmbound.tandem.model import TandemModel, fit_tandem
from firmbound.trajectories import Decisions

COSTS, PENALTY = [0.02, 0.2, 0.4], 10.0


def rule_on(evidence: NDArray[Any], prior: Floats) -> firmbound.StoppingRule:
    return firmbound.fit_stopping_rule(evidence, costs=COSTS, penalty=PENALTY, prior=prior, method="gp")


def true_risk(rule: firmbound.StoppingRule, decisions: Decisions, exact: NDArray[Any], cost: float) -> Floats:
    """(n,) expected penalty under the exact posterior, plus the cost of observations."""
    return believed_risk(decisions, exact, rule.prior, rule.problem, cost)


def slope_and_correlation(learned: NDArray[Any], exact: NDArray[Any]) -> tuple[float, float]:
    """Of learned on true ratios of the first two classes at the horizon."""
    found, truth = (e[:, -1, 0].astype(float) - e[:, -1, 1] for e in (learned, exact))
    return float(np.polyfit(truth, found, 1)[0]), float(np.corrcoef(truth, found)[0, 1])


def train(
    problem: Any,
    held_out: Any,
    network: firmbound.NetworkOptions,
    training: firmbound.TrainingOptions,
) -> TandemModel:
    return fit_tandem(
        problem.features,
        problem.labels,
        validation=(held_out.features, held_out.labels),
        prior=problem.prior,
        network=network,
        training=training,
    )
