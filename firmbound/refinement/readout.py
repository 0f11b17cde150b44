"""Multinomial logistic regression with an offset and a ridge: what labels follow from scores and columns.

    log P(y = k) = log share_k + scale score_k + sum_j column_j weight_jk   (up to what all k share)

Convex; solved by L-BFGS in coordinates in which the curvature, where nothing is certain yet, is about 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, optimize

from firmbound.arrays import Floats, Ints

# Times that the curvature is looked at anew, steps between, and the slope, in nats a sequence, that is small enough:
# what is left to win is then below what is uncertain anyway, about a parameter / (2 n).
ROUNDS, STEPS = 3, 12
SLOPE = 1e-3
# Of sums in single precision, as a share of the curvature.
ROUNDING = 1e-6


class Readout(NamedTuple):
    """scale: of the given scores. weights (p, K): of the columns."""

    scale: float
    weights: Floats


def untouched(columns: int, classes: int) -> Readout:
    """Leaves the scores as they are."""
    return Readout(1.0, np.zeros((columns, classes)))


class ReadoutProblem:
    """Scores (n, K), columns (n, p) and labels (n,) at one time; to be solved for any ridge.

    ridge / n is the price of squared weights, and of the scale's squared distance from 1. Inside, classes are rows:
    sums over a few classes are then sums of long rows, several times quicker than many short ones.
    """

    def __init__(self, scores: NDArray[Any], columns: NDArray[np.float32], labels: Ints, log_shares: Floats) -> None:
        self.scores, self.columns, self.labels = scores.astype(np.float32), columns, labels
        self.log_shares = log_shares.astype(np.float32)
        self._rows = np.ascontiguousarray(self.scores.T)
        self._own = (labels, np.arange(len(labels)))

    def solve(self, ridge: float, start: Readout | None = None) -> Readout:
        width, classes = self.columns.shape[1], len(self.log_shares)
        found, price = start or untouched(width, classes), ridge / len(self.labels)
        for _ in range(ROUNDS):
            upper, stretch = self._curvature(found, price)
            found, done = self._descend(found, price, upper, stretch)
            if done:
                break
        return found

    def _curvature(self, found: Readout, price: float) -> tuple[Floats, float]:
        """A root (p, p) of the mean curvature in the weights of a class, and one over that of the scale's.

        Exact for two classes; for more, what the classes have on average.
        """
        chances, _ = self._chances(found)
        classes = len(chances)
        doubt = classes / (classes - 1) * (chances * (1.0 - chances)).mean(axis=0)
        gram = (self.columns * doubt[:, None]).T @ self.columns / np.float32(len(doubt))
        # Columns may depend on each other: what a small price does not lift above rounding, this does.
        lift = max(price, ROUNDING * float(np.trace(gram)))
        upper = linalg.cholesky(gram.astype(np.float64) + lift * np.eye(len(gram)), lower=False)
        size = float((doubt * self._rows**2).sum()) / len(doubt)
        return upper, float(1.0 / np.sqrt(size + price))

    def _descend(self, begin: Readout, price: float, upper: Floats, stretch: float) -> tuple[Readout, bool]:
        """L-BFGS in coordinates in which the curvature is about 1; and whether it came to rest."""
        shape = begin.weights.shape

        def readout(point: Floats) -> Readout:
            weights = linalg.solve_triangular(upper, point[1:].reshape(shape), check_finite=False)
            return Readout(float(point[0]) * stretch, weights)

        def loss(point: Floats) -> tuple[float, Floats]:
            value, scale_slope, slopes = self._loss(readout(point), price)
            inner = linalg.solve_triangular(upper, slopes, trans=1, check_finite=False)
            return value, np.concatenate([[stretch * scale_slope], inner.ravel()])

        point = np.concatenate([[begin.scale / stretch], (upper @ begin.weights).ravel()])
        solved = optimize.minimize(
            loss, point, jac=True, method="L-BFGS-B", options={"maxiter": STEPS, "gtol": SLOPE, "ftol": 1e-7}
        )
        return readout(solved.x), bool(solved.success)

    def _chances(self, found: Readout) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """P(y = k) of every sequence (K, n), and minus its logarithm for the true class (n,)."""
        logits = found.weights.T.astype(np.float32) @ self.columns.T
        logits += np.float32(found.scale) * self._rows
        logits += self.log_shares[:, None]
        logits -= logits.max(axis=0)
        own = logits[self._own]
        np.exp(logits, out=logits)
        total = logits.sum(axis=0)
        logits /= total
        return logits, np.log(total) - own

    def _loss(self, found: Readout, price: float) -> tuple[float, float, Floats]:
        """Mean negative log-likelihood with its penalty, and its slopes in the scale and in the weights."""
        count = len(self.labels)
        missed, surprise = self._chances(found)
        value = float(surprise.mean(dtype=np.float64))
        missed[self._own] -= 1.0
        away = found.scale - 1.0
        value += price / 2 * (away**2 + float((found.weights**2).sum()))
        scale_slope = float(np.vdot(missed, self._rows)) / count + price * away
        slopes = (missed @ self.columns).T.astype(np.float64) / count + price * found.weights
        return value, scale_slope, slopes


def refined(scores: NDArray[Any], columns: NDArray[np.float32], found: Readout) -> NDArray[np.float32]:
    """Scores (n, K) as the readout has them."""
    return np.asarray(np.float32(found.scale) * scores + columns @ found.weights.astype(np.float32))


def losses(evidence: NDArray[Any], labels: Ints, log_shares: Floats) -> Floats:
    """(n,) negative log-likelihood of the labels, from evidence (n, K)."""
    logits = evidence.astype(np.float64) + log_shares
    logits -= logits.max(axis=1, keepdims=True)
    return np.asarray(np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(labels)), labels])
