"""What kernel, inducing points and statistic do to a Gaussian process: the paper's sensitivity study.

Whole backward inductions at costs of 0.1, 1 and 2 penalty/T (1,000 inducing points at the paper's, 1 penalty/T, alone).
`regret` as in excess_risk, `aapr` the mean believed risk with the exact optimum's beside it, error and mean time as in
the paper's curves. The collapsed solver runs at the paper's sizes, with what we model beside it switched off one by
one. The paper's own settings take three hundred times longer: whole inductions at 20,000 sequences and one cost for
either statistic, and one step, t = 48, for all settings.
"""

from __future__ import annotations

import time
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

import firmbound
from benchmarks.process_speed import Step
from benchmarks.record import RESULTS, record
from firmbound.continuation.gaussian_process import ProcessOptions
from firmbound.evaluation.risk import believed_risk

COSTS = [0.02, 0.2, 0.4]
FRESH = 200_000
STATISTICS = ("llr", "posterior")
# The paper varies the inducing points of the RBF kernel, and the kernel at 200.
SETTINGS: list[dict[str, Any]] = [
    {"inducing": 50},
    {"inducing": 200},
    {"inducing": 200, "kernel": "matern-1.5"},
    {"inducing": 200, "kernel": "matern-2.5"},
    {"inducing": 1_000},
]
PAPER: dict[str, Any] = {"solver": "variational", "temperature": None, "scaling": "risk", "inducing": 200}


def main() -> None:
    fresh = firmbound.datasets.gaussian(2, FRESH, seed=2)
    results = {
        "collapsed": collapsed(fresh),
        "collapsed, K=3": collapsed_three(),
        "variational, one step": one_step(),
        "variational": variational(fresh),
    }
    draw(results)
    record("process_options", results)


def collapsed(fresh: firmbound.datasets.GaussianProblem) -> list[dict[str, Any]]:
    tried = [change | {"statistic": statistic} for statistic in STATISTICS for change in SETTINGS]
    tried += [{}, {"kernel": "matern-1.5"}, {"kernel": "matern-2.5"}, {"noise": "uniform"}, {"scaling": "risk"}]
    tried += [{"temperature": value} for value in (1.0, 2.0, 4.0, 6.0, None)]
    tried += [{"points": 150, "inducing": 25}, {"points": 1_000}]
    train = firmbound.datasets.gaussian(2, 80_000, seed=1)
    many = {"points": 1_200}  # not more cells than are needed to place 1,000 inducing points
    return [
        measure(train, fresh, options | many, COSTS[1:2])
        if options.get("inducing") == 1_000
        else measure(train, fresh, options, COSTS)
        for options in tried
    ]


def collapsed_three() -> list[dict[str, Any]]:
    train, fresh = firmbound.datasets.gaussian(3, 60_000, seed=1), firmbound.datasets.gaussian(3, FRESH, seed=2)
    tried: list[dict[str, Any]] = [{}, {"inducing": 50, "points": 500}, {"inducing": 200}, {"points": 2_000}]
    tried += [{"temperature": 2.0}, {"temperature": 4.0}, {"kernel": "matern-2.5"}, {"statistic": "posterior"}]
    tried += [{"noise": "uniform"}, {"scaling": "risk"}]
    return [measure(train, fresh, options, COSTS) for options in tried]


def variational(fresh: firmbound.datasets.GaussianProblem) -> list[dict[str, Any]]:
    train = firmbound.datasets.gaussian(2, 20_000, seed=1)
    return [measure(train, fresh, PAPER | {"statistic": statistic}, COSTS[1:2]) for statistic in STATISTICS]


def one_step() -> list[dict[str, Any]]:
    train, fresh = (firmbound.datasets.gaussian(2, 20_000, seed=seed) for seed in (1, 2))
    oracle = firmbound.solve_gaussian(train, costs=COSTS[1:2])
    step = Step(oracle, train.evidence, fresh.evidence, 48)
    tried = [PAPER | change for change in SETTINGS] + [PAPER | {"statistic": "posterior"}]
    return [{"options": options, **step.measure(ProcessOptions(**options), 0)} for options in tried]


def measure(
    train: firmbound.datasets.GaussianProblem,
    fresh: firmbound.datasets.GaussianProblem,
    options: dict[str, Any],
    costs: list[float],
) -> dict[str, Any]:
    started = time.process_time()
    rule = firmbound.fit_stopping_rule(train.evidence, costs=costs, method="gp", options=ProcessOptions(**options))
    spent = time.process_time() - started
    oracle = firmbound.solve_gaussian(fresh, costs=costs)
    rows = []
    for index, cost in enumerate(costs):
        chosen, best = rule.decide(fresh.evidence, cost=cost), oracle.decide(fresh.evidence, cost=cost)
        aapr = [believed_risk(d, fresh.evidence, rule.prior, rule.problem, cost).mean() for d in (chosen, best)]
        rows.append(
            {
                "cost": cost,
                "regret": float(oracle.regret(fresh.evidence, chosen, cost=cost).mean() / oracle.bayes_risk[index]),
                "aapr": float(aapr[0]),
                "optimal_aapr": float(aapr[1]),
                "error": float(np.mean(chosen.label != fresh.labels)),
                "mean_time": float(chosen.time.mean()),
            }
        )
    regrets = ", ".join(f"{100 * row['regret']:.4f} %" for row in rows)
    print(f"{options}: {regrets} in {spent:.1f} CPU s", flush=True)
    return {"options": options, "sequences": len(train.labels), "fit_cpu_seconds": spent, "costs": rows}


def draw(results: dict[str, Any]) -> None:
    """Risk above the optimum for each setting, at the cost that the paper shows."""
    mpl.use("Agg")
    rows = [row for row in results["collapsed"] if {"inducing", "statistic"} <= row["options"].keys()]
    bars = [(f"{words(row['options'])}", row, "tab:blue") for row in rows]
    bars += [(f"paper's training, {words(row['options'])}", row, "tab:orange") for row in results["variational"]]
    shown = [next(c["regret"] for c in row["costs"] if c["cost"] == COSTS[1]) for _, row, _ in bars]
    figure, axis = plt.subplots(figsize=(8, 3.8), layout="constrained")
    axis.barh([name for name, _, _ in bars], [100 * value for value in shown], color=[colour for _, _, colour in bars])
    axis.set(xscale="log", title=f"two classes, cost {COSTS[1]:g}", xlabel="risk above the exact optimum, %")
    axis.grid(alpha=0.3, axis="x")
    axis.invert_yaxis()
    figure.savefig(RESULTS / "process_options.svg")


def words(options: dict[str, Any]) -> str:
    return f"{options['inducing']:,} inducing points, {options.get('kernel', 'rbf')}, {options['statistic']}"


if __name__ == "__main__":
    main()
