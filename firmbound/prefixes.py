"""Evidence from classifiers that people already have: they read prefixes of a series and say how likely each class is.

Two ways: `prefix_posteriors` asks anything that can be called on a prefix (a torch module, a pipeline), and
`PrefixClassifiers` fits a scikit-learn classifier at some numbers of observations. Between two of those nothing new is
believed. A stopping rule must not be fitted on beliefs of classifiers about their own training sequences, which are too
sure: `PrefixClassifiers.fit` hands out those of classifiers that had not seen them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold

from firmbound.arrays import Floats, Ints, class_labels, finite_array
from firmbound.errors import InvalidInput
from firmbound.posterior import check_posteriors, class_prior, evidence_from_posteriors


def prefix_posteriors(
    classify: Callable[[NDArray[Any]], ArrayLike], features: ArrayLike, checkpoints: Sequence[int] | None = None
) -> Floats:
    """(n, T, K) posteriors of a callable that takes prefixes (n, t, d) and gives (n, K) posteriors.

    checkpoints: numbers of observations at which it is asked, by default every one from 1 to T; from one to the next
    its answer stays. They begin with 1. A torch module becomes `lambda x: module(torch.as_tensor(x)).softmax(-1)`.
    """
    values = finite_array("features", features, ndim=3, shape_words="(n, T, d)")
    asked = check_checkpoints(checkpoints, values.shape[1])
    found: list[NDArray[Any]] = []
    for t in asked:
        answer = classify(values[:, :t])
        answer = answer.detach().cpu().numpy() if hasattr(answer, "detach") else np.asarray(answer)
        if answer.ndim != 2 or len(answer) != len(values) or (found and answer.shape != found[0].shape):
            wanted = f"({len(values)}, {found[0].shape[1] if found else 'K'})"
            raise InvalidInput("classify", f"give posteriors of shape {wanted}", f"shape {answer.shape} at t = {t}")
        found.append(answer)
    return check_posteriors(_carried_on(np.stack(found, axis=1), asked, values.shape[1]))


class PrefixClassifiers:
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

    def fit(self, features: ArrayLike, labels: ArrayLike) -> Floats:
        """Fit on all sequences for what is to come; hand back (n, T, K) evidence by classifiers of other folds."""
        values = finite_array("features", features, ndim=3, shape_words="(n, T, d)")
        known = class_labels("labels", labels, count=len(values), classes=self.classes)
        least = int(np.bincount(known, minlength=self.classes).min())
        if least < self.folds:
            rule = f"hold every class {self.folds} times at least, once a fold"
            raise InvalidInput("labels", rule, f"one that occurs {least} times", "Use fewer folds or more sequences.")
        self.shares = np.bincount(known, minlength=self.classes) / len(known)
        self.asked = check_checkpoints(self.checkpoints, values.shape[1])
        self.horizon = values.shape[1]
        parts = list(StratifiedKFold(self.folds, shuffle=True, random_state=self.seed).split(values[:, 0], known))
        out_of_fold = np.empty((len(values), len(self.asked), self.classes))
        self.fitted = []
        for place, t in enumerate(self.asked):
            rows = values[:, :t].reshape(len(values), -1)
            for seen, unseen in parts:
                model = clone(self.estimator).fit(rows[seen], known[seen])
                out_of_fold[unseen, place] = model.predict_proba(rows[unseen])
            self.fitted.append(clone(self.estimator).fit(rows, known))
        return self._evidence(_carried_on(out_of_fold, self.asked, self.horizon))

    def evidence(self, features: ArrayLike) -> Floats:
        """(n, T, d) -> (n, T, K) of new sequences."""
        values = finite_array("features", features, ndim=3, shape_words="(n, T, d)")
        if not hasattr(self, "fitted"):
            raise InvalidInput("classifiers", "be fitted", "none yet", "Call fit(X, y) first.")
        if values.shape[1] != self.horizon:
            raise InvalidInput("features", f"hold {self.horizon} observations", f"shape {values.shape}")
        found = [
            model.predict_proba(values[:, :t].reshape(len(values), -1))
            for t, model in zip(self.asked, self.fitted, strict=True)
        ]
        return self._evidence(_carried_on(np.stack(found, axis=1), self.asked, self.horizon))

    def _evidence(self, posteriors: Floats) -> Floats:
        # Posteriors hold the shares of the sequences they were learned from, not what is believed elsewhere.
        return evidence_from_posteriors(posteriors, self.shares)


def check_checkpoints(checkpoints: Sequence[int] | None, horizon: int) -> Ints:
    if checkpoints is None:
        return np.arange(1, horizon + 1)
    asked = np.asarray(checkpoints)
    whole = asked.ndim == 1 and asked.dtype.kind in "iu" and len(asked) > 0
    if not whole or asked[0] != 1 or asked[-1] > horizon or np.any(np.diff(asked) <= 0):
        raise InvalidInput("checkpoints", f"rise from 1 to at most {horizon}", f"{checkpoints!r:.60}")
    return asked.astype(np.int64)


def _carried_on(posteriors: Floats, asked: Ints, horizon: int) -> Floats:
    """Answers at checkpoints, (n, C, K), as answers at every t, (n, T, K): the last one given stays."""
    latest = np.searchsorted(asked, np.arange(1, horizon + 1), side="right") - 1
    return np.asarray(posteriors[:, latest], dtype=np.float64)
