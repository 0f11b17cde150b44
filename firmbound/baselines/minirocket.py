"""Ridge classifiers on MiniRocket features of prefixes: strong, quick to fit, and without a network.

MiniRocket takes no less than 9 observations. A shorter prefix is continued by its last observation up to 9, and so is a
sequence that ends before a prefix does, up to its length: whatever stands after an end is never seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.preprocessing import StandardScaler

from firmbound.arrays import Floats, Ints, is_count
from firmbound.baselines.ridge import RidgeScores, Singles, blocks, fit_ridge, signs_of
from firmbound.baselines.rival import ends_of, features_of
from firmbound.errors import InvalidInput
from firmbound.trajectories import Batch

# Observations below which MiniRocket's kernels do not fit, and kernels below which it does not go.
SHORTEST, FEWEST = 9, 84


def held_prefix(batch: Batch, t: int, rows: slice = slice(None)) -> Singles:
    """The first t observations of some sequences, the last known one held where they end.  -> (n, d, max(t, 9))."""
    features = features_of(batch)
    ends = np.minimum(ends_of(batch, features.shape[1])[rows], t)
    steps = np.minimum(np.arange(max(t, SHORTEST)), ends[:, None] - 1)
    held = np.take_along_axis(features[rows], steps[:, :, None], axis=1)
    return np.ascontiguousarray(held.transpose(0, 2, 1), dtype=np.float32)


@dataclass(frozen=True)
class PrefixFeatures:
    """MiniRocket features of the first t observations, standardised as those of training sequences."""

    t: int
    transform: Any
    scale: Any

    def of(self, batch: Batch) -> Singles:
        """(n, f)."""
        found = transformed(self.transform, batch, self.t)
        for rows in blocks(len(found)):
            found[rows] = self.scale.transform(found[rows])
        return found


def transformed(transform: Any, batch: Batch, t: int) -> Singles:
    """(n, f), block by block: with many kernels, features are larger than what they are computed from."""
    parts = (np.asarray(transform.transform(held_prefix(batch, t, rows))) for rows in blocks(len(batch.labels)))
    first = next(parts)
    found = np.empty((len(batch.labels), first.shape[1]), dtype=np.float32)
    for rows, part in zip(blocks(len(found)), chain([first], parts), strict=True):
        found[rows] = part
    return found


def fit_prefix_features(
    train: Batch, t: int, *, kernels: int, seed: int, n_jobs: int
) -> tuple[PrefixFeatures, Singles]:
    """Features of prefixes of t observations, and those (n, f) of the training sequences."""
    random_state = int(np.random.default_rng((seed, t)).integers(2**31))
    transform = _minirocket()(n_kernels=kernels, random_state=random_state, n_jobs=n_jobs)
    with _global_generator_kept():
        transform.fit(held_prefix(train, t))
    seen, scale = transformed(transform, train, t), StandardScaler()
    for rows in blocks(len(seen)):
        scale.partial_fit(seen[rows])
    for rows in blocks(len(seen)):
        seen[rows] = scale.transform(seen[rows])
    return PrefixFeatures(t, transform, scale), seen


def _minirocket() -> Any:
    """Loaded where it is needed: aeon is an extra, and slow to import."""
    try:
        from aeon.transformations.collection.convolution_based import MiniRocket
    except ImportError:
        raise InvalidInput(
            "aeon", "be installed: MiniRocket comes from it", "no such package", "pip install 'firmbound[aeon]'."
        ) from None
    return MiniRocket


@contextmanager
def _global_generator_kept() -> Iterator[None]:
    """MiniRocket seeds NumPy's global generator; whoever else draws from it shall not notice."""
    state = np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(state)  # noqa: NPY002


def check_training(train: Batch) -> tuple[int, int]:
    """T and d of training sequences; every class must be among them, since a ridge classifier knows no other."""
    features = features_of(train)
    missing = np.setdiff1d(np.arange(train.classes), train.labels)
    if len(missing):
        raise InvalidInput("labels", "hold every class", f"no training sequence of {missing.tolist()[:20]}")
    return features.shape[1], features.shape[2]


def check_fitted_shape(batch: Batch, horizon: int, dimension: int) -> None:
    shape = features_of(batch).shape
    if shape[1:] != (horizon, dimension):
        raise InvalidInput("features", f"have shape (n, {horizon}, {dimension}), as in fitting", f"shape {shape}")


def check_ridge_options(kernels: int, alphas: tuple[float, ...], n_jobs: int) -> None:
    for name, value, holds, rule in (
        ("kernels", kernels, is_count(kernels, FEWEST), f"be a whole number from {FEWEST}"),
        ("alphas", alphas, len(alphas) > 0 and all(0 < a < math.inf for a in alphas), "be positive and finite numbers"),
        ("n_jobs", n_jobs, is_count(n_jobs, 1), "be a whole number from 1"),
    ):
        if not holds:
            raise InvalidInput(name, rule, repr(value))


def spread_timestamps(horizon: int, first: int, count: int) -> Ints:
    """At most `count` prefix lengths, evenly from `first` to T, with T; a T below `first` starts at 1."""
    start = first if first <= horizon else 1
    # From the back, so that a single one is T.
    spread = np.linspace(horizon, start, min(count, horizon - start + 1))
    return np.unique(np.round(spread).astype(np.int64))


def class_scores(ridge: RidgeScores, features: Singles) -> Floats:
    """(n, f) -> (n, K): how far a ridge classifier leans to each class; of two, it scores the second alone."""
    scores = ridge.of(features)
    return np.column_stack([-scores, scores]) if scores.shape[1] == 1 else scores


def fit_sharpness(scores: Floats, labels: Ints) -> float:
    """What scores (n, K) are multiplied by so that their softmax makes labels (n,) likeliest.

    One more sequence is thought of that is of any class. Labels that are all guessed right would otherwise be likelier
    still the surer they are called, without end.
    """

    def loss(log_sharpness: float) -> float:
        logs = log_softmax(math.exp(log_sharpness) * scores, axis=1)
        return float(-logs[np.arange(len(labels)), labels].sum() - logs.mean())

    return math.exp(minimize_scalar(loss, bounds=(-3.0, 6.0), method="bounded").x)


@dataclass(frozen=True)
class RidgeStep:
    """The classifier of one prefix length."""

    features: PrefixFeatures
    ridge: RidgeScores
    sharpness: float

    def posteriors(self, batch: Batch) -> Singles:
        """(n, K)."""
        scores = class_scores(self.ridge, self.features.of(batch))
        return np.exp(log_softmax(self.sharpness * scores, axis=1)).astype(np.float32)


@dataclass(frozen=True)
class RidgeBeliefs:
    """Classifiers of growing prefixes. shares (K,): of classes among training sequences, believed before the first."""

    steps: list[RidgeStep]
    shares: Singles
    horizon: int
    dimension: int

    def posteriors(self, batch: Batch) -> Singles:
        """(n, T, K); between two of the prefix lengths, beliefs stay as they were."""
        check_fitted_shape(batch, self.horizon, self.dimension)
        believed = np.empty((len(batch.labels), self.horizon, len(self.shares)), dtype=np.float32)
        starts = [step.features.t - 1 for step in self.steps]
        believed[:, : starts[0]] = self.shares
        for step, start, end in zip(self.steps, starts, [*starts[1:], self.horizon], strict=True):
            believed[:, start:end] = step.posteriors(batch)[:, None]
        return believed


@dataclass(frozen=True)
class MiniRocketRidge:
    """A ridge classifier at each of at most `timestamps` prefix lengths, evenly spread from `first` to T.

    kernels: MiniRocket features of a prefix, about. alphas: ridge penalties, of which the one of the least
    leave-one-out error is kept. n_jobs: threads that compute features. Scores become posteriors by a softmax, whose
    sharpness is fitted on validation sequences. first: 9 is the shortest prefix that needs no continuation; where T is
    not much longer, give a smaller one. A T below it starts at 1.
    """

    kernels: int = 2_500
    first: int = SHORTEST
    timestamps: int = 20
    alphas: tuple[float, ...] = (1.0, 1e1, 1e2, 1e3, 1e4, 1e5)
    n_jobs: int = 1

    def __post_init__(self) -> None:
        check_ridge_options(self.kernels, self.alphas, self.n_jobs)
        for name in ("first", "timestamps"):
            if not is_count(getattr(self, name), 1):
                raise InvalidInput(name, "be a whole number from 1", repr(getattr(self, name)))

    def fit(self, train: Batch, validation: Batch, *, seed: int) -> RidgeBeliefs:
        horizon, dimension = check_training(train)
        check_fitted_shape(validation, horizon, dimension)
        times = spread_timestamps(horizon, self.first, self.timestamps)
        steps = [self._fit_step(train, validation, int(t), seed) for t in times]
        shares = np.bincount(train.labels, minlength=train.classes) / len(train.labels)
        return RidgeBeliefs(steps, shares.astype(np.float32), horizon, dimension)

    def _fit_step(self, train: Batch, validation: Batch, t: int, seed: int) -> RidgeStep:
        features, seen = fit_prefix_features(train, t, kernels=self.kernels, seed=seed, n_jobs=self.n_jobs)
        ridge = fit_ridge(seen, signs_of(train.labels, train.classes), self.alphas)
        scores = class_scores(ridge, features.of(validation))
        return RidgeStep(features, ridge, fit_sharpness(scores, validation.labels))
