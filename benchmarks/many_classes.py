"""Tens and hundreds of classes: time, peak memory, and the risk beside the best static threshold's.

`python -m benchmarks.many_classes` measures convex function learning, `... gp` Gaussian processes. Sizes of the
40-class speech commands and of the paper's UCF101 study, with Gaussian evidence. Each case runs in a process of its
own, so that its peak of memory is its own.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from typing import Any

import firmbound
from benchmarks.record import record
from firmbound.baselines.static_threshold import tune_threshold
from firmbound.continuation.surface import worst_facts
from firmbound.evaluation.risk import believed_risk
from firmbound.fitting import Method
from firmbound.trajectories import Decisions

PENALTY = 10.0
FRESH = 6_000
CASES = {
    "K=40": {"classes": 40, "horizon": 49, "sequences": 7_200, "minutes": 10, "gigabytes": 4},
    "K=101": {"classes": 101, "horizon": 50, "sequences": 36_000, "minutes": 30, "gigabytes": 8},
}


def main(argument: str) -> None:
    if argument.startswith("{"):
        print(json.dumps(measure(**json.loads(argument))))
        return
    results = {}
    for name, case in CASES.items():
        command = [sys.executable, "-m", "benchmarks.many_classes", json.dumps(case | {"method": argument})]
        results[name] = json.loads(subprocess.check_output(command, text=True).splitlines()[-1])
        shown = results[name]
        spent = f"{shown['fit_seconds']:.0f} s ({shown['fit_cpu_seconds']:.0f} CPU s), {shown['peak_gib']:.2f} GiB"
        print(f"{argument}, {name}: {spent}")
        for row in shown["costs"]:
            print(f"  cost {row['cost']:.3g}: risk {row['risk']:.4f}, best static threshold {row['static_risk']:.4f}")
    record("many_classes" if argument == "cfl" else f"many_classes_{argument}", results)


def measure(
    method: Method, classes: int, horizon: int, sequences: int, minutes: float, gigabytes: float
) -> dict[str, Any]:
    costs = [0.1 * PENALTY / horizon, PENALTY / horizon, 2 * PENALTY / horizon]
    train = firmbound.datasets.gaussian(classes=classes, sequences=sequences, horizon=horizon, seed=1, separation=1.0)
    evidence = train.evidence
    wall, cpu = time.perf_counter(), time.process_time()
    rule = firmbound.fit_stopping_rule(evidence, costs=costs, penalty=PENALTY, method=method)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    few = evidence[:10_000]
    fresh = firmbound.datasets.gaussian(classes=classes, sequences=FRESH, horizon=horizon, seed=2, separation=1.0)
    rows = []
    for cost in costs:

        def risk(decisions: Decisions, of: Any, cost: float = cost) -> float:
            return float(believed_risk(decisions, of, rule.prior, rule.problem, cost).mean())

        chosen = rule.decide(fresh.evidence, cost=cost)
        static = tune_threshold(few, lambda decisions: risk(decisions, few), 80).decide(fresh.evidence)
        wrong = float((chosen.label != fresh.labels).mean())
        times = {"mean_time": float(chosen.time.mean()), "error": wrong}
        rows.append(
            {"cost": cost, "risk": risk(chosen, fresh.evidence), "static_risk": risk(static, fresh.evidence)} | times
        )
    met = wall <= 60 * minutes and peak <= gigabytes
    shown = {"fit_seconds": wall, "fit_cpu_seconds": cpu, "peak_gib": peak, "worst_fit": worst_facts(rule.surfaces)}
    return shown | {"bar_minutes": minutes, "bar_gib": gigabytes, "met": met, "costs": rows}


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "cfl")
