"""firmbound as an early classifier of aeon: series are (n, channels, time), decisions come with the labels.

Needs aeon: `pip install firmbound[aeon]`.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from aeon.classification.early_classification.base import BaseEarlyClassifier
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from firmbound.early.prefix_decisions import decide_prefixes
from firmbound.early_classifier import EarlyClassifier
from firmbound.tandem.options import NetworkOptions, TrainingOptions

__all__ = ["FirmboundEarlyClassifier"]

# What aeon calls state is the outcome of the last call: here it is no part of the classifier, which predicting leaves
# as it was. Decisions need none of it, because they follow from the observations so far.
_LAST_CALL: WeakKeyDictionary[Any, NDArray[Any]] = WeakKeyDictionary()


class FirmboundEarlyClassifier(BaseEarlyClassifier):  # type: ignore[misc]
    """EarlyClassifier for collections of aeon, with its parameters; random_state is the seed, and gaps are errors.

    Series of equal length that are shorter than those of `fit` are beginnings: where it is too early to decide, the
    label is -1. Series of unequal length are whole, and decided at their end.

    >>> from firmbound.aeon import FirmboundEarlyClassifier
    >>> labels, decided = FirmboundEarlyClassifier(cost=0.2).fit(X, y).predict(X_new[:, :, :10])
    """

    _tags = {  # noqa: RUF012
        "capability:multivariate": True,
        "capability:unequal_length": True,
        "X_inner_type": ["np-list", "numpy3D"],
        "fit_is_empty": False,
    }

    def __init__(
        self,
        cost: float = 0.2,
        penalty: Any = 10.0,
        evidence: Any = "auto",
        costs: Any = None,
        prior: Any = None,
        method: str = "auto",
        options: Any = None,
        network: Any = None,
        training: Any = None,
        checkpoints: Any = None,
        validation: float = 0.15,
        held_out: float = 0.15,
        random_state: Any = None,
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
        self.validation = validation
        self.held_out = held_out
        self.random_state = random_state
        super().__init__()

    @property
    def state_info(self) -> NDArray[Any] | None:
        """(n, 4) of the last call: step asked at, decided, class decided for (-1: none), step of the decision."""
        return _LAST_CALL.get(self)

    @state_info.setter
    def state_info(self, value: NDArray[Any] | None) -> None:
        if value is None:
            _LAST_CALL.pop(self, None)
        else:
            _LAST_CALL[self] = value

    def _fit(self, X: Any, y: NDArray[Any]) -> FirmboundEarlyClassifier:
        wanted = {name: value for name, value in self.get_params(deep=False).items() if name != "random_state"}
        seed = 0 if self.random_state is None else int(check_random_state(self.random_state).randint(2**31 - 1))
        self.classifier_ = EarlyClassifier(**wanted, seed=seed).fit(_time_first(X), y)
        return self

    def _outlook(self, X: Any) -> dict[str, NDArray[Any]]:
        """How things stand for every case; remembered for `get_state_info`."""
        found = decide_prefixes(self.classifier_, _time_first(X), ended=isinstance(X, list))
        place = self.classifier_.encode(found["label"], len(found["label"]))
        asked = np.array([one.shape[1] for one in X])
        decided = found["decided"]
        self.state_info = np.column_stack([asked, decided, np.where(decided, place, -1), found["time"]])
        return found

    def _predict(self, X: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        found = self._outlook(X)
        undecided: Any = {"U": "-1", "i": -1, "f": -1.0}.get(self.classes_.dtype.kind, np.array(-1, dtype=object))
        return np.where(found["decided"], found["label"], undecided), found["decided"]

    def _predict_proba(self, X: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        found = self._outlook(X)
        return np.where(found["decided"][:, None], found["posterior"], -1.0), found["decided"]

    def _update_predict(self, X: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        return self._predict(X)

    def _update_predict_proba(self, X: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        return self._predict_proba(X)

    def _score(self, X: Any, y: NDArray[Any]) -> tuple[float, float, float]:
        """Harmonic mean of accuracy and time saved, accuracy, and earliness (mean share of the series used)."""
        found = self._outlook(X)
        lengths = np.array([one.shape[1] for one in X])
        accuracy = float(np.mean((found["label"] == y) & found["decided"]))
        earliness = float(np.mean(found["time"] / lengths))
        saved = 1 - earliness
        harmonic = 2 * accuracy * saved / (accuracy + saved) if accuracy + saved > 0 else 0.0
        return harmonic, accuracy, earliness

    @classmethod
    def _get_test_params(cls, parameter_set: str = "default") -> dict[str, Any]:
        """Small enough for aeon's checks."""
        return {
            "network": NetworkOptions(projection=4, hidden=4),
            "training": TrainingOptions(epochs=2, batch=4),
            "costs": [0.05, 0.5],
        }


def _time_first(X: Any) -> Any:
    """(n, channels, time) -> (n, time, channels); a list where lengths differ."""
    return [np.asarray(one).T for one in X] if isinstance(X, list) else np.swapaxes(X, 1, 2)
