"""What is known of a continuation risk before any data: where it vanishes, how large it can be, which inputs suit it.

With posterior pi, least_j the risk that is left when class j is known, and regret_jk what the best decision for class k
costs more than least_j if the class is j,

    floor(pi) = sum_j pi_j least_j,    scale(pi) = sum_jk pi_j pi_k regret_jk,    floor <= risk <= floor + scale,

because `scale` is what one would regret on average who drew a class from the posterior and decided as for it, and the
best decision regrets no more. So risk = floor + scale * share with a share in [0, 1] that tends to a constant where a
class becomes certain. The noise of the next step's risk shrinks with the scale too: measured in shares it is nearly the
same everywhere, where in risks it spans many powers of ten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from firmbound.arrays import Floats
from firmbound.continuation.surface import Statistic
from firmbound.errors import InvalidInput
from firmbound.memory import SUMMARIES
from firmbound.posterior import RANKS, softmax


@dataclass(frozen=True)
class RiskFrame:
    """From a statistic, LLRs (n, K - 1) or posteriors (n, K), to beliefs, inputs of a kernel, floor and scale.

    With statistic "ranked", rows are the largest posteriors and the rest, (n, RANKS + 1), and are frame and inputs of a
    problem with so many classes, in which whoever draws the rest regrets it even if the rest is true: it has many.

    With statistic "memory", rows are posteriors with M summaries of the past beside them, (n, K + M). The belief enters
    the kernel as LLRs do, the summaries as they are; floor and scale are the belief's.

    regret (K, K) and least (K,) as above, in units of the largest penalty.
    log_prior_odds (K - 1,): log prior_k - log prior_K. temperature: LLRs enter the kernel as softmax(log odds /
    temperature), which leads from the posterior (1) to the ratios themselves (inf) and squeezes the far tails, where
    the share is flat; the posterior enters as it is. scaled: whether shares are modelled, or risks as the paper does.
    """

    statistic: Statistic
    log_prior_odds: Floats
    regret: Floats
    least: Floats
    temperature: float
    scaled: bool

    @classmethod
    def create(
        cls, statistic: Statistic, prior: Floats, unit_penalty: Floats, *, temperature: float, scaled: bool
    ) -> RiskFrame:
        if statistic == "ranked":
            regret = 1.0 - np.diag(np.append(np.ones(RANKS), 0.0))
            return cls(statistic, np.zeros(RANKS), regret, np.zeros(RANKS + 1), temperature, scaled)
        odds = np.log(prior[:-1]) - np.log(prior[-1])
        least = unit_penalty.min(axis=1)
        regret = unit_penalty[:, unit_penalty.argmin(axis=1)] - least[:, None]
        return cls(statistic, odds, regret, least, temperature, scaled)

    @property
    def classes(self) -> int:
        return len(self.least)

    @property
    def summaries(self) -> int:
        """How many numbers of the past stand beside the belief."""
        return len(SUMMARIES) if self.statistic == "memory" else 0

    @property
    def dimension(self) -> int:
        """Of a kernel's inputs."""
        return self.classes - 1 + self.summaries

    def arrays(self) -> Mapping[str, Floats]:
        named = {self.statistic: np.ones(1)} if self.statistic in ("memory", "ranked") else {}
        return named | {
            "posterior": np.array([float(self.statistic == "posterior")]),
            "log_prior_odds": self.log_prior_odds,
            "regret": self.regret,
            "least": self.least,
            "temperature": np.array([self.temperature]),
            "scaled": np.array([float(self.scaled)]),
        }

    @classmethod
    def from_arrays(
        cls,
        posterior: Floats,
        log_prior_odds: Floats,
        regret: Floats,
        least: Floats,
        temperature: Floats,
        scaled: Floats,
        memory: Floats | None = None,
        ranked: Floats | None = None,
    ) -> RiskFrame:
        statistic: Statistic = "posterior" if posterior[0] else "llr"
        if memory is not None or ranked is not None:
            statistic = "memory" if ranked is None else "ranked"
        return cls(statistic, log_prior_odds, regret, least, float(temperature[0]), bool(scaled[0]))

    def belief(self, statistic: Floats) -> Floats:
        """(n, K) posteriors of (n, K - 1) LLRs or of themselves; or (K,) of one."""
        columns = self.classes - (self.statistic == "llr") + self.summaries
        if statistic.shape[-1] != columns:
            words = "log-likelihood ratios" if self.statistic == "llr" else "posteriors"
            words += " and summaries" * (self.statistic == "memory")
            raise InvalidInput("statistic", f"have {columns} {words} a row", f"{statistic.shape[-1]} columns")
        if self.statistic == "memory":
            return statistic[..., : self.classes]
        return softmax(self._scores(statistic)) if self.statistic == "llr" else statistic

    def inputs(self, statistic: Floats) -> Floats:
        """(n, d) inputs of a kernel, d = K - 1, or K - 1 + M with memory; or (d,) of one."""
        if self.statistic == "memory":
            return np.concatenate([self._softened(self.belief(statistic)), statistic[..., self.classes :]], axis=-1)
        if self.statistic == "posterior":
            return statistic[..., :-1]
        if self.statistic == "ranked":
            return self._softened(statistic)
        if self.temperature == np.inf:
            return statistic
        return softmax(self._scores(statistic) * self._coldness)[..., :-1]

    def floor(self, belief: Floats) -> Floats:
        """(n, K) -> (n,)."""
        return np.asarray(belief @ self.least if self.scaled else np.zeros(belief.shape[:-1]))

    def scale(self, belief: Floats) -> Floats:
        """(n, K) -> (n,)."""
        return np.asarray(((belief @ self.regret) * belief).sum(axis=-1) if self.scaled else np.ones(belief.shape[:-1]))

    @cached_property
    def _coldness(self) -> float:
        return 1.0 / self.temperature

    @cached_property
    def _padded_odds(self) -> Floats:
        return np.append(self.log_prior_odds, 0.0)

    def _softened(self, belief: Floats) -> Floats:
        """Of posteriors (.., K) what `inputs` makes of the ratios that belong to them.  -> (.., K - 1)."""
        if self.temperature == np.inf:
            log = np.log(np.maximum(belief, np.finfo(float).tiny))
            return np.asarray(log[..., :-1] - log[..., -1:])
        powers = belief**self._coldness
        return np.asarray((powers / powers.sum(axis=-1, keepdims=True))[..., :-1])

    def _scores(self, ratios: Floats) -> Floats:
        """Log odds against the last class, itself included."""
        scores = np.empty((*ratios.shape[:-1], self.classes))
        scores[..., :-1] = ratios
        scores[..., -1] = 0.0
        scores += self._padded_odds
        return scores
