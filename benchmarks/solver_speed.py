"""One time step with 1,000 points: the solvers beside the paper's ADMM, run as the paper runs it (3n iterations).

Points are posteriors of random sequences, targets the minimum risk one step later under a fitted rule: the problem that
backward induction meets. One thread for all. Objectives are those of the convex functions that come back: an iterate of
the ADMM breaks constraints, and the maximum of its pieces, which does not, is what is scored. Violations are those of
the iterates before that.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

import firmbound
from benchmarks.record import record
from firmbound.arrays import Floats
from firmbound.continuation.admm import AdmmOptions, fit_admm
from firmbound.continuation.convex_objective import ConvexFit
from firmbound.continuation.interior_point import fit_interior_point
from firmbound.continuation.solvers import Line
from firmbound.errors import NotConvergedWarning
from firmbound.posterior import posterior

POINTS, STEP, COST = 1_000, 25, 0.02
REGULARISATIONS = (1e-2, 1e-3)
BARS = {2: (1_000, 1e-6), 3: (30, 1e-4), 10: (10, 1e-4)}


def main() -> None:
    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)  # the ADMM's, whose residuals are recorded
        for classes, (bar, violation) in BARS.items():
            points, targets = step_problem(classes)
            for regularisation in REGULARISATIONS:
                name = f"K={classes}, regularisation {regularisation:g}"
                results[name] = row = compare(points, targets, regularisation)
                better = row["fast_objective"] <= row["paper_objective"] and row["fast_violation"] <= violation
                row |= {"bar": bar, "met": bool(row["ratio"] >= bar and better)}
                print(
                    f"{name}: {row['ratio']:,.0f}x (bar {bar:,}x {'met' if row['met'] else 'MISSED'}), "
                    f"{1e3 * row['fast_cpu_seconds']:.1f} ms against {row['paper_cpu_seconds']:.1f} s; objective "
                    f"{row['fast_objective']:.6g} (gap {row['fast_gap']:.1e}) against {row['paper_objective']:.6g}"
                )
    record("solver_speed", results)


def step_problem(classes: int) -> tuple[Floats, Floats]:
    problem = firmbound.datasets.gaussian(classes=classes, sequences=6_000, seed=1)
    evidence = problem.evidence
    options = firmbound.ConvexOptions(points=100 if classes > 2 else None)
    rule = firmbound.fit_stopping_rule(evidence, costs=[COST], options=options)
    chosen = np.random.default_rng(0).choice(len(evidence), POINTS, replace=False)
    later = rule.outlook(evidence[chosen, STEP], t=STEP + 1)
    points = posterior(evidence[chosen, STEP - 1], rule.prior)
    minimum = np.minimum(later.stopping_risk, later.continuation_risk) / rule.problem.scale
    order = np.argsort(points[:, 0])
    return points[order], -minimum[order]


def compare(points: Floats, targets: Floats, regularisation: float) -> dict[str, Any]:
    weights, classes = np.ones(len(points)), points.shape[1]
    options = AdmmOptions.paper(len(points), classes, regularisation)

    def paper() -> ConvexFit:
        return fit_admm(points, targets[:, None], weights, regularisation, options)[0]

    def fast() -> ConvexFit:
        if classes == 2:
            return Line(points)(targets[:, None], weights, regularisation)[0]
        return fit_interior_point(points, targets, weights, regularisation, tolerance=1e-4, gap=1e-3)[0]

    fast()  # once for the caches
    slow_fit, slow_wall, slow_cpu = timed(paper)
    runs = sorted((timed(fast) for _ in range(5)), key=lambda run: run[2])
    fit, wall, cpu = runs[len(runs) // 2]
    return {
        "ratio": slow_cpu / cpu,
        "ratio_of_wall_times": slow_wall / wall,
        "fast_seconds": wall,
        "fast_cpu_seconds": cpu,
        "fast_objective": fit.objective,
        "fast_gap": fit.gap,
        "fast_violation": fit.violation,
        "paper_seconds": slow_wall,
        "paper_cpu_seconds": slow_cpu,
        "paper_objective": slow_fit.objective,
        "paper_gap": slow_fit.gap,
        "paper_violation": slow_fit.violation,
    }


def timed(work: Callable[[], ConvexFit]) -> tuple[ConvexFit, float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    fit = work()
    return fit, time.perf_counter() - wall, time.process_time() - cpu


if __name__ == "__main__":
    main()
