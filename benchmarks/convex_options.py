"""What the number of points, the compression and the regularisation do to the risk above the exact optimum.

Two classes, 80,000 sequences, and three classes, 60,000, at costs of 0.1, 1 and 2 penalty/T. `regret` as in
excess_risk. Then the regularisation by cross-validation at one time step: the path beside Optuna's TPE, as the paper
tunes.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import optuna

import firmbound
from benchmarks.record import RESULTS, record
from firmbound.continuation.convex import ConvexFitter
from firmbound.continuation.cross_validation import choose_regularisation, held_out_error
from firmbound.errors import NotConvergedWarning
from firmbound.posterior import posterior

COSTS = [0.02, 0.2, 0.4]
FRESH = 200_000
SEQUENCES = {2: 80_000, 3: 60_000}
POINTS = {2: [30, 100, 300, 1_000, 3_000], 3: [25, 50, 100, 200, 400, 800]}
REGULARISATIONS = [1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3]


def main() -> None:
    warnings.simplefilter("ignore", NotConvergedWarning)
    results: dict[str, Any] = {}
    for classes, sequences in SEQUENCES.items():
        evidence = firmbound.datasets.gaussian(classes, sequences, seed=1).evidence
        fresh = firmbound.datasets.gaussian(classes, FRESH, seed=2)
        oracle = firmbound.solve_gaussian(fresh, costs=COSTS)
        tried: list[dict[str, Any]] = [{"points": points} for points in POINTS[classes]]
        usual = {2: 1_000, 3: 200}[classes]
        tried += [{"points": usual, "compression": "subsample"}]
        tried += [{"points": usual, "regularisation": value} for value in REGULARISATIONS]
        if classes == 2:
            tried += [{"points": 5_000, "compression": "subsample"}, {"points": 300, "regularisation": "cv"}]
        rows = []
        for options in tried:
            started = time.process_time()
            rule = firmbound.fit_stopping_rule(evidence, costs=COSTS, options=firmbound.ConvexOptions(**options))
            spent = time.process_time() - started
            losses = [oracle.regret(fresh.evidence, rule.decide(fresh.evidence, cost=c), cost=c).mean() for c in COSTS]
            regret = [float(loss / bayes) for loss, bayes in zip(losses, oracle.bayes_risk, strict=True)]
            rows.append({"options": options, "regret": regret, "fit_cpu_seconds": spent})
            print(f"K={classes} {options}: {[f'{100 * r:.3f} %' for r in regret]} in {spent:.1f} CPU s", flush=True)
        results[f"K={classes}"] = rows
    results["one step, K=2, tuned"] = tuning()
    draw(results)
    record("convex_options", results)


def tuning() -> dict[str, Any]:
    """The same folds for both searches; errors are shares of the variance of the held-out means."""
    evidence = firmbound.datasets.gaussian(2, 20_000, seed=1).evidence
    rule = firmbound.fit_stopping_rule(evidence, costs=COSTS[:1])
    later = rule.outlook(evidence[:, 25], t=26)
    risk = np.minimum(later.stopping_risk, later.continuation_risk)[:, None] / rule.problem.scale
    prepared = ConvexFitter(np.zeros(2)).prepare(posterior(evidence[:, 24], rule.prior))
    folds = prepared.anchored.folds(risk, seed=0)
    started = time.process_time()
    path = choose_regularisation(prepared.solver, folds)
    assert path is not None
    path_seconds = time.process_time() - started
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0))

    def error(trial: optuna.Trial) -> float:
        value = trial.suggest_float("regularisation", 1e-3, 1e1, log=True)  # the paper's range
        return sum(held_out_error(prepared.solver, fold, value) for fold in folds) / len(folds)

    started = time.process_time()
    study.optimize(error, n_trials=30)
    shown = {
        "path": {"value": path.regularisation, "error": float(path.tried[:, 1].min()), "values_tried": len(path.tried)},
        "tpe": {"value": study.best_params["regularisation"], "error": study.best_value, "values_tried": 30},
    }
    shown["path"]["cpu_seconds"], shown["tpe"]["cpu_seconds"] = path_seconds, time.process_time() - started
    print(shown)
    return shown


def draw(results: dict[str, Any]) -> None:
    mpl.use("Agg")
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained", sharey=True)
    for axis, name in zip(axes, ("points", "regularisation"), strict=True):
        for classes, colour in ((2, "tab:blue"), (3, "tab:orange")):
            rows = [r for r in results[f"K={classes}"] if "compression" not in r["options"]]
            wanted = [r for r in rows if (name in r["options"]) and (name != "points" or len(r["options"]) == 1)]
            wanted = [r for r in wanted if r["options"][name] != "cv"]
            x = [r["options"][name] for r in wanted]
            for index, style in enumerate(("-", "--", ":")):
                label = f"{classes} classes, cost {COSTS[index]:g}"
                axis.loglog(
                    x, [100 * r["regret"][index] for r in wanted], style, color=colour, marker="o", ms=3, label=label
                )
        axis.set(xlabel=name + (" a time step" if name == "points" else ""))
        axis.grid(alpha=0.3)
    axes[0].set(ylabel="risk above the exact optimum, %")
    axes[0].legend(fontsize=7)
    figure.savefig(RESULTS / "convex_options.svg")


if __name__ == "__main__":
    main()
