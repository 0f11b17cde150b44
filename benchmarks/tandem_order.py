"""A problem that is not i.i.d.: two autoregressive classes, learned by networks of order 0, 1 and 2.

The risk of the decisions made from learned evidence, counted with exact evidence, against that of the rule fitted on
exact evidence, on the same 20,000 fresh sequences. Order 0 sees single observations, which differ in spread alone.
"""

from __future__ import annotations

import time
from typing import Any

import firmbound
from benchmarks.learned import COSTS, rule_on, slope_and_correlation, train, true_risk
from benchmarks.record import record
from firmbound.evaluation.calibration import calibration
from firmbound.evaluation.estimates import relative_excess

BAR = 0.05
RATES = {"lstm": 1e-2, "transformer": 3e-3}


def main() -> None:
    problem, valid, fresh = (
        firmbound.datasets.autoregressive((0.1, 0.6), sequences, seed=seed)
        for sequences, seed in ((20_000, 1), (2_000, 5), (20_000, 2))
    )
    rule = rule_on(problem.evidence, problem.prior)
    reference = {
        cost: true_risk(rule, rule.decide(fresh.evidence, cost=cost), fresh.evidence, cost).mean() for cost in COSTS
    }
    results: dict[str, Any] = {"risk of the rule on exact evidence": reference}
    for integrator in ("lstm", "transformer"):
        for order in (0, 1, 2):
            network = firmbound.NetworkOptions(
                integrator=integrator, order=order, projection=32, hidden=32, activation="b2bsqrt"
            )
            results[f"{integrator}, order {order}"] = measure(problem, valid, fresh, rule, network)
    record("tandem_order", results)


def measure(
    problem: Any, valid: Any, fresh: Any, rule: firmbound.StoppingRule, network: firmbound.NetworkOptions
) -> dict[str, Any]:
    cpu = time.process_time()
    training = firmbound.TrainingOptions(epochs=20, learning_rate=RATES[network.integrator])
    model = train(problem, valid, network, training)
    shown: dict[str, Any] = {"cpu_seconds": time.process_time() - cpu, "temperatures": model.temperatures.tolist()}
    own, learned = rule_on(model.evidence(problem.features), model.prior), model.evidence(fresh.features)
    rows = []
    for cost in COSTS:
        ours = true_risk(rule, own.decide(learned, cost=cost), fresh.evidence, cost)
        excess = relative_excess(ours, true_risk(rule, rule.decide(fresh.evidence, cost=cost), fresh.evidence, cost))
        rows.append({"cost": cost, "risk": ours.mean(), "excess": excess.value, "excess_error": excess.standard_error})
    shown["slope"], shown["correlation"] = slope_and_correlation(learned, fresh.evidence)
    shown["largest_calibration_error"] = float(calibration(learned, fresh.labels, model.prior).error.max())
    shown |= {"costs": rows, "bar": BAR, "met": all(row["excess"] <= BAR for row in rows)}
    print(f"{network.integrator}, order {network.order}: {shown}", flush=True)
    return shown


if __name__ == "__main__":
    main()
