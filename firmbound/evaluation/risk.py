"""Risk of decisions: what the model believes it is, and what it was."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from firmbound.arrays import Floats, Ints, class_labels
from firmbound.costs import DecisionProblem
from firmbound.posterior import posterior
from firmbound.trajectories import Decisions


def believed_risk(
    decisions: Decisions, evidence: NDArray[Any], prior: Floats, problem: DecisionProblem, cost: float
) -> Floats:
    """A posteriori risk of each decision, sum_j pi_j penalty_jk + spent cost; its mean is the AAPR.  -> (n,).

    Comparable between rules on the same evidence only: a model that is too sure of itself believes in low risks.
    """
    rows = np.arange(len(decisions))
    belief = posterior(evidence[rows, decisions.time - 1], prior)
    risk = problem.scale * problem.decision_risk(belief)[rows, decisions.label]
    return np.asarray(risk + problem.spent(decisions.time, cost), dtype=np.float64)


def realised_risk(decisions: Decisions, labels: Ints, problem: DecisionProblem, cost: float) -> Floats:
    """What each decision did cost: penalty of the true label and the decided one, + spent cost.  -> (n,)."""
    truth = class_labels("labels", labels, count=len(decisions), classes=problem.classes)
    return np.asarray(problem.penalty[truth, decisions.label] + problem.spent(decisions.time, cost), dtype=np.float64)
