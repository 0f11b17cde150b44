"""One decision for one sequence at one time step: `StoppingRule.step` on a fitted, pruned rule, NumPy only."""

from __future__ import annotations

import time

import numpy as np

import firmbound
from benchmarks.record import record
from firmbound.fitting import Method

CASES: dict[str, tuple[Method, int, int, int, float]] = {
    "K=2": ("cfl", 2, 20_000, 50, 30.0),
    "K=3": ("cfl", 3, 10_000, 20, 100.0),
    "K=40": ("cfl", 40, 2_000, 10, 100.0),
    "gp, K=2": ("gp", 2, 20_000, 50, 60.0),
    "gp, K=3": ("gp", 3, 10_000, 20, 100.0),
}
WARM_UP, CALLS = 2_000, 20_000


def main() -> None:
    results = {}
    for name, (method, classes, sequences, horizon, bar) in CASES.items():
        problem = firmbound.datasets.gaussian(classes, sequences, horizon, seed=1)
        options = firmbound.ConvexOptions(regularisation=1e-6) if classes == 40 else None  # many pieces, not one
        rule = firmbound.fit_stopping_rule(problem.evidence, costs=[0.2], method=method, options=options)
        t = horizon // 2
        rows = problem.evidence[:, t - 1].astype(np.float64)
        taken = np.empty(WARM_UP + CALLS)
        for call in range(WARM_UP + CALLS):
            row = rows[call % len(rows)]
            started = time.perf_counter_ns()
            rule.step(row, t=t)
            taken[call] = time.perf_counter_ns() - started
        micros = taken[WARM_UP:] / 1e3
        shown = {"median_microseconds": float(np.median(micros)), "p99_microseconds": float(np.quantile(micros, 0.99))}
        facts = rule.surfaces[t - 1].facts()
        pieces = int(facts.get("pieces", facts.get("inducing points", 0)))
        results[name] = shown | {"pieces": pieces, "bar": bar, "met": shown["median_microseconds"] <= bar}
        print(
            f"{name}: median {shown['median_microseconds']:.1f} us, {pieces} pieces or inducing points (bar {bar:.0f})"
        )
    record("latency", results)


if __name__ == "__main__":
    main()
