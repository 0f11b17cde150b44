"""CALIMERA (Bilski and Jastrzebska, 2023): calibrated classifiers of prefixes, and a rule that learns backwards.

    cost of stopping at t:  1 - max_k p_k(t) + delay penalty * t / T

From the last timestamp to the first, kernel ridge regression learns from the probabilities at t how much more than now
will be paid by waiting, when later regressions say where to stop. A sequence is decided at the first timestamp where
that is not negative.

What the regressions learn from must be as sure as new sequences will be, not as sure as those that classifiers were
fitted on. So training sequences are scored by classifiers of other folds, sigmoids are fitted to these scores, and the
probabilities that come out are what the backward pass sees; new sequences are scored by classifiers of all training
sequences. Features and ridge penalties alone come from all of them. Validation sequences are not needed.

Where it differs from the authors' program. That scores leave-one-out: the mean of the others leans to the class that
the left-out sequence is not of, and where a prefix says little, sigmoids learn this and are sure without a reason. It
chooses ridge penalties by accuracy, for which scikit-learn takes the first where there are two classes (issue 34942).
It gives regressions scores instead of probabilities, takes prefixes below 9 observations for their own features instead
of continuing them, has 10,000 kernels, and starts at 2 observations or later. Figures: benchmarks/calimera_reading.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import StratifiedKFold

from firmbound.arrays import Floats, Ints, is_count
from firmbound.baselines.minirocket import (
    PrefixFeatures,
    check_fitted_shape,
    check_ridge_options,
    check_training,
    fit_prefix_features,
)
from firmbound.baselines.ridge import RidgeScores, Singles, fit_ridge, scores_of_other_folds, signs_of
from firmbound.baselines.rival import OperatingPoint, ends_of, picked
from firmbound.errors import InvalidInput
from firmbound.trajectories import Batch, Decisions

# New sequences whose waiting is predicted at a time: their kernel matrix has a column for each that was learned from.
TOGETHER = 5_000
FOLDS = 5


def even_timestamps(horizon: int, count: int) -> Ints:
    """Every T // (count - 1) steps, but no less than one, and T."""
    step = horizon // min(count - 1, horizon)
    return np.append(np.arange(step, horizon, step), horizon)


def time_left(timestamps: Ints, ends: Ints) -> tuple[Floats, Ints]:
    """Of sequences that end at `ends` (n,): share of the horizon that has passed at each of S timestamps, no longer
    growing once they ended, (n, S); and place of the timestamp at which they must be decided, the first that is not
    before the end, (n,)."""
    return np.minimum(timestamps, ends[:, None]) / timestamps[-1], np.searchsorted(timestamps, ends)


class GivenScores(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier whose input is its output: sklearn's calibration of scores that are there already."""

    def __init__(self, classes: int) -> None:
        self.classes = classes

    def fit(self, scores: Floats, labels: Ints) -> GivenScores:
        self.classes_ = np.arange(self.classes)
        return self

    def decision_function(self, scores: Floats) -> Floats:
        return scores[:, 0] if self.classes == 2 else scores

    def predict(self, scores: Floats) -> Ints:
        """sklearn asks for it."""
        return (scores[:, 0] > 0).astype(np.int64) if self.classes == 2 else scores.argmax(axis=1)


def fit_calibrator(scores: Floats, labels: Ints, classes: int) -> Any:
    """Sigmoids from scores (n, K), or (n, 1) for two classes, to probabilities; scores must be out of sample."""
    everyone = np.arange(len(labels))
    # Nothing is learned before the sigmoids, so nobody needs to be left out.
    splits = [(everyone, everyone)]
    return CalibratedClassifierCV(GivenScores(classes), method="sigmoid", ensemble=False, cv=splits).fit(scores, labels)


def fit_classifier(
    features: Singles, labels: Ints, classes: int, alphas: tuple[float, ...], seed: int
) -> tuple[RidgeScores, Floats]:
    """A ridge classifier, and scores (n, K) by classifiers that were fitted on other folds; for two classes (n, 1)."""
    targets = signs_of(labels, classes)
    ridge = fit_ridge(features, targets, alphas)
    smallest = int(np.bincount(labels).min())
    if smallest < 2:
        raise InvalidInput("labels", "hold every class twice at least", f"{smallest} training sequence of a class")
    folds = StratifiedKFold(min(FOLDS, smallest), shuffle=True, random_state=seed).split(labels, labels)
    return ridge, scores_of_other_folds(features, targets, ridge.alpha, folds)


@dataclass(frozen=True)
class CalibratedStep:
    """The classifier of one prefix length."""

    features: PrefixFeatures
    ridge: RidgeScores
    calibrator: Any

    def probabilities(self, batch: Batch) -> Floats:
        """(n, K)."""
        return np.asarray(self.calibrator.predict_proba(self.ridge.of(self.features.of(batch))))


def predictors(probabilities: NDArray[Any]) -> Floats:
    """What regressions see: probabilities, the largest, and its lead over the second.  (n, K) -> (n, K + 2)."""
    second, largest = np.partition(probabilities, -2, axis=1)[:, -2:].T
    return np.column_stack([probabilities, largest, largest - second])


def fit_waiting(probabilities: Floats, spent: Floats, last: Ints, penalties: Sequence[float]) -> list[Any]:
    """The backward pass: a regression for each timestamp but the last; None where no sequence could wait.

    probabilities (n, S, K) at S timestamps; spent (n, S): share of the horizon that has passed; last (n,): place of the
    timestamp at which a sequence must be decided. Each regression has an output for every delay penalty.
    """
    costs = 1.0 - probabilities.max(axis=2)[:, :, None] + spent[:, :, None] * np.asarray(penalties)
    later = costs[np.arange(len(costs)), last]
    found: list[Any] = []
    for place in reversed(range(probabilities.shape[1] - 1)):
        running = np.flatnonzero(last > place)
        if not len(running):
            found.append(None)
            continue
        now, seen = costs[running, place], predictors(probabilities[running, place])
        regression = KernelRidge(kernel="rbf").fit(seen, later[running] - now)
        later[running] = np.where(regression.predict(seen) < 0, later[running], now)
        found.append(regression)
    return found[::-1]


def stopping_places(regressions: list[Any], probabilities: Floats, last: Ints, penalties: int) -> Ints:
    """Place of the first timestamp at which waiting does not promise to help, for each delay penalty.  -> (n, P)."""
    places = np.repeat(last[:, None], penalties, axis=1)
    # Backwards, so that the first is what remains.
    for place in reversed(range(len(regressions))):
        running = np.flatnonzero(last > place)
        for some in np.split(running, range(TOGETHER, len(running), TOGETHER)):
            stops = np.ones((len(some), penalties), dtype=bool)
            if regressions[place] is not None and len(some):
                stops = regressions[place].predict(predictors(probabilities[some, place])) >= 0
            places[some] = np.where(stops, place, places[some])
    return places


@dataclass(frozen=True)
class FittedCalimera:
    """Classifiers at timestamps (S,), and for each but the last the regressions that say whether to wait."""

    timestamps: Ints
    steps: list[CalibratedStep]
    regressions: list[Any]
    penalties: tuple[float, ...]
    dimension: int

    def points(self, test: Batch, only: int | None = None) -> list[OperatingPoint]:
        """One for each delay penalty, which is its setting.

        A sequence that ends between two timestamps is decided at its end, by the classifier of the second.
        """
        horizon = int(self.timestamps[-1])
        check_fitted_shape(test, horizon, self.dimension)
        ends, rows = ends_of(test, horizon), np.arange(len(test.labels))
        probabilities = np.stack([step.probabilities(test) for step in self.steps], axis=1)
        _, last = time_left(self.timestamps, ends)
        places = stopping_places(self.regressions, probabilities, last, len(self.penalties))
        found = []
        for penalty, chosen in picked(list(zip(self.penalties, places.T, strict=True)), only):
            belief = probabilities[rows, chosen]
            time = np.minimum(self.timestamps[chosen], ends)
            found.append(OperatingPoint(penalty, Decisions(time, belief.argmax(axis=1), horizon), belief))
        return found


@dataclass(frozen=True)
class Calimera:
    """delay_penalties: what waiting for the whole horizon costs, where an error costs 1; one operating point for each.

    kernels, alphas, n_jobs: as those of MiniRocketRidge. timestamps: about how many prefix lengths there are. most:
    training sequences, drawn at random, that regressions of waiting learn from: their time grows with the cube.
    """

    delay_penalties: tuple[float, ...] = (0.1, 0.5, 1.0)
    kernels: int = 2_500
    timestamps: int = 20
    alphas: tuple[float, ...] = (1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6)
    most: int = 2_000
    n_jobs: int = 1

    def __post_init__(self) -> None:
        check_ridge_options(self.kernels, self.alphas, self.n_jobs)
        penalties = self.delay_penalties
        for name, holds, rule in (
            ("delay_penalties", penalties and all(0 <= p < math.inf for p in penalties), "be non-negative and finite"),
            ("timestamps", is_count(self.timestamps, 2), "be a whole number from 2"),
            ("most", is_count(self.most, 1), "be a whole number from 1"),
        ):
            if not holds:
                raise InvalidInput(name, rule, repr(getattr(self, name)))

    def fit(self, train: Batch, validation: Batch, *, seed: int) -> FittedCalimera:
        horizon, dimension = check_training(train)
        timestamps, ends = even_timestamps(horizon, self.timestamps), ends_of(train, horizon)
        steps, believed = [], []
        for t in timestamps:
            features, seen = fit_prefix_features(train, int(t), kernels=self.kernels, seed=seed, n_jobs=self.n_jobs)
            ridge, scores = fit_classifier(seen, train.labels, train.classes, self.alphas, seed)
            calibrator = fit_calibrator(scores, train.labels, train.classes)
            steps.append(CalibratedStep(features, ridge, calibrator))
            believed.append(np.asarray(calibrator.predict_proba(scores)))
        some = np.random.default_rng(seed).permutation(len(ends))[: self.most]
        spent, last = time_left(timestamps, ends[some])
        regressions = fit_waiting(np.stack(believed, axis=1)[some], spent, last, self.delay_penalties)
        return FittedCalimera(timestamps, steps, regressions, self.delay_penalties, dimension)
