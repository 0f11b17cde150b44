"""Sequences in folds: what is learned from all others says what it thinks of those of a fold, and never saw them."""

from __future__ import annotations

import numpy as np

from firmbound.arrays import Ints


def fold_numbers(labels: Ints, folds: int, seed: int) -> Ints:
    """A fold for each sequence, every class spread evenly.  (n,) -> (n,) in 0..folds-1."""
    random = np.random.default_rng(seed)
    order = random.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    numbers = np.empty(len(labels), dtype=np.int64)
    numbers[order] = np.arange(len(labels)) % folds
    return numbers
