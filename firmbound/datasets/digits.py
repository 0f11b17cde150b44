"""Handwritten digits, 8 x 8, read row by row: real data that comes with scikit-learn."""

from __future__ import annotations

import numpy as np

from firmbound.datasets.recordings import ArrayRecordings


def digits() -> dict[str, ArrayRecordings]:
    """1,797 images of ten classes as series of 8 rows of 8 numbers from 0 to 16; no split is given.

    >>> digits()["all"].values.shape
    (1797, 8, 8)
    """
    from sklearn.datasets import load_digits  # takes long to import

    data = load_digits()
    images = data.images.astype(np.float32)
    return {"all": ArrayRecordings("scikit-learn's digits", data.target, np.full(len(images), 8), images)}
