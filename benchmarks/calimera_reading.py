"""Our CALIMERA beside a second one that shares no code with it: `python -m benchmarks.calimera_reading`.

The second is naive: a loop for every loop that the method is told in, and two classes alone. It differs from ours in
what should not matter, and the benchmark says whether it does: raw observations as features of prefixes below 9 and
columns of norm one, as in the authors' program; ridge regression written here, its penalty that of the most hits; a
softmax before the sigmoid, which is fitted here; regressions for one delay penalty at a time; labels by the sign of the
score. Its regressions see scores, as those of the authors' program, or probabilities, as ours.

A third figure is a warning: what the authors' program comes to with two classes, where scikit-learn's choice of a ridge
penalty by accuracy keeps the first (issue 34942) and scores are left-one-out. It is not expected to agree.

Series of FordA, the first 100 steps, a random 600 of each part for every repeat; the folder is
FIRMBOUND_BENCHMARK_DATA, by default ../shared/data.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from aeon.transformations.collection.convolution_based import MiniRocket
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.kernel_ridge import KernelRidge

from benchmarks.record import record
from firmbound.arrays import Floats, Ints
from firmbound.baselines.calimera import Calimera
from firmbound.trajectories import Batch

DATA = Path(os.environ.get("FIRMBOUND_BENCHMARK_DATA", Path(__file__).parents[2] / "shared" / "data")).resolve()
SERIES, STEPS, REPEATS, KERNELS = 600, 100, 5, 2_500
PENALTIES = (0.1, 0.5, 1.0)
# Standard errors of the repeats that two means may lie apart.
APART = 2.0
READINGS = ("naive on scores", "naive on probabilities")
AS_RUN = "first penalty, left-one-out"
METHODS = ("ours", *READINGS, AS_RUN)
# Ridge penalties for columns of norm one.
ALPHAS = np.logspace(-3, 3, 10)
FOLDS = 5
MEASURES = ("accuracy", "earliness", "cost")


class Part(NamedTuple):
    """series (n, T), labels (n,) of 0 and 1."""

    series: NDArray[np.float32]
    labels: Ints


def main() -> None:
    if not (DATA / "forda.npz").is_file():
        sys.exit(f"{DATA} must hold forda.npz. Set FIRMBOUND_BENCHMARK_DATA to the folder of the data sets.")
    found: dict[str, list[list[tuple[float, ...]]]] = {name: [] for name in METHODS}
    seconds = {"ours": 0.0, "naive": 0.0}
    for repeat in range(REPEATS):
        train, test = subset("train", repeat), subset("test", repeat)
        started = time.perf_counter()
        found["ours"].append(ours(train, test, repeat))
        between = time.perf_counter()
        for name, points in naive(train, test, repeat).items():
            found[name].append(points)
        seconds["ours"] += between - started
        seconds["naive"] += time.perf_counter() - between
        print(f"repeat {repeat + 1} of {REPEATS}: {time.perf_counter() - started:.0f} s", flush=True)
    results = summary({name: np.array(points) for name, points in found.items()}) | {"seconds": seconds}
    print(json.dumps(results, indent=1))
    record("calimera_reading", results)


def subset(part: str, seed: int) -> Part:
    with np.load(DATA / "forda.npz") as data:
        series, labels = data[f"X_{part}"][:, :STEPS, 0], data[f"y_{part}"]
    some = np.random.default_rng((seed, part == "test")).permutation(len(labels))[:SERIES]
    return Part(series[some], labels[some])


def measured(times: Ints, labels: Ints, truth: Ints, penalty: float) -> tuple[float, ...]:
    accuracy, earliness = float(np.mean(labels == truth)), float(np.mean(times) / STEPS)
    return accuracy, earliness, 1.0 - accuracy + penalty * earliness


def ours(train: Part, test: Part, seed: int) -> list[tuple[float, ...]]:
    """Accuracy, earliness and cost for each delay penalty."""
    seen, new = (Batch(part.labels, 2, features=part.series[:, :, None]) for part in (train, test))
    points = Calimera(PENALTIES, kernels=KERNELS).fit(seen, seen, seed=seed).points(new)
    return [measured(point.decisions.time, point.decisions.label, test.labels, point.setting) for point in points]


def summary(found: dict[str, Floats]) -> dict[str, Any]:
    """found: (repeats, penalties, measures) of each method. Means, their standard errors, and whether they agree."""
    rows = []
    for p, penalty in enumerate(PENALTIES):
        for m, measure in enumerate(MEASURES):
            row: dict[str, Any] = {"delay_penalty": penalty, "measure": measure}
            for name in METHODS:
                row[name] = mean_and_error(found[name][:, p, m])
            for name in READINGS:
                apart = abs(row["ours"]["mean"] - row[name]["mean"])
                error = float(np.hypot(row["ours"]["standard_error"], row[name]["standard_error"]))
                row[f"ours minus {name}"] = mean_and_error(found["ours"][:, p, m] - found[name][:, p, m]) | {
                    "agree": bool(apart <= APART * error)
                }
            rows.append(row)
    agree = {name: all(row[f"ours minus {name}"]["agree"] for row in rows) for name in READINGS}
    setting = {"series": SERIES, "steps": STEPS, "repeats": REPEATS, "kernels": KERNELS, "standard_errors": APART}
    return {"setting": setting, "rows": rows, "agree": agree}


def mean_and_error(values: Floats) -> dict[str, float]:
    return {"mean": float(values.mean()), "standard_error": float(values.std(ddof=1) / np.sqrt(len(values)))}


# The naive reading.


class Stage(NamedTuple):
    """All that is known at a timestamp: scores (n,) and probabilities (n,) of class 1, of series seen and new."""

    t: int
    scores: Floats
    chances: Floats
    new_scores: Floats
    new_chances: Floats


def naive(train: Part, test: Part, seed: int) -> dict[str, list[tuple[float, ...]]]:
    step = STEPS // min(19, STEPS)
    times = list(range(max(2, step), STEPS + step, step))
    times[-1] = STEPS
    meant, as_run = [], []
    targets = np.where(train.labels == 1, 1.0, -1.0)
    for t in times:
        seen, new = columns(t, train, test, seed)
        alpha, scores = most_hits(seen, targets, seed)
        meant.append(stage_at(t, scores, ridge_scores(seen, targets, new, [alpha])[:, 0], train.labels))
        first = float(ALPHAS[0])
        scores = leave_one_out(seen, targets, first)
        as_run.append(stage_at(t, scores, ridge_scores(seen, targets, new, [first])[:, 0], train.labels))
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in METHODS[1:]}
    for name in found:
        stages = as_run if name == AS_RUN else meant
        for penalty in PENALTIES:
            chosen = decide(stages, penalty, on_scores=name != "naive on probabilities")
            labels = np.array([int(stages[s].new_scores[j] > 0) for j, s in enumerate(chosen)])
            at = np.array([stages[s].t for s in chosen])
            found[name].append(measured(at, labels, test.labels, penalty))
    return found


def columns(t: int, train: Part, test: Part, seed: int) -> tuple[Floats, Floats]:
    """Features of the first t observations, those of training series centred and of norm one."""
    seen, new = train.series[:, :t].astype(np.float64), test.series[:, :t].astype(np.float64)
    if t >= 9:
        rocket = MiniRocket(n_kernels=KERNELS, random_state=seed).fit(seen[:, None, :])
        seen, new = (np.asarray(rocket.transform(x[:, None, :]), dtype=np.float64) for x in (seen, new))
    centre, norm = seen.mean(axis=0), np.linalg.norm(seen, axis=0)
    norm[norm == 0] = 1.0
    return (seen - centre) / norm, (new - centre) / norm


def ridge_scores(seen: Floats, targets: Floats, asked: Floats, alphas: Sequence[float]) -> Floats:
    """What ridge regression with an intercept says of rows `asked` (m, f), for each penalty.  -> (m, A)."""
    centre, mean = seen.mean(axis=0), targets.mean()
    values, vectors = np.linalg.eigh((seen - centre) @ (seen - centre).T)
    likeness = (asked - centre) @ (seen - centre).T
    found = []
    for alpha in alphas:
        weights = vectors @ (vectors.T @ (targets - mean) / (values + alpha))
        found.append(mean + likeness @ weights)
    return np.stack(found, axis=1)


def most_hits(seen: Floats, targets: Floats, seed: int) -> tuple[float, Floats]:
    """The ridge penalty by which most series are classified right by those of other folds, and these scores (n,)."""
    fold, random = np.empty(len(targets), dtype=int), np.random.default_rng(seed)
    for target in (-1.0, 1.0):
        rows = random.permutation(np.flatnonzero(targets == target))
        fold[rows] = np.arange(len(rows)) % FOLDS
    scores = np.empty((len(targets), len(ALPHAS)))
    for f in range(FOLDS):
        scores[fold == f] = ridge_scores(seen[fold != f], targets[fold != f], seen[fold == f], list(ALPHAS))
    hits = [np.mean(np.sign(scores[:, a]) == targets) for a in range(len(ALPHAS))]
    best = int(np.argmax(hits))
    return float(ALPHAS[best]), scores[:, best]


def leave_one_out(seen: Floats, targets: Floats, alpha: float) -> Floats:
    """What ridge regression with an intercept predicts for each row if fitted on all others: y_i - e_i / (1 - H_ii)."""
    n = len(seen)
    gram = seen @ seen.T  # columns are centred
    hat = np.full((n, n), 1 / n) + np.linalg.solve(gram + alpha * np.eye(n), gram).T
    left = targets - hat @ targets
    return np.asarray(targets - left / (1 - np.diag(hat)))


def stage_at(t: int, scores: Floats, new_scores: Floats, labels: Ints) -> Stage:
    slope, offset = sigmoid_fit(squashed(scores), labels)
    chances, new_chances = (1 / (1 + np.exp(-(slope * squashed(s) + offset))) for s in (scores, new_scores))
    return Stage(t, scores, chances, new_scores, new_chances)


def squashed(scores: Floats) -> Floats:
    """What a softmax makes of scores s and -s."""
    return np.asarray(np.exp(scores) / (np.exp(scores) + np.exp(-scores)))


def sigmoid_fit(values: Floats, labels: Ints) -> tuple[float, float]:
    """Platt: slope and offset of the sigmoid, with targets that are a little short of 0 and 1."""
    ones, zeros = int(np.sum(labels == 1)), int(np.sum(labels == 0))
    targets = np.where(labels == 1, (ones + 1) / (ones + 2), 1 / (zeros + 2))

    def loss(both: Floats) -> float:
        logits = both[0] * values + both[1]
        return float(np.sum(np.logaddexp(0, logits) - targets * logits))

    slope, offset = minimize(loss, np.zeros(2), method="BFGS").x
    return float(slope), float(offset)


def inputs(score: float, chance: float, on_scores: bool) -> list[float]:
    """Of two classes there is one score; probabilities come with the largest and the difference of the two."""
    if on_scores:
        return [score]
    return [1 - chance, chance, max(chance, 1 - chance), abs(2 * chance - 1)]


def decide(stages: list[Stage], penalty: float, on_scores: bool) -> list[int]:
    """Place of the timestamp at which each new series is decided."""
    final = len(stages) - 1
    pay = [[1 - max(c, 1 - c) + penalty * stage.t / STEPS for c in stage.chances] for stage in stages]
    models: list[Any] = [None] * final
    for s in range(final - 1, -1, -1):
        seen = [inputs(*both, on_scores) for both in zip(stages[s].scores, stages[s].chances, strict=True)]
        change = [later - now for later, now in zip(pay[s + 1], pay[s], strict=True)]
        models[s] = KernelRidge(kernel="rbf").fit(seen, change)
        for i, expected in enumerate(models[s].predict(seen)):
            if expected < 0:
                pay[s][i] = pay[s + 1][i]
    told = []
    for s, model in enumerate(models):
        seen = [inputs(*both, on_scores) for both in zip(stages[s].new_scores, stages[s].new_chances, strict=True)]
        told.append(model.predict(seen))
    chosen = []
    for j in range(len(stages[0].new_scores)):
        s = 0
        while s < final and told[s][j] < 0:
            s += 1
        chosen.append(s)
    return chosen


if __name__ == "__main__":
    main()
