"""EarlyClassifier: network, prior and the rules of a whole front in one object; arrays in, early decisions out."""

from __future__ import annotations

import copy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import train_test_split

from firmbound.arrays import Floats, Ints
from firmbound.bundle import read_bundle, write_bundle
from firmbound.continuation.convex import ConvexOptions
from firmbound.continuation.gaussian_process import ProcessOptions
from firmbound.costs import DecisionProblem
from firmbound.errors import BundleError, FirmboundError, InvalidInput
from firmbound.evaluation.estimates import mean_of
from firmbound.evaluation.risk import realised_risk
from firmbound.fitting import Method, Options, fit_stopping_rule, make_fitter
from firmbound.guarantees import error_interval, fastest_safe, sequences_needed
from firmbound.live import EarlyStream, StreamParts, StreamPool
from firmbound.posterior import class_prior
from firmbound.publishing import publish
from firmbound.remaining_time import RemainingTime
from firmbound.stopping_rule import StoppingRule
from firmbound.tandem.data import single_precision
from firmbound.tandem.model import TandemModel, fit_tandem
from firmbound.tandem.options import NetworkOptions, TrainingOptions
from firmbound.tandem.training import Progress
from firmbound.trajectories import Decisions

KIND = "early-classifier"
# Costs of the front where none are given, as shares of penalty / T, which buys the horizon for one error.
FRONT = (0.03, 0.1, 0.2, 0.4, 0.7, 1.0, 1.5, 2.0, 3.0)


class NotFitted(FirmboundError, ValueError, AttributeError):
    """Call fit, or load a saved classifier, before asking for decisions."""


class NoRuleQualifies(FirmboundError):
    """No rule of the front can be promised to err as seldom as was asked."""


@dataclass(frozen=True)
class EarlyDecisions:
    """When and what was decided on n sequences: time (n,) in 1..T, and label (n,) in the caller's words."""

    time: Ints
    label: NDArray[Any]

    def __len__(self) -> int:
        return len(self.time)


@dataclass(frozen=True)
class FrontPoint:
    """One cost of the front on labelled sequences. The error has an exact 95 % interval; `_error`: a standard error."""

    cost: float
    error: float
    error_low: float
    error_high: float
    mean_time: float
    mean_time_error: float
    risk: float
    risk_error: float


class EarlyClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifies series (n, T, d) as early as cost and penalty allow.

    cost: of one observation. penalty: of a wrong decision; a number, one a class, or a matrix. costs: the front that is
    fitted beside `cost`, by default nine shares of penalty / T. prior: class probabilities, by default the shares of
    the labels. validation: share of the sequences that training stops by. held_out: share that is kept away from all
    fitting, for promises.

    >>> classifier = firmbound.EarlyClassifier(cost=0.2).fit(X, y)
    >>> classifier.decide(X_new).time.mean()
    >>> classifier.at_error(0.05).predict(X_new)
    """

    def __init__(
        self,
        cost: float = 0.2,
        penalty: Any = 10.0,
        *,
        costs: Any = None,
        prior: Any = None,
        method: Method = "cfl",
        options: Options | None = None,
        network: NetworkOptions | None = None,
        training: TrainingOptions | None = None,
        validation: float = 0.15,
        held_out: float = 0.15,
        seed: int = 0,
    ) -> None:
        self.cost = cost
        self.penalty = penalty
        self.costs = costs
        self.prior = prior
        self.method = method
        self.options = options
        self.network = network
        self.training = training
        self.validation = validation
        self.held_out = held_out
        self.seed = seed

    def fit(self, X: ArrayLike, y: ArrayLike, *, progress: Progress | None = None) -> Self:
        """Learn evidence from features X (n, T, d) with labels y (n,) of any kind, then the rules of all costs."""
        values = single_precision(X)
        classes, labels = _encode(y, len(values))
        train, valid, kept = self._split(labels)
        costs = self._front_costs(values.shape[1])
        prior = class_prior(np.bincount(labels) / len(labels) if self.prior is None else self.prior, len(classes))
        # What makes no sense is found before the training, not after it.
        problem = DecisionProblem.create(
            classes=len(classes), horizon=values.shape[1], penalty=self.penalty, costs=costs, delay=None
        )
        make_fitter(self.method, problem, prior, self.options, seed=self.seed)
        model = fit_tandem(
            values[train],
            labels[train],
            validation=(values[valid], labels[valid]),
            prior=prior,
            network=self.network,
            training=self.training or TrainingOptions(seed=self.seed, batch=min(200, len(train))),
            progress=progress,
        )
        seen = model.evidence(values[np.concatenate([train, valid])])
        rule = fit_stopping_rule(
            seen,
            costs=costs,
            penalty=self.penalty,
            prior=prior,
            method=self.method,
            options=self.options,
            seed=self.seed,
        )
        self.classes_, self.model_, self.rule_ = classes, model, rule
        self.remaining_ = RemainingTime.of(rule, seen)
        self.times_, self.wrong_ = self._record(values[kept], labels[kept])
        return self

    def decide(self, X: ArrayLike) -> EarlyDecisions:
        """When and what is decided on whole sequences."""
        chosen = self._decisions(X, self.cost)
        return EarlyDecisions(chosen.time, self.classes_[chosen.label])

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The labels alone."""
        return self.decide(X).label

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Negative average of penalties and costs of observations: higher is better."""
        labels = self._labels(y, np.shape(X)[:1])
        paid = realised_risk(self._decisions(X, self.cost), labels, self._fitted().problem, self.cost)
        return -float(np.average(paid, weights=None if sample_weight is None else np.asarray(sample_weight)))

    def front(self, X: ArrayLike, y: ArrayLike) -> list[FrontPoint]:
        """Error, time and risk at every cost that was fitted, the slowest rule first."""
        labels = self._labels(y, np.shape(X)[:1])
        evidence, rule = self.model_.evidence(X), self._fitted()
        points = []
        for cost in rule.costs.tolist():
            chosen = rule.decide(evidence, cost=cost)
            wrong = int((chosen.label != labels).sum())
            low, high = error_interval(wrong, len(labels), 0.95)
            time, risk = mean_of(chosen.time.astype(float)), mean_of(realised_risk(chosen, labels, rule.problem, cost))
            points.append(
                FrontPoint(
                    cost,
                    wrong / len(labels),
                    low,
                    high,
                    time.value,
                    time.standard_error,
                    risk.value,
                    risk.standard_error,
                )
            )
        return points

    def at_cost(self, cost: float) -> EarlyClassifier:
        """The same classifier at another cost of its front; nothing is fitted again."""
        index = self._fitted().problem.cost_index(cost)
        other = copy.copy(self)
        other.cost = float(self.rule_.costs[index])
        return other

    def at_time(self, mean_time: float) -> EarlyClassifier:
        """The rule whose mean number of observations on held-out sequences comes nearest."""
        horizon = self._fitted().problem.horizon
        if not 1 <= mean_time <= horizon:
            raise InvalidInput("mean_time", f"lie in 1..{horizon}", mean_time)
        times = self.times_.mean(axis=1)
        return self.at_cost(self.rule_.costs[int(np.abs(times - mean_time).argmin())])

    def at_error(self, alpha: float, confidence: float = 0.95) -> EarlyClassifier:
        """The fastest rule that errs with a probability of at most alpha, with this confidence.

        Judged on the sequences that were held out of all fitting. Raises NoRuleQualifies if none can be promised.
        """
        self._fitted()
        wrong = self.wrong_.sum(axis=1)
        count = self.wrong_.shape[1]
        best = fastest_safe(wrong.tolist(), count, alpha, confidence)
        if best is not None:
            return self.at_cost(self.rule_.costs[best])
        needed = sequences_needed(alpha, confidence)
        advice = f"Hold out {needed} at least." if count < needed else "Allow more errors, or add lower costs."
        raise NoRuleQualifies(
            f"No rule errs in at most {alpha:g} of all cases with a confidence of {confidence:g}: "
            f"on {count} held-out sequences the slowest erred {int(wrong[0])} times. {advice}"
        )

    def stream(self, state: bytes | None = None) -> EarlyStream:
        """One series, an observation at a time; `state` of an earlier stream goes on with it."""
        return EarlyStream(self._parts(), state)

    def pool(self, streams: int) -> StreamPool:
        """Many series advanced together."""
        return StreamPool(self._parts(), streams)

    def save(self, path: str | Path) -> None:
        """Write one folder: this classifier's bundle with the network's and the rules' inside."""
        rule = self._fitted()
        if self.classes_.dtype.kind not in "iufUb":
            raise InvalidInput("y", "be numbers or text to be saved", f"labels of dtype {self.classes_.dtype}")
        arrays = {
            "remaining/edges": self.remaining_.edges,
            "remaining/means": self.remaining_.means,
            "held_out/times": self.times_,
            "held_out/wrong": self.wrong_,
        }
        header = {"classes": self.classes_.tolist(), "cost": self.cost, "params": self._plain_params()}
        with publish(path) as folder:
            write_bundle(folder / "classifier", kind=KIND, header=header, arrays=arrays)
            self.model_.save(folder / "network")
            rule.save(folder / "rule")

    @classmethod
    def load(cls, path: str | Path) -> EarlyClassifier:
        folder = Path(path)
        header, arrays = read_bundle(folder / "classifier", kind=KIND)
        model, rule = TandemModel.load(folder / "network"), StoppingRule.load(folder / "rule")
        try:
            loaded = cls(**_from_plain(header["params"]))
            loaded.classes_, loaded.model_, loaded.rule_ = np.array(header["classes"]), model, rule
            loaded.remaining_ = RemainingTime(arrays["remaining/edges"], arrays["remaining/means"])
            loaded.times_, loaded.wrong_ = arrays["held_out/times"], arrays["held_out/wrong"]
            shape = (rule.costs.size, rule.problem.horizon - 1)
            if len(loaded.classes_) != rule.problem.classes or loaded.remaining_.means.shape[:2] != shape:
                raise ValueError("its parts do not belong together")
            rule.problem.cost_index(loaded.cost)
        except (KeyError, TypeError, ValueError) as problem:
            raise BundleError(f"{path} is no early classifier that this version can read: {problem}") from None
        return loaded

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "rule_")

    def _fitted(self) -> StoppingRule:
        if not hasattr(self, "rule_"):
            raise NotFitted("This EarlyClassifier is not fitted yet. Call fit(X, y), or load a saved one.")
        rule: StoppingRule = self.rule_
        return rule

    def _decisions(self, X: ArrayLike, cost: float) -> Decisions:
        rule = self._fitted()
        return rule.decide(self.model_.evidence(X), cost=cost)

    def _parts(self) -> StreamParts:
        rule = self._fitted()
        rule.problem.cost_index(self.cost)
        return StreamParts(self.model_, rule, self.remaining_, self.classes_, self.cost)

    def _front_costs(self, horizon: int) -> Floats:
        """All costs, rising: the slowest rule first."""
        try:
            scale = float(np.max(np.asarray(self.penalty, dtype=float))) / horizon
            rounded = [float(f"{share * scale:.6g}") for share in FRONT]
            front = np.asarray(rounded if self.costs is None else self.costs, dtype=float)
            return np.unique(np.append(front, float(self.cost)))
        except (TypeError, ValueError):
            got = f"{self.cost!r}, {self.costs!r} and {self.penalty!r}"
            raise InvalidInput("cost, costs and penalty", "be numbers", got) from None

    def _split(self, labels: Ints) -> tuple[Ints, Ints, Ints]:
        """Places of sequences for training, validation and the final judgement; every class in each."""
        for name in ("validation", "held_out"):
            if not (isinstance(getattr(self, name), float) and 0 < getattr(self, name) < 0.5):
                raise InvalidInput(name, "be a share between 0 and 0.5", getattr(self, name))
        everyone = np.arange(len(labels))
        least = int(np.bincount(labels).min())
        if least < 4 or len(labels) * min(self.validation, self.held_out) < labels.max() + 1:
            rule = "hold enough sequences to split: four of every class, and as many held out as there are classes"
            raise InvalidInput("y", rule, f"{len(labels)} sequences, the rarest class {least} times")
        rest, kept = train_test_split(everyone, test_size=self.held_out, stratify=labels, random_state=self.seed)
        share = self.validation / (1 - self.held_out)
        train, valid = train_test_split(rest, test_size=share, stratify=labels[rest], random_state=self.seed)
        return train, valid, kept

    def _record(self, values: NDArray[np.float32], labels: Ints) -> tuple[Ints, NDArray[np.bool_]]:
        """Time and error of every rule on every held-out sequence, (C, m) each: what the front and promises go by."""
        evidence, rule = self.model_.evidence(values), self.rule_
        chosen = [rule.decide(evidence, cost=cost) for cost in rule.costs.tolist()]
        return np.stack([d.time for d in chosen]), np.stack([d.label != labels for d in chosen])

    def _labels(self, y: ArrayLike, shape: tuple[int, ...]) -> Ints:
        """Labels as indices; one that was not there when fitting is refused."""
        self._fitted()
        given = np.asarray(y)
        if given.shape != shape:
            raise InvalidInput("y", f"have shape {shape}, one label a sequence", f"shape {given.shape}")
        place = np.searchsorted(self.classes_, given)
        known = self.classes_[np.minimum(place, len(self.classes_) - 1)] == given
        if not np.all(known):
            raise InvalidInput("y", f"hold labels of {self.classes_.tolist()}", np.unique(given[~known]).tolist())
        return np.asarray(place, dtype=np.int64)

    def _plain_params(self) -> dict[str, Any]:
        """Constructor arguments as JSON knows them."""
        return {name: _plain(value) for name, value in self.get_params(deep=False).items()}


OPTION_TYPES = {kind.__name__: kind for kind in (NetworkOptions, TrainingOptions, ConvexOptions, ProcessOptions)}


def _plain(value: Any) -> Any:
    if type(value).__name__ in OPTION_TYPES:
        return {"kind": type(value).__name__, **asdict(value)}
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _from_plain(params: dict[str, Any]) -> dict[str, Any]:
    return {name: _option(value) if isinstance(value, dict) else value for name, value in params.items()}


def _option(value: dict[str, Any]) -> Any:
    return OPTION_TYPES[value["kind"]](**{name: part for name, part in value.items() if name != "kind"})


def _encode(y: ArrayLike, count: int) -> tuple[NDArray[Any], Ints]:
    """Distinct labels in order, and each sequence's place among them."""
    given = np.asarray(y)
    if given.shape != (count,):
        raise InvalidInput("y", f"have shape ({count},), one label a sequence", f"shape {given.shape}")
    if given.dtype.kind == "f" and not np.all(np.isfinite(given)):
        raise InvalidInput("y", "be known for every sequence", "NaN or infinite labels")
    try:
        classes, labels = np.unique(given, return_inverse=True)
    except TypeError:
        raise InvalidInput("y", "hold labels that can be compared", f"labels of dtype {given.dtype}") from None
    if len(classes) < 2:
        raise InvalidInput("y", "hold two classes at least", classes.tolist())
    return classes, labels.astype(np.int64)
