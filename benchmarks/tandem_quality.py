"""Learned evidence against exact evidence, on the Gaussian problems with the paper's 128 features and 50 observations.

20,000 training sequences. The stopping rule is fitted on learned evidence; the risk of its decisions is computed with
exact evidence and set against the exact optimum's on the same fresh sequences. Beside it: correlation and slope of
learned against true ratios at the horizon, and the largest expected calibration error over t. Three seeds of training.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import firmbound
from benchmarks.learned import COSTS, PENALTY, rule_on, slope_and_correlation, train, true_risk
from benchmarks.record import record
from firmbound.evaluation.calibration import calibration
from firmbound.evaluation.estimates import relative_excess

BARS = {2: (0.03, 0.02), 3: (0.04, 0.03)}  # excess risk, calibration error
NETWORK = firmbound.NetworkOptions(order=0, projection=32, hidden=32, activation="b2bsqrt")
TRAINING = firmbound.TrainingOptions(epochs=8, learning_rate=3e-3, weight_decay=1e-3)
SEEDS = (0, 1, 2)


def main() -> None:
    record(
        "tandem_quality", {f"K={classes}, seed {seed}": measure(classes, seed) for classes in BARS for seed in SEEDS}
    )


def measure(classes: int, seed: int) -> dict[str, Any]:
    problem, valid, fresh = (
        firmbound.datasets.gaussian(classes, sequences, seed=stream)
        for sequences, stream in ((20_000, 1), (2_000, 5), (20_000, 2))
    )
    wall, cpu = time.perf_counter(), time.process_time()
    model = train(problem, valid, NETWORK, replace(TRAINING, seed=seed))
    shown: dict[str, Any] = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}
    rule, learned = rule_on(model.evidence(problem.features), model.prior), model.evidence(fresh.features)
    oracle = firmbound.solve_gaussian(fresh, costs=COSTS, penalty=PENALTY)
    excess_bar, error_bar = BARS[classes]
    rows = []
    for cost in COSTS:
        chosen, best = rule.decide(learned, cost=cost), oracle.decide(fresh.evidence, cost=cost)
        excess = relative_excess(*(true_risk(rule, decisions, fresh.evidence, cost) for decisions in (chosen, best)))
        rows.append({"cost": cost, "excess": excess.value, "excess_error": excess.standard_error, "bar": excess_bar})
    slope, correlation = slope_and_correlation(learned, fresh.evidence)
    worst = float(calibration(learned, fresh.labels, model.prior).error.max())
    shown |= {"temperatures": model.temperatures.tolist(), "correlation": correlation, "slope": slope}
    shown |= {"largest_calibration_error": worst, "calibration_bar": error_bar, "costs": rows}
    within = all(row["excess"] <= excess_bar for row in rows) and worst <= error_bar
    shown["met"] = within and correlation >= 0.98 and 0.85 <= slope <= 1.15
    print(f"K={classes}, seed {seed}: {shown}", flush=True)
    return shown


if __name__ == "__main__":
    main()
