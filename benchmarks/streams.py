"""Streams end to end, network and rule: one observation of one series, and ten thousand series advanced together.

push: two classes, an LSTM of 64 of order 5, 128 features. pool: ten classes, the same network; memory
is read after the first and after the last of many rounds, in which series that have decided make room for new ones.
"""

from __future__ import annotations

import resource
import time
from typing import Any

import numpy as np

import firmbound
from benchmarks.record import record

BARS = {"milliseconds": 1.5, "state_bytes": 64_000, "observations_a_second": 50_000}
NETWORK = firmbound.NetworkOptions(order=5, projection=64, hidden=64)
TRAINING = firmbound.TrainingOptions(epochs=2, learning_rate=3e-3)
STREAMS, ROUNDS, SERIES = 10_000, 60, 200


def main() -> None:
    record("streams", {"push": push(), "pool": pool()})


def fitted(classes: int, horizon: int) -> tuple[firmbound.EarlyClassifier, Any]:
    problem = firmbound.datasets.gaussian(classes, 4_000, horizon, 1)
    classifier = firmbound.EarlyClassifier(cost=0.02, costs=[0.1], network=NETWORK, training=TRAINING, method="gp")
    return classifier.fit(problem.features, problem.labels), problem


def push() -> dict[str, Any]:
    classifier, problem = fitted(2, 50)
    taken = []
    for series in problem.features[:SERIES]:
        stream = classifier.stream()
        for observation in series:
            started = time.perf_counter_ns()
            step = stream.push(observation)
            taken.append((time.perf_counter_ns() - started) / 1e6)
            if step.decided:
                break
    shown: dict[str, Any] = {
        "median_milliseconds": float(np.median(taken)),
        "p99_milliseconds": float(np.quantile(taken, 0.99)),
        "state_bytes": len(stream.state()),
    }
    met = shown["median_milliseconds"] <= BARS["milliseconds"] and shown["state_bytes"] <= BARS["state_bytes"]
    print(f"push: {shown}", flush=True)
    return shown | {"met": met}


def pool() -> dict[str, Any]:
    classifier, problem = fitted(10, 20)
    streams = classifier.pool(STREAMS)
    random = np.random.default_rng(0)
    seen, spent, memory = 0, 0.0, []
    for _ in range(ROUNDS):
        ended = np.flatnonzero(streams.decided)
        if len(ended):
            streams.reset(ended)
        observations = problem.features[random.integers(0, 4_000, STREAMS), random.integers(0, 20)]
        started = time.perf_counter()
        streams.push(observations)
        spent += time.perf_counter() - started
        seen += STREAMS
        memory.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    rate = seen / spent
    shown = {"observations_a_second": rate, "peak_mib_after_ten_rounds": memory[9], "peak_mib_at_the_end": memory[-1]}
    print(f"pool: {shown}", flush=True)
    return shown | {"met": rate >= BARS["observations_a_second"] and memory[-1] < 1.02 * memory[9]}


if __name__ == "__main__":
    main()
