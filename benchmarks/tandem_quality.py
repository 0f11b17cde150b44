"""Learned evidence against exact evidence, on the Gaussian problems with the paper's 128 features and 50 observations.

20,000 training sequences. The stopping rule is fitted on learned evidence; the risk of its decisions is computed with
exact evidence and set against the exact optimum's on the same fresh sequences. Beside it: correlation and slope of
learned against true ratios at the horizon, and the largest expected calibration error over t.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import firmbound
from benchmarks.record import record
from firmbound.evaluation.calibration import calibration
from firmbound.evaluation.estimates import relative_excess
from firmbound.posterior import posterior

COSTS, PENALTY = [0.02, 0.2, 0.4], 10.0
BARS = {2: (0.03, 0.02), 3: (0.04, 0.03)}  # excess risk, calibration error
NETWORK = firmbound.NetworkOptions(order=0, projection=32, hidden=32)
TRAINING = firmbound.TrainingOptions(epochs=8, learning_rate=3e-3, weight_decay=3e-3)


def main() -> None:
    record("tandem_quality", {f"K={classes}": measure(classes) for classes in BARS})


def measure(classes: int) -> dict[str, Any]:
    train, valid, fresh = (
        firmbound.datasets.gaussian(classes, sequences, seed=seed)
        for sequences, seed in ((20_000, 1), (2_000, 5), (20_000, 2))
    )
    wall, cpu = time.perf_counter(), time.process_time()
    model = firmbound.fit_tandem(
        train.features,
        train.labels,
        validation=(valid.features, valid.labels),
        prior=np.full(classes, 1 / classes),
        network=NETWORK,
        training=TRAINING,
    )
    shown: dict[str, Any] = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}
    rule = firmbound.fit_stopping_rule(model.evidence(train.features), costs=COSTS, penalty=PENALTY, method="gp")
    oracle = firmbound.solve_gaussian(fresh, costs=COSTS, penalty=PENALTY)
    learned = model.evidence(fresh.features)
    excess_bar, error_bar = BARS[classes]
    rows = []
    for cost in COSTS:
        chosen, best = rule.decide(learned, cost=cost), oracle.decide(fresh.evidence, cost=cost)
        risks = []
        for decisions in (chosen, best):
            belief = posterior(fresh.evidence[np.arange(len(decisions)), decisions.time - 1], model.prior)
            wrong = 1 - belief[np.arange(len(decisions)), decisions.label]
            risks.append(PENALTY * wrong + cost * decisions.time)
        excess = relative_excess(*risks)
        rows.append({"cost": cost, "excess": excess.value, "excess_error": excess.standard_error, "bar": excess_bar})
        rows[-1]["met"] = excess.value <= excess_bar
    ratio = (learned[:, -1, 0] - learned[:, -1, 1]).astype(float)
    truth = (fresh.evidence[:, -1, 0] - fresh.evidence[:, -1, 1]).astype(float)
    shown["correlation"] = float(np.corrcoef(ratio, truth)[0, 1])
    shown["slope"] = float(np.polyfit(truth, ratio, 1)[0])
    shown["largest_calibration_error"] = float(calibration(learned, fresh.labels, model.prior).error.max())
    shown |= {"calibration_bar": error_bar, "met": shown["largest_calibration_error"] <= error_bar, "costs": rows}
    print(f"K={classes}: {shown}", flush=True)
    return shown


if __name__ == "__main__":
    main()
