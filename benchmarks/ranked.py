"""What surfaces of many classes should be functions of: `python -m benchmarks.ranked` writes results/ranked.json.

Gaussian evidence, which is exact, so a rule's believed risk is what it pays on average. For each number of classes and
of training sequences: CPU seconds of fitting, and the risk of decisions on fresh sequences beside that of the static
threshold which was best on the training sequences, with the standard error of the difference.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np

import firmbound
from benchmarks.record import record
from firmbound.arrays import Floats
from firmbound.baselines.static_threshold import tune_threshold
from firmbound.continuation.surface import Statistic
from firmbound.evaluation.risk import believed_risk
from firmbound.fitting import Method
from firmbound.stopping_rule import StoppingRule
from firmbound.trajectories import Decisions

PENALTY, HORIZON, FRESH = 10.0, 50, 10_000
CLASSES, SEQUENCES = (3, 5, 10, 40), (2_500, 10_000)
COSTS = [share * PENALTY / HORIZON for share in (0.1, 1.0, 2.0)]
WAYS: tuple[tuple[Method, Statistic], ...] = (
    ("cfl", "posterior"),
    ("cfl", "ranked"),
    ("gp", "llr"),
    ("gp", "ranked"),
)


def main() -> None:
    results: dict[str, Any] = {}
    for classes, sequences in itertools.product(CLASSES, SEQUENCES):
        train, fresh = (
            firmbound.datasets.gaussian(classes, count, HORIZON, seed, separation=1.0).evidence
            for count, seed in ((sequences, 1), (FRESH, 2))
        )
        found = results[f"K={classes}, {sequences} sequences"] = {}
        for method, statistic in WAYS:
            found[f"{method} {statistic}"] = shown = measure(train, fresh, method, statistic)
            beside = ", ".join(f"{row['beside_static_percent']:+.2f} %" for row in shown["costs"])
            print(f"K={classes}, n={sequences}, {method} {statistic}: {shown['cpu_seconds']:.0f} CPU s; {beside}")
    record("ranked", results)


def measure(train: Floats, fresh: Floats, method: Method, statistic: Statistic) -> dict[str, Any]:
    started = time.process_time()
    rule = firmbound.fit_stopping_rule(train, costs=COSTS, penalty=PENALTY, method=method, statistic=statistic)
    spent = time.process_time() - started
    return {"cpu_seconds": spent, "costs": [beside_static(rule, train, fresh, cost) for cost in COSTS]}


def beside_static(rule: StoppingRule, train: Floats, fresh: Floats, cost: float) -> dict[str, float]:
    def paid(decisions: Decisions, evidence: Floats) -> Floats:
        return believed_risk(decisions, evidence, rule.prior, rule.problem, cost)

    threshold = tune_threshold(train, lambda decisions: float(paid(decisions, train).mean()), 80)
    static, ours = paid(threshold.decide(fresh), fresh), paid(rule.decide(fresh, cost=cost), fresh)
    share = 100 / static.mean()
    return {
        "cost": cost,
        "risk": float(ours.mean()),
        "static_risk": float(static.mean()),
        "beside_static_percent": float(share * (ours - static).mean()),
        "standard_error_percent": float(share * (ours - static).std() / np.sqrt(len(ours))),
    }


if __name__ == "__main__":
    main()
