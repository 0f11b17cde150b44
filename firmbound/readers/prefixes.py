"""Evidence from classifiers that people already have: they read prefixes of a series and say how likely each class is.

Two ways: `PrefixFunction` asks anything that can be called on a prefix (a torch module, a pipeline), and
`PrefixClassifiers` fits a scikit-learn classifier at some numbers of observations. Between two of those nothing new is
believed. A stopping rule must not be fitted on beliefs of classifiers about their own training sequences, which are too
sure: `PrefixClassifiers.fit` hands out those of classifiers that had not seen them, and learns from those how sure each
may be.
"""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from firmbound.arrays import Floats, Ints, any_array, check_lengths, class_labels, finite_array
from firmbound.bundle import read_bundle, write_bundle
from firmbound.errors import BundleError, InvalidInput
from firmbound.posterior import check_posteriors, class_prior, evidence_from_posteriors
from firmbound.readers.prefix_streams import PrefixPool, PrefixStream
from firmbound.temperature import helpful_temperature

KIND = "prefix-classifiers"
# Environment variable with further types to trust, by commas: for servers, whose operator knows where models come from.
TRUST = "FIRMBOUND_TRUSTED_TYPES"
# Types of scikit-learn that skops does not know as harmless, yet hold plain numbers and Python alone. Trees and
# searches for neighbours are not among them: numbers that were tampered with lead them out of their memory.
HARMLESS = (
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.utils._bunch.Bunch",
)
Classify = Callable[[NDArray[Any]], Any]


def prefix_posteriors(classify: Classify, features: ArrayLike, checkpoints: Sequence[int] | None = None) -> Floats:
    """(n, T, K) posteriors of a callable that takes prefixes (n, t, d) and gives (n, K) posteriors.

    checkpoints: numbers of observations at which it is asked, by default every one from 1 to T; from one to the next
    its answer stays. They begin with 1. A torch module that ends in a softmax is called with a
    float32 tensor.
    """
    values = finite_array("features", features, ndim=3, shape_words="(n, T, d)")
    asked = check_checkpoints(checkpoints, values.shape[1])
    found = [_answer(classify, values[:, :t]) for t in asked.tolist()]
    if len({answer.shape for answer in found}) > 1:
        raise InvalidInput("classify", "know the same classes at every t", sorted({a.shape for a in found}))
    return _carried_on(np.stack(found, axis=1), asked, values.shape[1])


class PrefixReader(ABC):
    """What all readers of prefixes share. asked: numbers of observations at which they answer, (C,), from 1."""

    asked: Ints
    shares: Floats
    dimension: int

    def evidence(self, features: ArrayLike) -> Floats:
        """(n, T, d) -> (n, T, K) of new sequences; after the last checkpoint, nothing new is believed."""
        values = finite_array("features", features, ndim=3, shape_words="(n, T, d)")
        if not hasattr(self, "asked"):
            raise InvalidInput("classifiers", "be fitted", "none yet", "Call fit(X, y) first.")
        if values.shape[2] != self.dimension or values.shape[1] < 1:
            rule = f"hold an observation at least, each of {self.dimension} numbers"
            raise InvalidInput("features", rule, f"shape {values.shape}")
        reached = self.asked[self.asked <= values.shape[1]]
        found = [self.evidence_at(place, values[:, :t]) for place, t in enumerate(reached.tolist())]
        return _carried_on(np.stack(found, axis=1), reached, values.shape[1])

    @abstractmethod
    def evidence_at(self, place: int, prefixes: NDArray[Any]) -> Floats:
        """(n, asked[place], d) -> (n, K)."""

    def stream(self) -> PrefixStream:
        return PrefixStream(self)

    def pool(self, streams: int) -> PrefixPool:
        return PrefixPool(self, streams)


class PrefixFunction(PrefixReader):
    """A callable on prefixes, as `prefix_posteriors` asks it. shares: of the classes where it learned.

    What it computes cannot be saved with a classifier; whoever loads one hands the callable over again.
    """

    def __init__(
        self, classify: Classify, *, dimension: int, shares: Floats, horizon: int, checkpoints: Sequence[int] | None
    ) -> None:
        self.classify, self.dimension, self.shares = classify, dimension, shares
        self.asked = check_checkpoints(checkpoints, horizon)

    def evidence_at(self, place: int, prefixes: NDArray[Any]) -> Floats:
        # Posteriors hold the shares of the sequences they were learned from.
        return evidence_from_posteriors(_answer(self.classify, prefixes, len(self.shares))[:, None], self.shares)[:, 0]

    def save(self, path: str | Path) -> None:
        arrays = {"shares": self.shares, "asked": self.asked}
        write_bundle(path, kind="prefix-function", header={"dimension": self.dimension}, arrays=arrays)

    @classmethod
    def load(cls, path: str | Path, classify: Classify | None) -> PrefixFunction:
        header, arrays = read_bundle(path, kind="prefix-function")
        if classify is None:
            raise BundleError(
                f"{path} reads posteriors of a callable, which is not saved with it. Load with `classify`."
            )
        try:
            asked = arrays["asked"].tolist()
            shares = class_prior(arrays["shares"], len(arrays["shares"]))
            dimension = int(header["dimension"])
            return cls(classify, dimension=dimension, shares=shares, horizon=asked[-1], checkpoints=asked)
        except (KeyError, IndexError, TypeError, ValueError, OverflowError) as problem:
            raise BundleError(f"{path} reads no prefixes that this version knows: {problem!r}") from None


class PrefixClassifiers(PrefixReader):
    """A scikit-learn classifier fitted anew at each checkpoint, on prefixes laid out as one long row.

    >>> reader = PrefixClassifiers(LogisticRegression(max_iter=1000), classes=10)
    >>> evidence = reader.fit(X, y)  # (n, T, K), of classifiers that had not seen the sequence
    >>> rule = firmbound.fit_stopping_rule(evidence, costs=[0.2], prior=reader.prior)
    >>> rule.decide(reader.evidence(X_new), cost=0.2)
    """

    def __init__(
        self,
        estimator: Any,
        classes: int,
        *,
        checkpoints: Sequence[int] | None = None,
        prior: ArrayLike | None = None,
        folds: int = 5,
        seed: int = 0,
    ) -> None:
        if not hasattr(estimator, "predict_proba"):
            raise InvalidInput("estimator", "have predict_proba", type(estimator).__name__, "Calibrate it first.")
        if folds < 2:
            raise InvalidInput("folds", "be at least 2", folds)
        self.estimator, self.classes, self.checkpoints = estimator, classes, checkpoints
        self.prior, self.folds, self.seed = class_prior(prior, classes), folds, seed

    def fit(self, features: ArrayLike, labels: ArrayLike, lengths: ArrayLike | None = None) -> Floats:
        """Fit on all sequences for what is to come; hand back (n, T, K) evidence by classifiers of other folds.

        lengths: (n,) observations of each, where they differ. A classifier of t observations learns from the sequences
        that have so many; checkpoints that too few reach are left out.
        """
        values = finite_array("features", features, ndim=3, shape_words="(n, T, d)")
        known = class_labels("labels", labels, count=len(values), classes=self.classes)
        ends = check_lengths(lengths, count=len(values), horizon=values.shape[1])
        asked = check_checkpoints(self.checkpoints, values.shape[1])
        least = [int(np.bincount(known[ends >= t], minlength=self.classes).min()) for t in asked.tolist()]
        if least[0] < self.folds:
            rule = f"hold every class {self.folds} times at least, once a fold"
            got = f"one that occurs {least[0]} times"
            raise InvalidInput("labels", rule, got, "Use fewer folds or more sequences.")
        self.shares = np.bincount(known, minlength=self.classes) / len(known)
        self.sequences, self.dimension = len(known), values.shape[2]
        self.asked = asked[[count >= self.folds for count in least]]
        evidence = np.zeros((len(values), len(self.asked), self.classes))
        self.fitted: list[Any] = []
        self.temperatures = np.ones(len(self.asked))
        for place, t in enumerate(self.asked.tolist()):
            there = ends >= t
            evidence[:, place] = evidence[:, max(place - 1, 0)]
            found = self._fit_at(values[there, :t], known[there])
            self.temperatures[place] = helpful_temperature(found[:, None], known[there], self.shares)
            evidence[there, place] = found / self.temperatures[place]
        return _carried_on(evidence, self.asked, values.shape[1])

    def evidence_at(self, place: int, prefixes: NDArray[Any]) -> Floats:
        return np.asarray(self._evidence(self.fitted[place], _rows(prefixes)) / self.temperatures[place])

    def save(self, path: str | Path) -> None:
        """The fitted classifiers as skops writes them: arrays and names of scikit-learn's classes; no pickle."""
        from skops.io import dumps

        arrays: dict[str, NDArray[Any]] = {"shares": self.shares, "asked": self.asked, "prior": self.prior}
        arrays["temperatures"] = self.temperatures
        for t, model in zip(self.asked.tolist(), self.fitted, strict=True):
            arrays[f"classifier/{t}"] = np.frombuffer(dumps(model), np.uint8)
        header = {"dimension": self.dimension, "sequences": self.sequences}
        write_bundle(path, kind=KIND, header=header, arrays=arrays)

    @classmethod
    def load(cls, path: str | Path, trusted: Sequence[str] = ()) -> PrefixClassifiers:
        """trusted: names of types, beside scikit-learn's harmless ones, that may be made from the file."""
        from skops.io import loads
        from skops.io.exceptions import UntrustedTypesFoundException

        header, arrays = read_bundle(path, kind=KIND)
        trust = [*HARMLESS, *trusted, *filter(None, os.environ.get(TRUST, "").split(","))]
        try:
            asked = arrays["asked"]
            fitted = [loads(arrays[f"classifier/{t}"].tobytes(), trusted=trust) for t in asked.tolist()]
            loaded = cls(fitted[0], len(arrays["shares"]), checkpoints=asked.tolist(), prior=arrays["prior"])
            loaded.asked, loaded.fitted, loaded.shares = asked, fitted, arrays["shares"]
            loaded.temperatures = arrays["temperatures"]
            loaded.dimension, loaded.sequences = int(header["dimension"]), int(header["sequences"])
            loaded.evidence(np.zeros((1, int(asked[-1]), loaded.dimension)))  # parts that do not fit fail here
        except UntrustedTypesFoundException as problem:
            reason = str(problem).splitlines()[0]
            advice = f"If you know where it comes from, load it with `trusted`, or set {TRUST}."
            raise BundleError(f"{path} holds types that are not loaded unseen. {reason} {advice}") from None
        except Exception as problem:
            raise BundleError(f"{path} holds no classifiers that this version can read: {problem!r}") from None
        return loaded

    def _fit_at(self, prefixes: NDArray[Any], labels: Ints) -> Floats:
        """Keep the classifier of one checkpoint; hand back (n, K) evidence by classifiers of other folds."""
        from sklearn.model_selection import StratifiedKFold  # takes long to import; reading does not wait for it

        rows = _rows(prefixes)
        found = np.empty((len(rows), self.classes))
        for seen, unseen in StratifiedKFold(self.folds, shuffle=True, random_state=self.seed).split(rows, labels):
            found[unseen] = self._evidence(clone(self.estimator).fit(rows[seen], labels[seen]), rows[unseen])
        self.fitted.append(clone(self.estimator).fit(rows, labels))
        return found

    def _evidence(self, model: Any, rows: Floats) -> Floats:
        """As though one more sequence had been seen, of which nobody knows the class: nothing is impossible."""
        count = self.sequences
        posteriors = (count * model.predict_proba(rows) + 1.0 / self.classes) / (count + 1)
        return evidence_from_posteriors(posteriors[:, None], self.shares)[:, 0]


def check_checkpoints(checkpoints: Sequence[int] | None, horizon: int) -> Ints:
    if checkpoints is None:
        return np.arange(1, horizon + 1)
    asked = any_array("checkpoints", checkpoints, f"whole numbers that rise from 1 to at most {horizon}")
    whole = asked.ndim == 1 and asked.dtype.kind in "iu" and len(asked) > 0
    if not whole or asked[0] != 1 or asked[-1] > horizon or np.any(np.diff(asked) <= 0):
        raise InvalidInput("checkpoints", f"rise from 1 to at most {horizon}", f"{checkpoints!r:.60}")
    return asked.astype(np.int64)


def _rows(prefixes: NDArray[Any]) -> Floats:
    return np.asarray(prefixes.reshape(len(prefixes), -1), dtype=np.float64)


def _answer(classify: Classify, prefixes: NDArray[Any], classes: int | None = None) -> Floats:
    found = _array_of(_ask_module(classify, prefixes) if _is_module(classify) else classify(prefixes))
    if found.ndim != 2 or len(found) != len(prefixes) or classes not in (None, found.shape[1]):
        wanted = f"({len(prefixes)}, {classes or 'K'})"
        at = prefixes.shape[1]
        raise InvalidInput("classify", f"give posteriors of shape {wanted}", f"shape {found.shape} at t = {at}")
    return check_posteriors(found[:, None])[:, 0]


def _is_module(classify: Any) -> bool:
    """A torch module; whoever has one has imported torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(classify, torch.nn.Module)


def _ask_module(module: Any, prefixes: NDArray[Any]) -> Any:
    import torch

    module.eval()
    with torch.inference_mode():
        return module(torch.as_tensor(np.ascontiguousarray(prefixes), dtype=torch.float32))


def _array_of(answer: Any) -> NDArray[Any]:
    if hasattr(answer, "detach"):
        answer = answer.detach().cpu().numpy()
    return any_array("classify", answer, "answered by an array of posteriors (n, K)")


def _carried_on(answers: Floats, asked: Ints, horizon: int) -> Floats:
    """Answers at checkpoints, (n, C, K), as answers at every t, (n, T, K): the last one given stays."""
    latest = np.searchsorted(asked, np.arange(1, horizon + 1), side="right") - 1
    return np.asarray(answers[:, latest], dtype=np.float64)
