"""StoppingRule: continuation-risk surfaces for every cost on the front, and the decisions they make."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from firmbound.arrays import Bools, Floats, Ints, check_lengths
from firmbound.backward_induction import expected_minimum, statistic_of
from firmbound.bundle import read_bundle, write_bundle
from firmbound.continuation.kinds import SURFACES
from firmbound.continuation.surface import RiskSurface, Statistic, UncertainSurface
from firmbound.costs import TIE, DecisionProblem
from firmbound.errors import BundleError, InvalidInput
from firmbound.memory import SUMMARIES, Memory, check_summaries
from firmbound.posterior import class_prior, posterior, softmax
from firmbound.trajectories import Decisions, check_evidence, check_step_evidence

KIND = "stopping-rule"


@dataclass(frozen=True)
class Outlook:
    """How things stand after t observations, for each of n sequences; risks in the units of the penalty.

    deviation: standard deviation of the continuation risk; nan where the rule's method gives none.
    """

    decided: Bools
    label: Ints
    posterior: Floats
    stopping_risk: Floats
    continuation_risk: Floats
    deviation: Floats


class Step(NamedTuple):
    """How things stand for one sequence after `time` observations; the continuation risk at the horizon is inf."""

    decided: bool
    label: int
    time: int
    posterior: Floats
    stopping_risk: float
    continuation_risk: float


@dataclass(frozen=True)
class StoppingRule:
    """Stop after t observations when the risk of stopping is no higher than that of going on; at T, stop anyway.

    confidence: how probable it must be, given the uncertainty of the fitted risk, that stopping is no riskier. One half
    compares the best estimates; more waits in doubt, for methods that know their uncertainty.

    A rule with statistic "memory" looks at the past too. Where it sees one step alone, `memory` holds the summaries of
    that past, (n, M), as firmbound.memory makes them; whole sequences bring their own.
    """

    problem: DecisionProblem
    prior: Floats
    statistic: Statistic
    surfaces: Sequence[RiskSurface]
    confidence: float = 0.5

    def __post_init__(self) -> None:
        check_confidence(
            self.confidence, certain=not all(isinstance(surface, UncertainSurface) for surface in self.surfaces)
        )

    def __getstate__(self) -> dict[str, Any]:
        """What travels to other processes: the rule, not what was looked up in passing."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def with_confidence(self, confidence: float) -> StoppingRule:
        """The same rule, stopping only when that is better with this probability; nothing is fitted again."""
        return replace(self, confidence=confidence)

    @property
    def costs(self) -> Floats:
        return self.problem.costs

    @property
    def remembers(self) -> bool:
        """Whether the risk of going on depends on more than the belief."""
        return self.statistic == "memory"

    def continuation_risk(
        self, evidence: ArrayLike, *, t: int, cost: float | None = None, memory: ArrayLike | None = None
    ) -> Floats:
        """Expected risk of observing once more after t observations, cost included.  (n, K) -> (n,); t in 1..T-1."""
        if not 1 <= t < self.problem.horizon:
            raise InvalidInput("t", f"lie in 1..{self.problem.horizon - 1}", t, "At the horizon there is no next step.")
        index = self.problem.cost_index(cost)
        values = check_step_evidence(evidence, self.problem.classes)
        past = check_summaries(memory, count=len(values), wanted=self.remembers)
        return self.problem.scale * self._continuation(values, posterior(values, self.prior), past, t, index)[0]

    def stops(
        self, evidence: ArrayLike, *, t: int, cost: float | None = None, memory: ArrayLike | None = None
    ) -> Bools:
        """Whether to decide after t observations, (n, K) -> (n,); t in 1..T."""
        return self.outlook(evidence, t=t, cost=cost, memory=memory).decided

    def outlook(
        self, evidence: ArrayLike, *, t: int, cost: float | None = None, memory: ArrayLike | None = None
    ) -> Outlook:
        """Decide for n sequences of which t observations are in, from their evidence (n, K); t in 1..T.

        This is the definition of the rule; `decide` is the fast way through whole sequences.
        """
        if not 1 <= t <= self.problem.horizon:
            raise InvalidInput("t", f"lie in 1..{self.problem.horizon}", t)
        values = check_step_evidence(evidence, self.problem.classes)
        past = check_summaries(memory, count=len(values), wanted=self.remembers)
        index = self.problem.cost_index(cost)
        belief = posterior(values, self.prior)
        stopping = self.problem.stopping_risk(belief)
        last = t == self.problem.horizon
        going_on = limit = np.full(len(values), np.inf)
        deviation = np.full(len(values), np.nan)
        if not last:
            going_on, limit = self._continuation(values, belief, past, t, index)
            deviation = self._deviation(statistic_of(values, belief, self.statistic, past), t, index)
        scale = self.problem.scale
        label = self.problem.best_label(belief)
        return Outlook(stopping <= limit, label, belief, scale * stopping, scale * going_on, scale * deviation)

    def step(self, evidence: ArrayLike, *, t: int, cost: float | None = None, memory: ArrayLike | None = None) -> Step:
        """`outlook` for one sequence, (K,) evidence and (M,) summaries: the same decision in a few microseconds."""
        problem = self.problem
        values = np.asarray(evidence, dtype=np.float64)
        # A sum is finite only if its parts are, and quicker than asking each of them.
        if values.shape != self.prior.shape or not math.isfinite(values.sum()):
            raise InvalidInput("evidence", f"be {problem.classes} finite numbers, one a class", evidence)
        if not 1 <= t <= problem.horizon:
            raise InvalidInput("t", f"lie in 1..{problem.horizon}", t)
        past = None
        if memory is not None or self.remembers:
            rows = check_summaries(None if memory is None else np.atleast_2d(memory), count=1, wanted=self.remembers)
            past = None if rows is None else rows[0]
        belief = softmax(values + self._log_prior)
        # Risk of each decision, then the least that any look could leave: one product for all.
        risks = belief @ self._penalties
        stopping, going_on, limit = float(risks[:-1].min()), math.inf, math.inf
        label = int((risks[:-1] <= stopping + TIE).argmax())
        if t < problem.horizon:
            surface, price = self._ahead(t, cost)
            whole = self.statistic == "posterior"
            statistic = belief if whole else statistic_of(values, belief, self.statistic, past)
            least, expected = float(risks[-1]), surface.at(statistic)
            limit = going_on = max(expected, least) + price
            if self._margin and isinstance(surface, UncertainSurface):
                doubt = self._margin * float(surface.deviation(statistic[None])[0, 0])
                limit = max(expected - doubt, least) + price
        scale = problem.scale
        return Step(stopping <= limit, label, t, belief, scale * stopping, scale * going_on)

    def decide(self, evidence: ArrayLike, *, cost: float | None = None, lengths: ArrayLike | None = None) -> Decisions:
        """When and what is decided on whole sequences, (n, T, K) evidence; at the latest where they end, `lengths`."""
        values = check_evidence(evidence, horizon=self.problem.horizon, classes=self.problem.classes)
        n, horizon, _ = values.shape
        index = self.problem.cost_index(cost)
        ends = check_lengths(lengths, count=n, horizon=horizon)
        time = np.full(n, horizon)
        label = np.empty(n, dtype=np.int64)
        waiting, memory = np.arange(n), Memory.start(n, self.problem.classes) if self.remembers else None
        for t in range(1, horizon + 1):
            evidence_now = values[waiting, t - 1]
            belief = posterior(evidence_now, self.prior)
            stop = ends[waiting] <= t
            memory = memory.advance(evidence_now) if memory else None
            if t < horizon:
                past = memory.summaries() if memory else None
                limit = self._continuation(evidence_now, belief, past, t, index)[1]
                stop |= self.problem.stopping_risk(belief) <= limit
            time[waiting[stop]] = t
            label[waiting[stop]] = self.problem.best_label(belief[stop])
            waiting, memory = waiting[~stop], memory.take(~stop) if memory else None
            if len(waiting) == 0:
                break
        return Decisions(time, label, horizon)

    def save(self, path: str | Path) -> None:
        """Write a bundle: a folder with a JSON header and one array file, whole or not at all."""
        arrays: dict[str, NDArray[Any]] = {
            "penalty": self.problem.penalty,
            "costs": self.problem.costs,
            "delay": self.problem.delay,
            "prior": self.prior,
        }
        for t, surface in enumerate(self.surfaces, start=1):
            arrays |= {f"surface/{t}/{name}": array for name, array in surface.arrays().items()}
        kinds = [surface.kind for surface in self.surfaces]
        header = {"statistic": self.statistic, "surfaces": kinds, "confidence": self.confidence}
        write_bundle(path, kind=KIND, header=header, arrays=arrays)

    @classmethod
    def load(cls, path: str | Path) -> StoppingRule:
        """Read a bundle; a damaged or foreign one raises BundleError."""
        header, arrays = read_bundle(path, kind=KIND)
        try:
            penalty, costs, delay = (arrays[name] for name in ("penalty", "costs", "delay"))
            problem = DecisionProblem.create(
                classes=len(penalty), horizon=len(delay), penalty=penalty, costs=costs, delay=delay
            )
            surfaces = []
            for t, kind in enumerate(header["surfaces"], start=1):
                start = f"surface/{t}/"
                parts = {name.removeprefix(start): part for name, part in arrays.items() if name.startswith(start)}
                surfaces.append(SURFACES[kind](**parts))
            prior = class_prior(arrays["prior"], problem.classes)
            rule = cls(problem, prior, header["statistic"], surfaces, float(header.get("confidence", 0.5)))
            rule._check_whole()
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as found:
            raise BundleError(f"{path} is no stopping rule that this version can read: {found!r}") from None
        return rule

    def _check_whole(self) -> None:
        """Parts that do not belong together are found when loading, not when deciding."""
        classes, costs = self.problem.classes, self.problem.costs.size
        if self.statistic not in get_args(Statistic):
            raise ValueError(f"unknown statistic {self.statistic!r}")
        if self.prior.shape != (classes,) or len(self.surfaces) != self.problem.horizon - 1:
            raise ValueError("prior or number of surfaces does not fit the problem")
        trial, past = np.zeros((1, classes)), np.zeros((1, len(SUMMARIES)))
        for surface in self.surfaces:
            found = surface(statistic_of(trial, posterior(trial, self.prior), self.statistic, past))
            if found.shape != (1, costs) or not np.isfinite(found).all():
                raise ValueError("a surface does not fit the problem")

    def _surface(self, t: int, index: int) -> RiskSurface:
        """The surface of one cost, cut out once."""
        if (t, index) not in self._single:
            self._single[t, index] = self.surfaces[t - 1].select(index)
        return self._single[t, index]

    @cached_property
    def _single(self) -> dict[tuple[int, int], RiskSurface]:
        return {}

    def _ahead(self, t: int, cost: float | None) -> tuple[RiskSurface, float]:
        """Surface and price of the next observation; finding them takes longer than a decision, so they are kept."""
        if (t, cost) not in self._found:
            index = self.problem.cost_index(cost)
            self._found[t, cost] = self._surface(t, index), float(self.problem.next_cost(t)[index])
        return self._found[t, cost]

    @cached_property
    def _log_prior(self) -> Floats:
        return np.log(self.prior)

    @cached_property
    def _penalties(self) -> Floats:
        return np.column_stack([self.problem.unit_penalty, self.problem.unit_least])

    @cached_property
    def _found(self) -> dict[tuple[int, float | None], tuple[RiskSurface, float]]:
        return {}

    @cached_property
    def _margin(self) -> float:
        """Standard deviations by which stopping must be better."""
        return NormalDist().inv_cdf(self.confidence)

    def _continuation(
        self, evidence: NDArray[Any], belief: Floats, memory: NDArray[Any] | None, t: int, index: int
    ) -> tuple[Floats, Floats]:
        """Continuation risk, and the stopping risk below which to stop; in units of the scale, (n, K) -> (n,) each."""
        surface, known = self._surface(t, index), statistic_of(evidence, belief, self.statistic, memory)
        expected = expected_minimum(surface, known, belief, self.problem)[:, 0]
        price = self.problem.next_cost(t)[index]
        going_on = np.asarray(expected + price, dtype=np.float64)
        if not self._margin:
            return going_on, going_on
        doubt = self._margin * self._deviation(known, t, index)
        return going_on, np.maximum(going_on - doubt, self.problem.least_risk(belief) + price)

    def _deviation(self, statistic: Floats, t: int, index: int) -> Floats:
        """Standard deviation of the continuation risk; nan where the surface knows none."""
        surface = self._surface(t, index)
        if not isinstance(surface, UncertainSurface):
            return np.full(len(statistic), np.nan)
        return surface.deviation(statistic)[:, 0]


def check_confidence(confidence: float, *, certain: bool) -> None:
    """`certain`: the rule's surfaces do not know their uncertainty."""
    if not (isinstance(confidence, int | float) and 0.5 <= confidence < 1.0):
        raise InvalidInput("confidence", "lie in [0.5, 1)", confidence, "0.5 compares the best estimates.")
    if confidence > 0.5 and certain:
        raise InvalidInput("confidence", "be 0.5 for a rule without uncertainty", confidence, "Fit with method='gp'.")
