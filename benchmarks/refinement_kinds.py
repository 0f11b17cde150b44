"""Three ways to remember, on the same folds: fixed random units with learned readouts (ours), a trained recurrent
network, and boosted trees on summaries of the past, on oscillating and autoregressive evidence.

The network is an LSTM of 32 units over the whole past, trained by cross entropy at every step; the trees read the
evidence, its mean so far, that of the last five, the last two values, and how much it moved. Risk is realised, on fresh
sequences, by rules fitted on evidence that never saw its own labels.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier

import firmbound
from benchmarks.record import record
from firmbound.arrays import Ints
from firmbound.evaluation.estimates import mean_of
from firmbound.evaluation.risk import realised_risk
from firmbound.folds import fold_numbers

Refine = Callable[[NDArray[Any], Ints, NDArray[Any]], tuple[NDArray[Any], NDArray[Any]]]
FOLDS = 2


def main() -> None:
    costs = [0.02, 0.06]
    seen, fresh = firmbound.datasets.oscillating(20_000, seed=3), firmbound.datasets.oscillating(80_000, seed=77)
    kinds: dict[str, Refine] = {"none": lambda given, _, new: (given, new), "echo": echo}
    kinds |= {"trained network": trained, "boosted trees": boosted}
    results = {}
    for name, refine in kinds.items():
        started, cpu = time.perf_counter(), time.process_time()
        honest, refined = refine(seen.evidence, seen.labels, fresh.evidence)
        taken = {"seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - cpu}
        rule = firmbound.fit_stopping_rule(honest, costs=costs, penalty=10.0)
        rows = []
        for cost in costs:
            chosen = rule.decide(refined, cost=cost)
            paid = mean_of(realised_risk(chosen, fresh.labels, rule.problem, cost))
            rows.append({"cost": cost, "risk": paid.value, "risk_error": paid.standard_error})
        results[name] = {"costs": rows, "log_loss": log_loss(refined, fresh.labels), **taken}
        print(name, results[name], flush=True)
        record("refinement_kinds", results)


def echo(given: NDArray[Any], labels: Ints, new: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    refiner, honest = firmbound.fit_refiner(given, labels, options=firmbound.RefinementOptions(folds=FOLDS))
    return honest, refiner.refine(new)


def trained(given: NDArray[Any], labels: Ints, new: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    horizon = given.shape[1]
    network = firmbound.NetworkOptions(
        order=horizon - 1, projection=16, hidden=32, activation="tanh", output_activation="tanh"
    )

    def fit(rows: Ints, seed: int) -> Callable[[NDArray[Any]], NDArray[Any]]:
        training = firmbound.TrainingOptions(
            learning_rate=1e-2, batch=200, epochs=15, ratio_weight=0.0, patience=None, seed=seed
        )
        held_out = rows[: len(rows) // 10]
        learn = rows[len(rows) // 10 :]
        model: firmbound.TandemModel = firmbound.fit_tandem(
            given[learn],
            labels[learn],
            validation=(given[held_out], labels[held_out]),
            network=network,
            training=training,
        )
        return lambda evidence: np.asarray(model.evidence(evidence))

    return crossed(given, labels, new, fit)


def boosted(given: NDArray[Any], labels: Ints, new: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    def fit(rows: Ints, seed: int) -> Callable[[NDArray[Any]], NDArray[Any]]:
        columns = summaries(given[rows])
        models = [
            HistGradientBoostingClassifier(max_iter=60, max_leaf_nodes=15, random_state=seed).fit(
                columns[:, t], labels[rows]
            )
            for t in range(given.shape[1])
        ]

        def read(evidence: NDArray[Any]) -> NDArray[Any]:
            found = summaries(evidence)
            return np.stack([np.log(one.predict_proba(found[:, t])) for t, one in enumerate(models)], axis=1)

        return read

    return crossed(given, labels, new, fit)


def crossed(
    given: NDArray[Any], labels: Ints, new: NDArray[Any], fit: Callable[[Ints, int], Callable[..., NDArray[Any]]]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Evidence of each fold by what the other taught; of new sequences, the mean of both."""
    fold = fold_numbers(labels, FOLDS, seed=0)
    honest, refined = np.empty(given.shape), np.zeros(new.shape)
    for number in range(FOLDS):
        read = fit(np.flatnonzero(fold != number), number)
        honest[fold == number] = read(given[fold == number])
        refined += read(new) / FOLDS
    return honest, refined


def summaries(evidence: NDArray[Any]) -> NDArray[Any]:
    """(n, T, 2) -> (n, T, 7) of the ratio and its past."""
    ratio = evidence[..., 1].astype(float) - evidence[..., 0]
    horizon = ratio.shape[1]
    time_now = np.arange(1, horizon + 1)
    total = np.cumsum(ratio, axis=1)
    recent = total - np.pad(total, ((0, 0), (5, 0)))[:, :horizon]
    before, two_before = (np.pad(ratio, ((0, 0), (lag, 0)))[:, :horizon] for lag in (1, 2))
    moved = np.cumsum(np.abs(ratio - before), axis=1) / time_now
    spread = np.sqrt(np.cumsum(ratio**2, axis=1) / time_now)
    parts = [ratio, total / time_now, recent / np.minimum(time_now, 5), before, two_before, moved, spread]
    return np.stack(parts, axis=-1)


def log_loss(evidence: NDArray[Any], labels: Ints) -> float:
    scores = evidence - np.logaddexp.reduce(evidence, axis=-1, keepdims=True)
    return float(-scores[np.arange(len(labels)), :, labels].mean())


if __name__ == "__main__":
    main()
