"""Refined evidence: what it saves where evidence is not sufficient, and what it costs where it is.

`python -m benchmarks.refinement [oscillating gaussian autoregressive latency]`. Recorded data: benchmarks.real_data.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import firmbound
from benchmarks.learned import COSTS, train, true_risk
from benchmarks.record import RESULTS, record
from firmbound.baselines.static_threshold import sweep, threshold_grid
from firmbound.evaluation.estimates import mean_of
from firmbound.evaluation.risk import believed_risk, realised_risk
from firmbound.refinement.choice import Contestant, compare
from firmbound.refinement.sureness import temperature_at_decisions

BARS: dict[str, Any] = {
    "oscillating": {0.02: 1.50, 0.06: 3.2},
    "gaussian": 0.02,
    "autoregressive": 0.30,
    "fit": 3.0,
    "push_ms": 1.5,
}
REPEATS = 3


def main() -> None:
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "oscillating": oscillating,
        "gaussian": gaussian,
        "autoregressive": autoregressive,
        "latency": latency,
    }
    file = RESULTS / "refinement.json"
    results = json.loads(file.read_text())["results"] if file.exists() else {}
    for name in sys.argv[1:] or parts:
        results[name] = parts[name]()
        print(name, json.dumps(results[name], indent=1), flush=True)
        record("refinement", results)


def oscillating() -> dict[str, Any]:
    """The paper's own data: realised risk on 80,000 fresh sequences, and seconds of fitting, in turns."""
    bars = BARS["oscillating"]
    seen, fresh = firmbound.datasets.oscillating(20_000, seed=3), firmbound.datasets.oscillating(80_000, seed=77)
    given, labels, new, truth = seen.evidence, seen.labels, fresh.evidence, fresh.labels
    costs = list(bars)
    seconds: dict[str, list[tuple[float, float]]] = {
        "rule": [],
        "refiner": [],
        "rule on refined": [],
        "temperature": [],
    }
    for _ in range(REPEATS):
        plain = _timed(seconds["rule"], partial(_rule, given, costs))
        refiner, honest = _timed(seconds["refiner"], partial(firmbound.fit_refiner, given, labels))
        rule = _timed(seconds["rule on refined"], partial(_rule, honest, costs))
    everyone = np.full(len(labels), given.shape[1])
    temperature = _timed(seconds["temperature"], partial(temperature_at_decisions, rule, honest, labels, everyone))
    refiner, honest = refiner.cooled(temperature), honest / np.float32(temperature)
    rule, refined = _rule(honest, costs), refiner.refine(new)
    kept = {
        f"{method} on {name}": firmbound.fit_stopping_rule(seen_by, costs=costs, method=method, statistic="memory")
        for method in ("cfl", "gp")
        for name, seen_by in (("given", given), ("refined", honest))
    }
    grid = threshold_grid(given, 200)
    swept = sweep(new, grid)
    rows = []
    for cost in costs:
        before, after = plain.decide(new, cost=cost), rule.decide(refined, cost=cost)
        paid = [mean_of(realised_risk(one, truth, rule.problem, cost)) for one in (before, after)]
        static = [float(realised_risk(one, truth, rule.problem, cost).mean()) for one in swept]
        believed = float(believed_risk(after, refined, rule.prior, rule.problem, cost).mean())
        error, matched = float((after.label != truth).mean()), _error_at(swept, truth, float(after.time.mean()))
        rows.append(
            {
                "cost": cost,
                "without": paid[0].value,
                "with": paid[1].value,
                "with_error": paid[1].standard_error,
                "with_believed": believed,
                "bar": bars[cost],
                "with_memory": {
                    name: float(
                        realised_risk(
                            one.decide(refined if "refined" in name else new, cost=cost), truth, rule.problem, cost
                        ).mean()
                    )
                    for name, one in kept.items()
                },
                "best_static_in_hindsight": min(static),
                "mean_time": float(after.time.mean()),
                "error": error,
                "static_error_at_this_time": matched,
                "met": paid[1].value <= bars[cost] and (cost != costs[0] or error <= matched / 2),
            }
        )
    wall, cpu = (
        {name: statistics.median(each[i] for each in found) for name, found in seconds.items()} for i in (0, 1)
    )
    shares = {
        name: (taken["refiner"] + taken["rule on refined"]) / taken["rule"]
        for name, taken in (("wall", wall), ("cpu", cpu))
    }
    return {
        "ridge": refiner.ridge,
        "temperature": temperature,
        "costs": rows,
        "seconds": wall,
        "cpu_seconds": cpu,
        "fitting_over_rule": shares,
        "bar": BARS["fit"],
        "fit_met": shares["wall"] <= BARS["fit"],
    }


def gaussian() -> dict[str, Any]:
    """Exact evidence, which cannot be refined: what `auto` chooses, and how far its rule is from the optimum."""
    found = {}
    for classes, method in ((2, "cfl"), (3, "gp")):
        seen = firmbound.datasets.gaussian(classes, 20_000, seed=1)
        fresh = firmbound.datasets.gaussian(classes, 40_000, seed=9)
        refiner, honest = firmbound.fit_refiner(seen.evidence, seen.labels)
        plain, rule = (_rule(e, COSTS, method) for e in (seen.evidence, honest))
        everyone = np.full(len(seen.labels), seen.horizon)
        choice = compare(Contestant(plain, seen.evidence), Contestant(rule, honest), seen.labels, everyone)
        oracle = firmbound.solve_gaussian(seen, costs=COSTS, penalty=10.0)
        refined = refiner.refine(fresh.evidence)
        rows = []
        for place, cost in enumerate(COSTS):
            bayes = float(oracle.bayes_risk[place])
            without, always = (
                float(oracle.regret(fresh.evidence, one.decide(e, cost=cost), cost=cost).mean()) / bayes
                for one, e in ((plain, fresh.evidence), (rule, refined))
            )
            auto = always if choice.refined else without
            points = {"without": 100 * without, "always": 100 * always, "auto": 100 * auto}
            rows.append({"cost": cost, **points, "met": auto - without <= BARS["gaussian"] / 100})
        found[f"gauss{classes}"] = {"choice": choice.as_dict(), "ridge": refiner.ridge, "regret_percent": rows}
    return found


def autoregressive() -> dict[str, Any]:
    """A network of order 0 where order 1 is needed; refinement hears features. Risks are exact evidence's."""
    seen, held_out, fresh = (
        firmbound.datasets.autoregressive((0.1, 0.6), count, seed=seed)
        for count, seed in ((20_000, 1), (2_000, 5), (20_000, 2))
    )
    network = firmbound.NetworkOptions(order=0, projection=32, hidden=32, activation="b2bsqrt")
    model = train(seen, held_out, network, firmbound.TrainingOptions(epochs=10, learning_rate=1e-2))
    given, new = model.evidence(seen.features), model.evidence(fresh.features)
    exact = _rule(seen.evidence, COSTS)
    found: dict[str, Any] = {}
    for inputs in ("evidence", "features"):
        heard = {"features": seen.features} if inputs == "features" else {}
        refiner, honest = firmbound.fit_refiner(
            given, seen.labels, options=firmbound.RefinementOptions(inputs=inputs), **heard
        )
        plain, rule = _rule(given, COSTS), _rule(honest, COSTS)
        refined = refiner.refine(new, fresh.features if inputs == "features" else None)
        rows = []
        for cost in COSTS:
            least, before, after = (
                float(true_risk(exact, one.decide(e, cost=cost), fresh.evidence, cost).mean())
                for one, e in ((exact, fresh.evidence), (plain, new), (rule, refined))
            )
            closed = (before - after) / (before - least)
            rows.append({"cost": cost, "exact": least, "order 0": before, "refined": after, "closed": closed})
        found[inputs] = {"ridge": refiner.ridge, "costs": rows}
    found["met"] = all(row["closed"] >= BARS["autoregressive"] for row in found["features"]["costs"])
    return found


def latency() -> dict[str, Any]:
    """One observation pushed through a network (LSTM of 64), the refinement and the rule."""
    problem = firmbound.datasets.gaussian(2, 2_000, 20, seed=1, dimension=16)
    found: dict[str, Any] = {"bar_ms": BARS["push_ms"]}
    for inputs in ("evidence", "features"):
        classifier = firmbound.EarlyClassifier(
            0.2,
            evidence="network",
            network=firmbound.NetworkOptions(order=5, hidden=64, projection=64),
            training=firmbound.TrainingOptions(epochs=1),
            refine="always",
            refinement=firmbound.RefinementOptions(inputs=inputs),
        ).fit(problem.features, problem.labels)
        taken = []
        for series in problem.features[:300]:
            stream = classifier.stream()
            for observation in series:
                started = time.perf_counter()
                step = stream.push(observation)
                taken.append(time.perf_counter() - started)
                if step.decided:
                    break
        found[inputs] = {
            "median_ms": 1e3 * statistics.median(taken),
            "p99_ms": 1e3 * float(np.quantile(taken, 0.99)),
            "state_bytes": len(stream.state()),
        }
    found["met"] = max(found[inputs]["median_ms"] for inputs in ("evidence", "features")) <= BARS["push_ms"]
    return found


def _rule(evidence: NDArray[Any], costs: list[float], method: Any = "cfl") -> firmbound.StoppingRule:
    return firmbound.fit_stopping_rule(evidence, costs=costs, penalty=10.0, method=method)


def _timed(kept: list[tuple[float, float]], work: Callable[[], Any]) -> Any:
    wall, cpu = time.perf_counter(), time.process_time()
    found = work()
    kept.append((time.perf_counter() - wall, time.process_time() - cpu))
    return found


def _error_at(swept: list[Any], truth: NDArray[Any], mean_time: float) -> float:
    """Share of errors of thresholds at a mean time, linear between neighbouring ones."""
    points = sorted((float(one.time.mean()), float((one.label != truth).mean())) for one in swept)
    times, errors = np.array(points).T
    return float(np.interp(mean_time, times, errors))


if __name__ == "__main__":
    main()
