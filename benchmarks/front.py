"""Twenty costs instead of one: what the rest of the front costs once the data are prepared. CPU seconds, in one run.

`python -m benchmarks.front` measures convex function learning, `... gp` Gaussian processes.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

import firmbound
from benchmarks.record import record
from firmbound.fitting import Method

COSTS = 20
CASES = {"K=2": (2, 80_000, 50), "K=3": (3, 60_000, 50), "K=40": (40, 7_200, 12)}
BAR = 3.0


def main(method: Method) -> None:
    results = {}
    tiny = firmbound.datasets.gaussian(2, 500, 3).evidence
    firmbound.fit_stopping_rule(tiny, costs=[0.2], method=method)  # imports
    for name, (classes, sequences, horizon) in CASES.items():
        separation = 0.5 if classes < 40 else 1.0
        problem = firmbound.datasets.gaussian(classes, sequences, horizon, seed=1, separation=separation)
        scale = 10.0 / horizon
        one = fit_seconds(method, problem.evidence, np.array([scale]))
        many = fit_seconds(method, problem.evidence, scale * np.geomspace(0.1, 2.0, COSTS))
        ratio = many["cpu_seconds"] / one["cpu_seconds"]
        results[name] = {"one": one, "twenty": many, "ratio": ratio, "bar": BAR, "met": ratio <= BAR}
        spent = f"{one['cpu_seconds']:.1f} s for one, {many['cpu_seconds']:.1f} s for {COSTS}"
        print(f"{method}, {name}: {spent}, {ratio:.2f}x", flush=True)
    record("front" if method == "cfl" else f"front_{method}", results)


def fit_seconds(method: Method, evidence: Any, costs: Any) -> dict[str, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    firmbound.fit_stopping_rule(evidence, costs=costs, method=method)
    return {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}


if __name__ == "__main__":
    main("gp" if "gp" in sys.argv[1:] else "cfl")
