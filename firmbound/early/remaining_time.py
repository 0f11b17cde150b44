"""How many more observations a rule is going to ask for, by how doubtful things are now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firmbound.arrays import Floats, Ints
from firmbound.posterior import posterior
from firmbound.stopping_rule import StoppingRule

GROUPS = 8


@dataclass(frozen=True)
class RemainingTime:
    """For each cost and t < T: groups of sequences that go on, by their stopping risk, and how long those went on.

    edges (C, T - 1, G - 1), rising; means (C, T - 1, G). Where nothing was seen going on, the mean is one observation.
    """

    edges: Floats
    means: Floats

    @classmethod
    def of(cls, rule: StoppingRule, evidence: NDArray[Any], lengths: Ints | None = None) -> RemainingTime:
        """From (n, T, K) evidence of sequences like those to come, which may end before T."""
        horizon, costs = rule.problem.horizon, rule.costs.tolist()
        edges = np.zeros((len(costs), horizon - 1, GROUPS - 1))
        means = np.ones((len(costs), horizon - 1, GROUPS))
        for index, cost in enumerate(costs):
            time = rule.decide(evidence, cost=cost, lengths=lengths).time
            for t in range(1, horizon):
                on = time > t
                if on.any():
                    belief = posterior(evidence[on, t - 1], rule.prior)
                    risk = rule.problem.scale * rule.problem.stopping_risk(belief)
                    edges[index, t - 1], means[index, t - 1] = _groups(risk, time[on] - t)
        return cls(edges, means)

    def fits(self, rule: StoppingRule) -> bool:
        steps = (rule.costs.size, rule.problem.horizon - 1)
        shapes = (self.edges.shape, self.means.shape)
        return shapes == ((*steps, GROUPS - 1), (*steps, GROUPS)) and bool(np.isfinite(self.means).all())

    def __call__(self, t: int, index: int, risk: float) -> float:
        """Expected number of further observations after t < T of them, at this stopping risk."""
        group = int(np.searchsorted(self.edges[index, t - 1], risk))
        return float(self.means[index, t - 1, group])

    def each(self, t: int, index: int, risks: Floats) -> Floats:
        """The same for many at once, (n,) -> (n,)."""
        return np.asarray(self.means[index, t - 1, np.searchsorted(self.edges[index, t - 1], risks)])


def _groups(risk: Floats, left: Ints) -> tuple[Floats, Floats]:
    """Groups of equal size; an empty one, where many risks are equal, has the mean of all."""
    edges = np.quantile(risk, np.arange(1, GROUPS) / GROUPS)
    place = np.searchsorted(edges, risk)
    count = np.bincount(place, minlength=GROUPS)
    total = np.bincount(place, left, GROUPS)
    means = np.where(count > 0, total / np.maximum(count, 1), left.mean())
    return np.asarray(edges, dtype=np.float64), np.asarray(means, dtype=np.float64)
