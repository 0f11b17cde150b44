"""EarlyClassifier: reader of evidence, prior and the rules of a whole front in one object; early decisions come out."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

from firmbound.arrays import Floats, Ints, any_array, finite_array, is_real
from firmbound.costs import DecisionProblem
from firmbound.early import saving
from firmbound.early.drift import Drift, compare
from firmbound.early.front import FrontPoint, Record
from firmbound.early.guarantees import fastest_safe, sequences_needed
from firmbound.early.learning import (
    Lesson,
    check_settings,
    encode,
    learn_evidence,
    learn_refinement,
    split,
    usual_method,
)
from firmbound.early.live import EarlyStream, StreamParts, StreamPool
from firmbound.early.remaining_time import RemainingTime
from firmbound.errors import FirmboundError, InvalidInput
from firmbound.evaluation.risk import realised_risk
from firmbound.fitting import Method, Options, fit_stopping_rule, make_fitter
from firmbound.posterior import class_prior
from firmbound.readers.prefixes import Classify
from firmbound.readers.protocol import EvidenceReader
from firmbound.readers.refined import RefinedReader
from firmbound.refinement.options import Refine, RefinementOptions
from firmbound.series import Missing, Series, is_list_of_series, usual_horizon
from firmbound.stopping_rule import StoppingRule
from firmbound.tandem.options import NetworkOptions, TrainingOptions
from firmbound.trajectories import Decisions

if TYPE_CHECKING:
    from firmbound.tandem.training import Progress

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


class EarlyClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifies series (n, T, d) as early as cost and penalty allow.

    cost: of one observation. penalty: of a wrong decision; a number, one a class, or a matrix. evidence: where it comes
    from: "network", a SPRT-TANDEM network that is trained here (`network`, `training`); a scikit-learn classifier with
    predict_proba, fitted at `checkpoints` (by default every t); "auto", that network or, for small data, logistic
    regressions of prefixes, whichever validation sequences speak for; a callable that gives posteriors (n, K) of
    prefixes (n, t, d); or "posteriors" or "given" if X holds posteriors or evidence (n, T, K) already. costs: the front
    that is fitted beside `cost`, by default nine shares of penalty / T. prior: class probabilities, by default the
    shares of the labels. method: "cfl" or "gp", by default the former for two classes. missing: "skip" leaves out
    observations with a NaN; time goes on, nothing is learned. refine: whether evidence learns to remember its past and
    to mean what it says, as `refinement` has it: "always", "never", or "auto", where decisions on validation sequences
    get cheaper by it. validation: share of the sequences that training stops by. held_out: share that is kept away from
    all fitting, for promises.

    Series may end at different times: give `lengths` (n,), or a list of arrays (T_i, d). What ends is decided there.

    >>> classifier = firmbound.EarlyClassifier(cost=0.2).fit(X, y)
    >>> classifier.decide(X_new).time.mean()
    >>> classifier.at_error(0.05).predict(X_new)
    """

    def __init__(
        self,
        cost: float = 0.2,
        penalty: Any = 10.0,
        *,
        evidence: Any = "auto",
        costs: Any = None,
        prior: Any = None,
        method: Method | Literal["auto"] = "auto",
        options: Options | None = None,
        network: NetworkOptions | None = None,
        training: TrainingOptions | None = None,
        checkpoints: Any = None,
        missing: Missing = "refuse",
        refine: Refine = "auto",
        refinement: RefinementOptions | None = None,
        validation: float = 0.15,
        held_out: float = 0.15,
        seed: int = 0,
    ) -> None:
        self.cost = cost
        self.penalty = penalty
        self.evidence = evidence
        self.costs = costs
        self.prior = prior
        self.method = method
        self.options = options
        self.network = network
        self.training = training
        self.checkpoints = checkpoints
        self.missing = missing
        self.refine = refine
        self.refinement = refinement
        self.validation = validation
        self.held_out = held_out
        self.seed = seed

    def fit(self, X: Any, y: ArrayLike, *, lengths: ArrayLike | None = None, progress: Progress | None = None) -> Self:
        """Learn evidence from features X (n, T, d) with labels y (n,) of any kind, then the rules of all costs."""
        check_settings(self)
        series = Series.of(X, lengths, missing=self.missing)
        classes, labels = encode(y, len(series))
        train, valid, kept = split(labels, self.validation, self.held_out, self.seed)
        seen = np.concatenate([train, valid])
        series = series.until(usual_horizon(series.lengths[seen]))
        shares = np.bincount(labels[seen]) / len(seen)
        prior = class_prior(shares if self.prior is None else self.prior, len(classes))
        # What makes no sense is found before the training, not after it.
        costs = self._front_costs(len(classes), series.horizon)
        problem = DecisionProblem.create(
            classes=len(classes), horizon=series.horizon, penalty=self.penalty, costs=costs
        )
        method = usual_method(len(classes), self.options) if self.method == "auto" else self.method
        make_fitter(method, problem, prior, self.options, seed=self.seed)

        def fit_rule(evidence: NDArray[Any]) -> StoppingRule:
            return fit_stopping_rule(
                evidence,
                lengths=series.lengths[seen],
                costs=costs,
                penalty=self.penalty,
                prior=prior,
                method=method,
                options=self.options,
                seed=self.seed,
            )

        lesson = Lesson(series, labels, train, valid, prior)
        reader, evidence, why = learn_evidence(self, lesson, progress)
        reader, evidence, rule, refined = learn_refinement(self, lesson, reader, evidence, fit_rule)
        self.classes_, self.reader_, self.rule_ = classes, reader, rule
        self.remaining_ = RemainingTime.of(rule, evidence, series.lengths[seen])
        self.record_ = self._judge(series.take(kept), labels[kept]) if len(kept) else None
        about = {"sequences": len(labels), "held_out": len(kept), "evidence": why}
        self.about_: Mapping[str, Any] = about | {
            "refined": isinstance(reader, RefinedReader),
            "refinement": refined,
        }
        return self

    @classmethod
    def of_parts(
        cls,
        reader: EvidenceReader,
        rule: StoppingRule,
        *,
        classes: NDArray[Any],
        remaining: RemainingTime,
        record: Record | None,
        about: Mapping[str, Any],
        **params: Any,
    ) -> EarlyClassifier:
        """From what was fitted elsewhere, by stages of the pipeline or in a bundle. params: the constructor's."""
        made = cls(**params)
        made.classes_, made.reader_, made.rule_ = classes, reader, rule
        made.remaining_, made.record_, made.about_ = remaining, record, about
        if len(classes) != rule.problem.classes or not remaining.fits(rule):
            raise InvalidInput("parts", "belong together", "a rule of other classes, costs or steps")
        if record is not None and not record.fits(rule):
            raise InvalidInput("record", "be of this rule", "one of other costs, classes or steps")
        rule.problem.cost_index(made.cost)
        return made

    def decide(self, X: Any, lengths: ArrayLike | None = None) -> EarlyDecisions:
        """When and what is decided on whole sequences."""
        chosen = self._decisions(X, lengths)
        return EarlyDecisions(chosen.time, self.classes_[chosen.label])

    def predict(self, X: Any, lengths: ArrayLike | None = None) -> NDArray[Any]:
        """The labels alone."""
        return self.decide(X, lengths).label

    def score(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, lengths: ArrayLike | None = None
    ) -> float:
        """Negative average of penalties and costs of observations: higher is better."""
        chosen = self._decisions(X, lengths)
        paid = realised_risk(chosen, self.encode(y, len(chosen)), self._fitted().problem, self.cost)
        if sample_weight is None:
            return -float(paid.mean())
        weights = finite_array("sample_weight", sample_weight, ndim=1, shape_words=f"({len(paid)},)")
        if weights.shape != paid.shape or weights.min() < 0 or weights.sum() <= 0:
            raise InvalidInput("sample_weight", f"be {len(paid)} weights, not all zero", f"shape {weights.shape}")
        return -float(np.average(paid, weights=weights))

    def front(self, X: Any, y: ArrayLike, lengths: ArrayLike | None = None) -> list[FrontPoint]:
        """Error, time and risk at every cost that was fitted, the slowest rule first."""
        series = self.series(X, lengths)
        return self._judge(series, self.encode(y, len(series))).points(self.rule_)

    def record(self, X: Any, y: ArrayLike | None = None, lengths: ArrayLike | None = None) -> Record:
        """What the rule of this cost decides, how sure it is, and, with labels, what was true."""
        series, rule = self.series(X, lengths), self._fitted()
        truth = None if y is None else self.encode(y, len(series))
        return Record.of(rule, self.read(series), lengths=series.lengths, truth=truth, cost=self.cost)

    def drift(self, X: Any, y: ArrayLike | None = None, lengths: ArrayLike | None = None, level: float = 0.05) -> Drift:
        """Whether times, confidence, decisions or, with labels, errors changed since the fit, and how surely."""
        now = self.record(X, y, lengths)
        before = self._held_out_record().row(self.rule_.problem.cost_index(self.cost))
        return compare(before, now, self.classes_.tolist(), level)

    def at_cost(self, cost: float) -> EarlyClassifier:
        """The same classifier at another cost of its front; nothing is fitted again."""
        index = self._fitted().problem.cost_index(cost)
        other = copy.copy(self)
        other.cost = float(self.rule_.costs[index])
        return other

    def at_time(self, mean_time: float) -> EarlyClassifier:
        """The rule whose mean number of observations on held-out sequences comes nearest."""
        horizon = self._fitted().problem.horizon
        if not is_real(mean_time) or not 1 <= mean_time <= horizon:
            raise InvalidInput("mean_time", f"lie in 1..{horizon}", mean_time)
        times = self._held_out_record().time.mean(axis=1)
        return self.at_cost(self.rule_.costs[int(np.abs(times - mean_time).argmin())])

    def at_error(self, alpha: float, confidence: float = 0.95) -> EarlyClassifier:
        """The fastest rule that errs with a probability of at most alpha, with this confidence.

        Judged on the sequences that were held out of all fitting. Raises NoRuleQualifies if none can be promised.
        """
        self._fitted()
        wrong = self._held_out_record().wrong
        best = fastest_safe(wrong.sum(axis=1).tolist(), wrong.shape[1], alpha, confidence)
        if best is not None:
            return self.at_cost(self.rule_.costs[best])
        needed = sequences_needed(alpha, confidence)
        few = wrong.shape[1] < needed
        advice = f"Hold out {needed} at least." if few else "Allow more errors, or add lower costs."
        raise NoRuleQualifies(
            f"No rule errs in at most {alpha:g} of all cases with a confidence of {confidence:g}: "
            f"on {wrong.shape[1]} held-out sequences the slowest erred {int(wrong[0].sum())} times. {advice}"
        )

    def stream(self, state: bytes | None = None) -> EarlyStream:
        """One series, an observation at a time; `state` of an earlier stream goes on with it."""
        return EarlyStream(self._parts(), state)

    def pool(self, streams: int) -> StreamPool:
        """Many series advanced together."""
        return StreamPool(self._parts(), streams)

    def save(self, path: str | Path) -> None:
        """Write one folder: this classifier's bundle with the reader's and the rules' inside; no pickle."""
        self._fitted()
        saving.write(self, path)

    @classmethod
    def load(cls, path: str | Path, classify: Classify | None = None, trusted: Sequence[str] = ()) -> EarlyClassifier:
        """Read a folder. classify: the callable of a classifier whose evidence comes from one.

        trusted: names of types that may be made from the file though skops does not call them harmless, such as
        "sklearn.tree._tree.Tree"; only for files whose origin you know.
        """
        return saving.read(cls, path, classify, trusted)

    def series(self, X: Any, lengths: ArrayLike | None = None) -> Series:
        """Series as they were fitted: none shorter than the horizon unless lengths say so. What comes later is cut."""
        problem, series = self._fitted().problem, self.prefixes(X, lengths)
        if series.horizon < problem.horizon and lengths is None and not is_list_of_series(X):
            rule = f"span the {problem.horizon} observations of the fit"
            raise InvalidInput("X", rule, f"{series.horizon}", "Give lengths if the series end there.")
        return series.reaching(problem.horizon)

    def prefixes(self, X: Any, lengths: ArrayLike | None = None) -> Series:
        """Series that may go on: as long as they are, up to the horizon."""
        horizon = self._fitted().problem.horizon
        series = Series.of(X, lengths, missing=self.missing)
        if series.dimension != self.reader_.dimension:
            rule = f"hold {self.reader_.dimension} numbers an observation"
            raise InvalidInput("X", rule, f"shape {series.values.shape}")
        return series.until(horizon)

    def read(self, series: Series) -> NDArray[Any]:
        """Evidence (n, T, K) after each step."""
        self._fitted()
        return series.spread(self.reader_.evidence(series.values))

    def encode(self, y: ArrayLike, count: int) -> Ints:
        """Labels as indices; one that was not there when fitting is refused."""
        self._fitted()
        given = any_array("y", y, "one label a sequence")
        if given.shape != (count,):
            raise InvalidInput("y", f"have shape ({count},), one label a sequence", f"shape {given.shape}")
        places = {label: index for index, label in enumerate(self.classes_.tolist())}
        try:
            found = [places.get(label, -1) for label in given.tolist()]
        except TypeError:
            raise InvalidInput("y", f"hold labels of {self.classes_.tolist()}", f"{y!r:.60}") from None
        unknown = [label for label, place in zip(given.tolist(), found, strict=True) if place < 0]
        if unknown:
            raise InvalidInput("y", f"hold labels of {self.classes_.tolist()}", f"{unknown[:5]}")
        return np.array(found, dtype=np.int64)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "rule_")

    def _fitted(self) -> StoppingRule:
        if not hasattr(self, "rule_"):
            raise NotFitted("This EarlyClassifier is not fitted yet. Call fit(X, y), or load a saved one.")
        rule: StoppingRule = self.rule_
        return rule

    def _held_out_record(self) -> Record:
        if self.record_ is None or self.record_.truth is None:
            raise NoRuleQualifies("Nothing was held out when this classifier was fitted. Fit with held_out above 0.")
        return self.record_

    def _decisions(self, X: Any, lengths: ArrayLike | None) -> Decisions:
        series = self.series(X, lengths)
        return self.rule_.decide(self.read(series), cost=self.cost, lengths=series.lengths)

    def _judge(self, series: Series, truth: Ints) -> Record:
        """Every rule on every sequence."""
        return Record.of(self.rule_, self.read(series), lengths=series.lengths, truth=truth)

    def _parts(self) -> StreamParts:
        rule = self._fitted()
        rule.problem.cost_index(self.cost)
        return StreamParts(self.reader_, rule, self.remaining_, self.classes_, self.cost, self.missing)

    def _front_costs(self, classes: int, horizon: int) -> Floats:
        """All costs, rising: the slowest rule first. Of those that nobody chose, none at which nobody would look on."""
        alone = DecisionProblem.create(classes=classes, horizon=horizon, penalty=self.penalty, costs=[self.cost])
        if self.costs is None:
            shares = [float(f"{share * alone.penalty.max() / horizon:.6g}") for share in FRONT]
            return np.unique([cost for cost in shares if cost < 0.9 * alone.dearest] + [float(self.cost)])
        try:
            return np.unique(np.append(np.asarray(self.costs, dtype=float), float(self.cost)))
        except (TypeError, ValueError):
            raise InvalidInput("costs", "be numbers", f"{self.costs!r:.60}") from None
