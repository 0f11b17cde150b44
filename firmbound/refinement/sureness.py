"""How sure refined evidence may be where it is decided on.

Beliefs that are right on average at every t are too sure on average where a rule stops: it stops where they err towards
certainty. One temperature on all evidence makes decisions cost what they are believed to.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from firmbound.arrays import Floats, Ints
from firmbound.evaluation.estimates import mean_of
from firmbound.posterior import posterior
from firmbound.stopping_rule import StoppingRule

# The highest temperature that is looked for: evidence so far off is mended by more data, not by doubt.
HIGHEST = 2.0
# So many standard errors of what decisions cost beyond belief are no chance.
SURE = 2.0


def temperature_at_decisions(rule: StoppingRule, evidence: NDArray[Any], labels: Ints, lengths: Ints) -> float:
    """The temperature at which the rule's decisions, over all its costs, are believed to cost what they do; 1 or above.

    evidence (n, T, K): of sequences whose labels it never saw. Beliefs that are too modest are left as they are.
    Classes count as the rule's prior says, whatever their shares: else a prior unlike them would pass for sureness.
    """
    problem, rows = rule.problem, np.arange(len(labels))
    shares = np.bincount(labels, minlength=problem.classes) / len(labels)
    weights = rule.prior[labels] / shares[labels]
    paid, stands, chosen = np.zeros(len(labels)), [], []
    for cost in rule.costs.tolist():
        decided = rule.decide(evidence, cost=cost, lengths=lengths)
        paid += problem.penalty[labels, decided.label]
        stands.append(evidence[rows, decided.time - 1])
        chosen.append(decided.label)

    def beyond_belief(temperature: float) -> Floats:
        believed = np.zeros(len(labels))
        for now, label in zip(stands, chosen, strict=True):
            chances = posterior(now.astype(np.float64) / temperature, rule.prior)
            believed += (chances * problem.penalty[:, label].T).sum(axis=1)
        return np.asarray(weights * (paid - believed))

    gap = mean_of(beyond_belief(1.0))
    if gap.value <= SURE * gap.standard_error:
        return 1.0
    if beyond_belief(HIGHEST).mean() >= 0:
        return HIGHEST
    return float(optimize.brentq(lambda one: float(beyond_belief(one).mean()), 1.0, HIGHEST, xtol=1e-4))
