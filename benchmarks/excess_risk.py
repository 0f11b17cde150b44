"""How far the fitted rules of both methods are from the exact optimum, at the paper's sizes.

Two measures, on fresh sequences: `excess`, the paired difference of AAPR over the optimum's, and `regret`, its exact
conditional expectation under the optimum's surfaces, which is the same quantity with a hundredth of the noise.
"""

from __future__ import annotations

import time
from typing import Any

import firmbound
from benchmarks.record import record
from firmbound.baselines.static_threshold import tune_threshold
from firmbound.evaluation.estimates import mean_of, relative_excess
from firmbound.evaluation.risk import believed_risk
from firmbound.fitting import Method
from firmbound.trajectories import Decisions

COSTS = [0.02, 0.2, 0.4]  # 0.1, 1 and 2 times penalty / horizon
FRESH = 1_200_000
CASES = {"K=2": (2, 80_000), "K=3": (3, 60_000)}
# at each cost; and seconds for all of them
BARS = {
    ("cfl", "K=2"): (0.001, 0.0003, 0.0003),
    ("cfl", "K=3"): (0.0025, 0.001, 0.001),
    ("gp", "K=2"): (0.0015, 0.0003, 0.0003),
    ("gp", "K=3"): (0.004, 0.001, 0.001),
}
SECONDS = {("cfl", "K=2"): 8, ("cfl", "K=3"): 180, ("gp", "K=2"): 15, ("gp", "K=3"): 300}
DECIDED, DECIDE_SECONDS = 80_000, 1.5


def main() -> None:
    tiny = firmbound.datasets.gaussian(2, 500, 3).evidence
    results: dict[str, Any] = {}
    for method in ("cfl", "gp"):
        firmbound.fit_stopping_rule(tiny, costs=COSTS, method=method)  # imports
        results[method] = {name: measure(method, name, *case) for name, case in CASES.items()}
    record("excess_risk", results)


def measure(method: Method, name: str, classes: int, sequences: int) -> dict[str, Any]:
    train = firmbound.datasets.gaussian(classes=classes, sequences=sequences, seed=1)
    evidence = train.evidence
    wall, cpu = time.perf_counter(), time.process_time()
    rule = firmbound.fit_stopping_rule(evidence, costs=COSTS, method=method)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"{method}, {name}: {sequences:,} sequences, {len(COSTS)} costs fitted in {wall:.1f} s ({cpu:.1f} CPU s)")
    fresh = firmbound.datasets.gaussian(classes=classes, sequences=FRESH, seed=2)
    oracle = firmbound.solve_gaussian(fresh, costs=COSTS)
    rows = []
    for index, cost in enumerate(COSTS):
        some = fresh.evidence[:DECIDED]
        started = time.perf_counter()
        rule.decide(some, cost=cost)
        decide = time.perf_counter() - started
        chosen, best = rule.decide(fresh.evidence, cost=cost), oracle.decide(fresh.evidence, cost=cost)
        risks = [believed_risk(d, fresh.evidence, rule.prior, rule.problem, cost) for d in (chosen, best)]
        excess, regret = relative_excess(*risks), mean_of(oracle.regret(fresh.evidence, chosen, cost=cost))
        bayes = oracle.bayes_risk[index]

        def on_train(decisions: Decisions, cost: float = cost) -> float:
            return float(believed_risk(decisions, evidence, rule.prior, rule.problem, cost).mean())

        fixed = tune_threshold(evidence, on_train, 80).decide(fresh.evidence)
        static = oracle.regret(fresh.evidence, fixed, cost=cost).mean() / bayes
        rows.append(
            {
                "cost": cost,
                "bayes_risk": float(bayes),
                "regret": regret.value / bayes,
                "regret_error": regret.standard_error / bayes,
                "excess": excess.value,
                "excess_error": excess.standard_error,
                "static_regret": float(static),
                "bar": BARS[method, name][index],
                "met": bool(regret.value / bayes <= BARS[method, name][index]),
                "decide_seconds": decide,
            }
        )
        print(
            f"  cost {cost:<5g} regret {100 * rows[-1]['regret']:.4f} % ± {100 * rows[-1]['regret_error']:.4f}, "
            f"paired excess {100 * excess.value:+.3f} % ± {100 * excess.standard_error:.3f}, "
            f"best static {100 * static:.4f} %; "
            f"bar {100 * BARS[method, name][index]:g} % {'met' if rows[-1]['met'] else 'MISSED'}; "
            f"{DECIDED:,} decided in {decide:.2f} s (bar {DECIDE_SECONDS} s)"
        )
    times = {"fit_seconds": wall, "fit_cpu_seconds": cpu, "bar_seconds": SECONDS[method, name]}
    times["met"] = wall <= SECONDS[method, name]
    return {"sequences": sequences, **times, "costs": rows}


if __name__ == "__main__":
    main()
