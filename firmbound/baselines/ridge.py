"""Ridge classifiers: linear scores of many features, fitted to a sign for each class.

    weights = (X'X + alpha)^-1 X'y           X (n, p) and y (n, C) less their means

Where there are more sequences than features, sums over sequences are all that is needed: they are gathered block by
block, one eigendecomposition of X'X (p, p) serves all penalties, and sums of some sequences are those of all less those
of the others. scikit-learn, which does the rest, would hold X three times over in double precision and multiply it by
a matrix (p, p) for each penalty: 80,000 sequences with 10,000 features would not fit into 24 GiB.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, solve
from sklearn.linear_model import Ridge, RidgeCV

from firmbound.arrays import Floats, Ints

Singles = NDArray[np.float32]
# Rows that are in double precision at a time.
BLOCK = 2_000


def blocks(count: int) -> Iterator[slice]:
    return (slice(start, min(start + BLOCK, count)) for start in range(0, count, BLOCK))


def signs_of(labels: Ints, classes: int) -> Floats:
    """+1 for the class of a sequence and -1 for others, (n, K); of two classes the second alone, (n, 1)."""
    signs = np.where(labels[:, None] == np.arange(classes), 1.0, -1.0)
    return signs[:, 1:] if classes == 2 else signs


@dataclass(frozen=True)
class RidgeScores:
    """weights (p, C), intercept (C,). alpha: the penalty they were fitted with."""

    weights: Floats
    intercept: Floats
    alpha: float

    def of(self, features: Singles) -> Floats:
        """(n, p) -> (n, C): how far each class is leant to."""
        found = np.empty((len(features), len(self.intercept)))
        for rows in blocks(len(features)):
            found[rows] = features[rows].astype(np.float64) @ self.weights + self.intercept
        return found


@dataclass(frozen=True)
class Moments:
    """Sums over sequences: their number, of features (p,) and targets (C,), of products (p, p) and (p, C).

    Means are taken off afterwards, which costs no digits where features are standardised, as they are here.
    """

    count: int
    features: Floats
    targets: Floats
    squares: Floats
    products: Floats

    @classmethod
    def of(cls, features: Singles, targets: Floats) -> Moments:
        dimension = features.shape[1]
        total, squares = np.zeros(dimension), np.zeros((dimension, dimension))
        products = np.zeros((dimension, targets.shape[1]))
        for rows in blocks(len(features)):
            some = features[rows].astype(np.float64)
            total += some.sum(axis=0)
            squares += some.T @ some
            products += some.T @ targets[rows]
        return cls(len(features), total, targets.sum(axis=0), squares, products)

    def without(self, some: Moments) -> Moments:
        """Of the sequences that are not among `some`."""
        return Moments(
            self.count - some.count,
            self.features - some.features,
            self.targets - some.targets,
            self.squares - some.squares,
            self.products - some.products,
        )

    def means(self) -> tuple[Floats, Floats]:
        """(p,), (C,)."""
        return self.features / self.count, self.targets / self.count

    def about_means(self) -> tuple[Floats, Floats]:
        """X'X (p, p) and X'y (p, C) of features and targets less their means."""
        features, targets = self.means()
        squares = self.squares - np.outer(self.features, features)
        return squares, self.products - np.outer(self.features, targets)

    def scores(self, weights: Floats, alpha: float) -> RidgeScores:
        features, targets = self.means()
        return RidgeScores(weights, targets - features @ weights, alpha)


def fit_ridge(features: Singles, targets: Floats, alphas: Sequence[float]) -> RidgeScores:
    """Of the penalties the one whose leave-one-out scores differ least from targets (n, C), in the mean square."""
    if _wide(features):
        found = RidgeCV(list(alphas)).fit(features, targets)
        return _as_scores(found, float(found.alpha_))
    moments = Moments.of(features, targets)
    squares, products = moments.about_means()
    values, vectors = eigh(squares, overwrite_a=True, driver="evd")
    turned = vectors.T @ products
    shrunk = 1.0 / (values[:, None] + np.asarray(alphas))  # (p, A)
    errors = _left_out_errors(features, targets, moments, vectors, turned, shrunk)
    best = int(errors.argmin())
    return moments.scores(vectors @ (turned * shrunk[:, [best]]), float(alphas[best]))


def scores_of_other_folds(
    features: Singles, targets: Floats, alpha: float, folds: Iterable[tuple[Ints, Ints]]
) -> Floats:
    """(n, C): each sequence scored by a classifier of the other folds, which are given as (others, own) rows."""
    found = np.empty_like(targets)
    total = None if _wide(features) else Moments.of(features, targets)
    for others, own in folds:
        if total is None:
            # Double precision: small penalties need it.
            fitted = Ridge(alpha).fit(features[others].astype(np.float64), targets[others])
            scores = _as_scores(fitted, alpha)
        else:
            moments = total.without(Moments.of(features[own], targets[own]))
            squares, products = moments.about_means()
            # A penalty far below the digits of X'X would leave it singular; the others change nothing.
            least = float(np.finfo(np.float64).eps) * float(np.trace(squares))
            squares.flat[:: len(squares) + 1] += max(alpha, least)
            weights = solve(squares, products, overwrite_a=True, overwrite_b=True, assume_a="pos")
            scores = moments.scores(weights, alpha)
        found[own] = scores.of(features[own])
    return found


def _wide(features: Singles) -> bool:
    return len(features) <= int(features.shape[1])


def _as_scores(fitted: Any, alpha: float) -> RidgeScores:
    weights = np.atleast_2d(fitted.coef_).T.astype(np.float64)
    return RidgeScores(weights, np.atleast_1d(fitted.intercept_).astype(np.float64), alpha)


def _left_out_errors(
    features: Singles, targets: Floats, moments: Moments, vectors: Floats, turned: Floats, shrunk: Floats
) -> Floats:
    """Mean squared error of leave-one-out scores for each of A penalties.  -> (A,)

    What a sequence's own target weighs in its score is h = 1/n + sum_j z_j^2 / (value_j + alpha), where z are its
    features along the eigenvectors; without the sequence, its error is larger by the factor 1 / (1 - h).
    """
    mean, level = moments.means()
    errors = np.zeros(shrunk.shape[1])
    for rows in blocks(len(features)):
        along = (features[rows] - mean) @ vectors
        kept = 1.0 - 1.0 / moments.count - along**2 @ shrunk
        for place, weights in enumerate(shrunk.T):
            left = targets[rows] - level - along @ (turned * weights[:, None])
            errors[place] += np.sum((left / kept[:, [place]]) ** 2)
    return errors / targets.size
