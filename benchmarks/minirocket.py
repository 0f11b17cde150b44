"""A classifier that somebody has already: ridge regression on MiniRocket features of prefixes, calibrated.

At every second step from the ninth, the shortest that MiniRocket takes, features of the prefixes and a ridge classifier
of its own. Scores become posteriors by a softmax whose temperature is fitted on validation sequences. Between two of
them, and before the first, beliefs stay as they were.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from aeon.transformations.collection.convolution_based import MiniRocket
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.linear_model import RidgeClassifierCV
from sklearn.preprocessing import StandardScaler

from firmbound.arrays import Floats, Ints

FIRST, STEP, KERNELS = 9, 2, 2_500
ALPHAS = np.logspace(0, 5, 6)
SPLITS = ("train", "val", "test")


def write_posteriors(data: Path, folder: Path) -> dict[str, float]:
    """X_<part>.npy with posteriors (n, T, K) and y_<part>.npy; hands back the seconds it took."""
    folder.mkdir()
    started = time.perf_counter()
    with np.load(data) as found:
        features = {split: found[f"X_{split}"].transpose(0, 2, 1).astype(np.float32) for split in SPLITS}
        labels = {split: found[f"y_{split}"] for split in SPLITS}
    classes = int(labels["train"].max()) + 1
    horizon = features["train"].shape[2]
    believed = {split: np.full((len(y), horizon, classes), 1 / classes, np.float32) for split, y in labels.items()}
    for t in range(FIRST, horizon + 1, STEP):
        scores = scores_at(t, features, labels["train"])
        sharpness = fit_sharpness(scores["val"], labels["val"])
        for split, found_scores in scores.items():
            believed[split][:, t - 1 :] = np.exp(log_softmax(sharpness * found_scores, axis=1))[:, None]
        wrong = np.mean(scores["test"].argmax(axis=1) != labels["test"])
        print(f"t = {t}: {100 * wrong:.1f} % wrong, {time.perf_counter() - started:.0f} s", flush=True)
    for split in SPLITS:
        np.save(folder / f"X_{split}.npy", believed[split])
        np.save(folder / f"y_{split}.npy", labels[split])
    return {"seconds_of_the_classifier": time.perf_counter() - started}


def scores_at(t: int, features: dict[str, NDArray[Any]], labels: Ints) -> dict[str, Floats]:
    transform = MiniRocket(n_kernels=KERNELS, random_state=0, n_jobs=2)
    transform.fit(features["train"][:, :, :t])
    seen = {split: np.asarray(transform.transform(part[:, :, :t])) for split, part in features.items()}
    scale = StandardScaler().fit(seen["train"])
    ridge = RidgeClassifierCV(ALPHAS).fit(scale.transform(seen["train"]), labels)
    return {split: ridge.decision_function(scale.transform(part)) for split, part in seen.items()}


def fit_sharpness(scores: Floats, labels: Ints) -> float:
    """What scores are multiplied by so that the softmax makes validation labels likeliest."""

    def loss(log_sharpness: float) -> float:
        return float(-log_softmax(np.exp(log_sharpness) * scores, axis=1)[np.arange(len(labels)), labels].mean())

    return float(np.exp(minimize_scalar(loss, bounds=(-3, 6), method="bounded").x))


def add_section(params: dict[str, Any], path: str) -> None:
    """A data set `minirocket` whose arrays are posteriors, decided by the rules of asc40."""
    names = {"features": "X", "labels": "y", "lengths": "len", "groups": "speaker"}
    arrays = params["features"]["asc40"] | {"path": path, "content": "posteriors", "scaling": "none", "arrays": names}
    params["features"]["minirocket"] = arrays
    params["tandem"]["minirocket"] = {"evidence": "given"}
    params["refinement"]["minirocket"] = params["refinement"]["asc40"]
    params["boundary"]["minirocket"] = params["boundary"]["asc40"]
