"""How little data will do: the paper's three-class Gaussian problem with 60,000, 6,000 and 600 training sequences.

The same 60,000 test sequences for all; five draws of the training sequences. `regret` as in excess_risk; AAPR, error
and mean time as in the paper's figure. Options are the same at every size.
"""

from __future__ import annotations

import time
from typing import Any, Literal

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

import firmbound
from benchmarks.record import RESULTS, record
from firmbound.evaluation.risk import believed_risk

COSTS = [0.02, 0.2, 0.4]
SIZES = (60_000, 6_000, 600)
METHODS: tuple[Literal["cfl", "gp"], ...] = ("cfl", "gp")
DRAWS, FRESH = 5, 60_000


def main() -> None:
    fresh = firmbound.datasets.gaussian(3, FRESH, seed=2)
    oracle = firmbound.solve_gaussian(fresh, costs=COSTS)
    results: dict[str, Any] = {}
    for size in SIZES:
        for method in METHODS:
            # The largest takes half a minute a fit, and differs least from draw to draw.
            draws = range(1 if size == SIZES[0] else DRAWS)
            rows = [measure(oracle, fresh, size, method, draw) for draw in draws]
            results[f"{method}, {size}"] = summed(rows)
            said = [f"{100 * row['regret']:.3f} %" for row in results[f"{method}, {size}"]["costs"]]
            print(method, size, said, flush=True)
    draw_figure(results)
    record("small_data", results)


def measure(oracle: Any, fresh: Any, size: int, method: Literal["cfl", "gp"], draw: int) -> dict[str, Any]:
    train = firmbound.datasets.gaussian(3, size, seed=100 + draw)
    started = time.process_time()
    rule = firmbound.fit_stopping_rule(train.evidence, costs=COSTS, method=method)
    spent = time.process_time() - started
    rows = []
    for index, cost in enumerate(COSTS):
        chosen = rule.decide(fresh.evidence, cost=cost)
        aapr = believed_risk(chosen, fresh.evidence, rule.prior, rule.problem, cost).mean()
        rows.append(
            {
                "regret": float(oracle.regret(fresh.evidence, chosen, cost=cost).mean() / oracle.bayes_risk[index]),
                "aapr": float(aapr),
                "error": float(np.mean(chosen.label != fresh.labels)),
                "mean_time": float(chosen.time.mean()),
            }
        )
    return {"costs": rows, "cpu_seconds": spent}


def summed(draws: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over the draws, and the standard deviation of the regret."""
    rows = []
    for index, cost in enumerate(COSTS):
        own = [draw["costs"][index] for draw in draws]
        means = {name: float(np.mean([row[name] for row in own])) for name in own[0]}
        rows.append({"cost": cost, **means, "regret_deviation": float(np.std([row["regret"] for row in own]))})
    return {"draws": len(draws), "cpu_seconds": float(np.mean([draw["cpu_seconds"] for draw in draws])), "costs": rows}


def draw_figure(results: dict[str, Any]) -> None:
    mpl.use("Agg")
    figure, panels = plt.subplots(1, len(COSTS), figsize=(10, 3.2), layout="constrained", sharey=True)
    for index, (axis, cost) in enumerate(zip(panels, COSTS, strict=True)):
        for method in METHODS:
            own = [results[f"{method}, {size}"]["costs"][index] for size in SIZES]
            heights, spread = ([100 * row[name] for row in own] for name in ("regret", "regret_deviation"))
            axis.errorbar(SIZES, heights, spread, marker="o", capsize=3, label=method)
        axis.set(xscale="log", yscale="log", title=f"cost {cost:g}", xlabel="training sequences")
        axis.grid(alpha=0.3)
    panels[0].set_ylabel("risk above the exact optimum, %")
    panels[0].legend(frameon=False)
    figure.savefig(RESULTS / "small_data.svg")


if __name__ == "__main__":
    main()
