"""The exact dynamic programme on finer and finer grids: how many digits of the Bayes risk stand still."""

from __future__ import annotations

import time
from typing import Any

import firmbound
from benchmarks.record import record
from firmbound.oracle import DEFAULT_FINENESS

COSTS = [0.02, 0.2, 0.4]
STEPS = {2: [8, 16, 32, 64, 128, 256, 512], 3: [2, 3, 4, 6, 8, 12]}


def main() -> None:
    results = {}
    for classes, steps in STEPS.items():
        rows: list[dict[str, Any]] = []
        for step in steps:
            started = time.perf_counter()
            problem = firmbound.datasets.gaussian(classes=classes, sequences=1)
            oracle = firmbound.solve_gaussian(problem, costs=COSTS, fineness=1 / step)
            rows.append({"nodes_per_deviation": step, "seconds": time.perf_counter() - started})
            rows[-1]["bayes_risk"] = oracle.bayes_risk.tolist()
        finest = rows[-1]["bayes_risk"]
        for row in rows:
            row["largest_relative_difference"] = max(
                abs(a / b - 1) for a, b in zip(row["bayes_risk"], finest, strict=True)
            )
            usual = "  <- default" if row["nodes_per_deviation"] == round(1 / DEFAULT_FINENESS[classes - 1]) else ""
            print(
                f"K = {classes}: {row['nodes_per_deviation']:4d} nodes a deviation, {row['seconds']:6.1f} s, "
                f"off by {row['largest_relative_difference']:.1e}{usual}"
            )
        results[f"K={classes}"] = rows
    record("oracle_refinement", results)


if __name__ == "__main__":
    main()
