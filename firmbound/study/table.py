"""The study's one table: a row for every way to decide, of every method, repeat, data set and cost."""

from __future__ import annotations

from typing import Any

import numpy as np

from firmbound.arrays import Floats, Ints
from firmbound.costs import DecisionProblem
from firmbound.evaluation.estimates import mean_of
from firmbound.evaluation.hitting_time import mean_time, time_variance
from firmbound.evaluation.speed_accuracy import accuracy, earliness, harmonic_mean, macro_error
from firmbound.study.contest import Outcome, chosen_ways

Row = dict[str, Any]


def rows_of(outcome: Outcome, labels: Ints, problem: DecisionProblem, **named: Any) -> list[Row]:
    """Of one method in one repeat. `chosen`: which way of it paid least on validation sequences at a cost.

    average_cost is the realised risk in units of the largest penalty, so that data sets compare.
    """
    costs = problem.costs.tolist()
    best = chosen_ways(outcome, costs)
    waits = latencies(outcome)
    rows = []
    for place, setting in enumerate(outcome.settings.tolist()):
        made = outcome.decisions(place)
        time, variance = mean_time(made), time_variance(made)
        error = macro_error(made, labels, problem.classes)
        same = {
            "setting": setting,
            "mean_time": time.value,
            "mean_time_error": time.standard_error,
            "time_variance": variance.value,
            "time_variance_error": variance.standard_error,
            "error_rate": error.value,
            "error_rate_error": error.standard_error,
            "accuracy": accuracy(made, labels),
            "earliness": earliness(made),
            "harmonic_mean": harmonic_mean(made, labels),
            "training_seconds": outcome.seconds,
            **waits,
        }
        for index, cost in enumerate(costs):
            risks = risks_of(outcome, place, labels, problem, cost)
            own = {"cost": cost, "chosen": best[index] == place, **risks}
            rows.append({**named, **same, **own, "average_cost": risks["realised_risk"] / problem.scale})
    return rows


def latencies(outcome: Outcome) -> dict[str, float]:
    """Milliseconds for a whole sequence, and for each of its observations, of sequences decided one at a time."""
    found: dict[str, float] = {}
    for name, taken in (("sequence", outcome.alone), ("step", outcome.alone / outcome.steps)):
        found |= {f"{name}_ms_p{share}": 1e3 * float(np.percentile(taken, share)) for share in (50, 99)}
    return found


def risks_of(outcome: Outcome, place: int, labels: Ints, problem: DecisionProblem, cost: float) -> dict[str, float]:
    """What was paid and what was believed, with standard errors; nan where a method believes nothing."""
    realised = mean_of(paid(outcome, place, labels, problem, cost))
    believed = mean_of(outcome.expected[place].astype(np.float64) + problem.spent(outcome.time[place], cost))
    return {
        "realised_risk": realised.value,
        "realised_risk_error": realised.standard_error,
        "aapr": believed.value,
        "aapr_error": believed.standard_error,
    }


def paid(outcome: Outcome, place: int, labels: Ints, problem: DecisionProblem, cost: float) -> Floats:
    """(n,) what every decision of one way cost."""
    penalties = problem.penalty[labels, outcome.label[place]]
    return np.asarray(penalties + problem.spent(outcome.time[place], cost), dtype=np.float64)
