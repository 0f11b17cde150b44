"""StoppingRule: continuation-risk surfaces for every cost on the front, and the decisions they make."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from firmbound.arrays import Bools, Floats, Ints
from firmbound.backward_induction import Progress, expected_minimum, induce, statistic_of
from firmbound.bundle import read_bundle, write_bundle
from firmbound.continuation.affine import MinAffineSurface
from firmbound.continuation.convex import ConvexFitter, ConvexOptions
from firmbound.continuation.surface import RiskSurface, Statistic, SurfaceFitter
from firmbound.costs import TIE, DecisionProblem
from firmbound.errors import BundleError, InvalidInput
from firmbound.posterior import class_prior, log_likelihood_ratios, posterior, softmax
from firmbound.schedule import Schedule
from firmbound.trajectories import Decisions, check_evidence, check_step_evidence

KIND = "stopping-rule"
Method = Literal["cfl"]

# How a saved surface comes back: its kind names its class.
SURFACES: Mapping[str, Callable[..., RiskSurface]] = {MinAffineSurface.kind: MinAffineSurface}


@dataclass(frozen=True)
class Outlook:
    """How things stand after t observations, for each of n sequences; risks in the units of the penalty."""

    decided: Bools
    label: Ints
    posterior: Floats
    stopping_risk: Floats
    continuation_risk: Floats


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
    """Stop after t observations when the risk of stopping is no higher than that of going on; at T, stop anyway."""

    problem: DecisionProblem
    prior: Floats
    statistic: Statistic
    surfaces: Sequence[RiskSurface]

    @property
    def costs(self) -> Floats:
        return self.problem.costs

    def continuation_risk(self, evidence: ArrayLike, *, t: int, cost: float | None = None) -> Floats:
        """Expected risk of observing once more after t observations, cost included.  (n, K) -> (n,); t in 1..T-1."""
        if not 1 <= t < self.problem.horizon:
            raise InvalidInput("t", f"lie in 1..{self.problem.horizon - 1}", t, "At the horizon there is no next step.")
        index = self.problem.cost_index(cost)
        values = check_step_evidence(evidence, self.problem.classes)
        return self.problem.scale * self._continuation(values, posterior(values, self.prior), t, index)

    def outlook(self, evidence: ArrayLike, *, t: int, cost: float | None = None) -> Outlook:
        """Decide for n sequences of which t observations are in, from their evidence (n, K); t in 1..T.

        This is the definition of the rule; `decide` is the fast way through whole sequences.
        """
        if not 1 <= t <= self.problem.horizon:
            raise InvalidInput("t", f"lie in 1..{self.problem.horizon}", t)
        values = check_step_evidence(evidence, self.problem.classes)
        index = self.problem.cost_index(cost)
        belief = posterior(values, self.prior)
        stopping = self.problem.stopping_risk(belief)
        last = t == self.problem.horizon
        going_on = np.full(len(values), np.inf) if last else self._continuation(values, belief, t, index)
        scale = self.problem.scale
        label = self.problem.best_label(belief)
        return Outlook(stopping <= going_on, label, belief, scale * stopping, scale * going_on)

    def step(self, evidence: ArrayLike, *, t: int, cost: float | None = None) -> Step:
        """`outlook` for one sequence, (K,) evidence: the same decision in a few microseconds."""
        problem = self.problem
        values = np.asarray(evidence, dtype=np.float64)
        # A sum is finite only if its parts are, and quicker than asking each of them.
        if values.shape != self.prior.shape or not math.isfinite(values.sum()):
            raise InvalidInput("evidence", f"be {problem.classes} finite numbers, one a class", evidence)
        if not 1 <= t <= problem.horizon:
            raise InvalidInput("t", f"lie in 1..{problem.horizon}", t)
        belief = softmax(values + self._log_prior)
        # Risk of each decision, then the least that any look could leave: one product for all.
        risks = belief @ self._penalties
        stopping, going_on = float(risks[:-1].min()), math.inf
        label = int((risks[:-1] <= stopping + TIE).argmax())
        if t < problem.horizon:
            surface, price = self._ahead(t, cost)
            expected = surface.at(belief if self.statistic == "posterior" else log_likelihood_ratios(values))
            going_on = max(expected, float(risks[-1])) + price
        scale = problem.scale
        return Step(stopping <= going_on, label, t, belief, scale * stopping, scale * going_on)

    def decide(self, evidence: ArrayLike, *, cost: float | None = None) -> Decisions:
        """When and what is decided on whole sequences, (n, T, K) evidence."""
        values = check_evidence(evidence, horizon=self.problem.horizon, classes=self.problem.classes)
        n, horizon, _ = values.shape
        index = self.problem.cost_index(cost)
        time = np.full(n, horizon)
        label = np.empty(n, dtype=np.int64)
        waiting = np.arange(n)
        for t in range(1, horizon + 1):
            evidence_now = values[waiting, t - 1]
            belief = posterior(evidence_now, self.prior)
            stop = np.ones(len(waiting), dtype=np.bool_)
            if t < horizon:
                stop = self.problem.stopping_risk(belief) <= self._continuation(evidence_now, belief, t, index)
            time[waiting[stop]] = t
            label[waiting[stop]] = self.problem.best_label(belief[stop])
            waiting = waiting[~stop]
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
        write_bundle(path, kind=KIND, header={"statistic": self.statistic, "surfaces": kinds}, arrays=arrays)

    @classmethod
    def load(cls, path: str | Path) -> StoppingRule:
        """Read a bundle; a damaged or foreign one raises BundleError."""
        header, arrays = read_bundle(path, kind=KIND)
        try:
            problem = DecisionProblem(arrays["penalty"], arrays["costs"], arrays["delay"])
            surfaces = []
            for t, kind in enumerate(header["surfaces"], start=1):
                start = f"surface/{t}/"
                parts = {name.removeprefix(start): part for name, part in arrays.items() if name.startswith(start)}
                surfaces.append(SURFACES[kind](**parts))
            rule = cls(problem, arrays["prior"], header["statistic"], surfaces)
            rule._check_whole()
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as found:
            raise BundleError(f"{path} is no stopping rule that this version can read: {found!r}") from None
        return rule

    def _check_whole(self) -> None:
        """Parts that do not belong together are found when loading, not when deciding."""
        classes, costs = self.problem.classes, self.problem.costs.size
        if self.statistic not in get_args(Statistic):
            raise ValueError(f"unknown statistic {self.statistic!r}")
        if self.prior.shape != (classes,) or len(self.surfaces) != self.problem.horizon - 1:
            raise ValueError("prior or number of surfaces does not fit the problem")
        trial = np.zeros((1, classes))
        for surface in self.surfaces:
            if surface(statistic_of(trial, posterior(trial, self.prior), self.statistic)).shape != (1, costs):
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

    def _continuation(self, evidence: NDArray[Any], belief: Floats, t: int, index: int) -> Floats:
        """In units of the scale, from evidence (n, K) and its posterior.  -> (n,)."""
        expected = expected_minimum(self._surface(t, index), evidence, belief, self.statistic, self.problem)[:, 0]
        return np.asarray(expected + self.problem.next_cost(t)[index], dtype=np.float64)


def fit_stopping_rule(
    evidence: ArrayLike,
    *,
    costs: ArrayLike,
    penalty: ArrayLike = 10.0,
    prior: ArrayLike | None = None,
    delay: ArrayLike | None = None,
    method: Method = "cfl",
    options: ConvexOptions | None = None,
    schedule: Schedule | None = None,
    progress: Progress | None = None,
    seed: int = 0,
) -> StoppingRule:
    """Fit the rules of all `costs` on evidence (n, T, K), which needs no labels.

    penalty: a number, a (K,) vector or a (K, K) matrix (row = true class, column = decision). prior: (K,), uniform by
    default. delay: (T,) factors on the cost of each observation. `seed` is for methods that draw at random; "cfl" does
    so for random subsamples and for the folds of cross-validation.

    >>> problem = firmbound.datasets.gaussian(classes=2, sequences=20_000)
    >>> rule = firmbound.fit_stopping_rule(problem.evidence, costs=[0.02, 0.2, 0.4], penalty=10.0)
    >>> rule.decide(problem.evidence, cost=0.2).time.mean()
    """
    values = check_evidence(evidence)
    _, horizon, classes = values.shape
    problem = DecisionProblem.create(classes=classes, horizon=horizon, penalty=penalty, costs=costs, delay=delay)
    fitter = make_fitter(method, problem, options, seed=seed)
    return fit_from_slices(
        lambda t: values[:, t - 1], class_prior(prior, classes), problem, fitter, schedule=schedule, progress=progress
    )


def fit_from_slices(
    evidence_at: Callable[[int], NDArray[Any]],
    prior: Floats,
    problem: DecisionProblem,
    fitter: SurfaceFitter,
    *,
    schedule: Schedule | None = None,
    progress: Progress | None = None,
) -> StoppingRule:
    """As `fit_stopping_rule`, asking for evidence one time step at a time: it may lie on disk, larger than memory."""
    surfaces = induce(evidence_at, prior, problem, fitter, schedule=schedule, progress=progress)
    return StoppingRule(problem, prior, fitter.statistic, surfaces)


def make_fitter(
    method: Method, problem: DecisionProblem, options: ConvexOptions | None = None, *, seed: int = 0
) -> SurfaceFitter:
    """The estimator of a method's name, for a decision problem."""
    if method == "cfl":
        return ConvexFitter(problem.stopping_risk(np.eye(problem.classes)), options or ConvexOptions(), seed)
    raise InvalidInput("method", "be 'cfl'", repr(method))
