"""What a study says: who pays less, whose time varies less, and first of all where a rival is better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from firmbound.arrays import Floats, Ints
from firmbound.costs import DecisionProblem
from firmbound.evaluation.estimates import mean_of
from firmbound.evaluation.hitting_time import time_variance
from firmbound.evaluation.matching import Curve, error_curve, points_below, variance_at
from firmbound.evaluation.paired_tests import Ranking, holm, paired_chance, rank_methods, signed_rank_chance
from firmbound.study.contest import Outcome, chosen_ways
from firmbound.study.table import paid

Row = dict[str, Any]
OURS = ("firmbound-cfl", "firmbound-gp", "firmbound-refined", "firmbound-memory")
# Who has seen more than a method may: compared with, never a rival.
BEYOND = ("optimum",)
STATIC = "static"
# Mean times at which curves of unlike ways are averaged.
PLACES = 20


@dataclass(frozen=True)
class Repeat:
    """One repeat on one data set: the truth, the problem, and every method's outcome."""

    dataset: str
    repeat: int
    labels: Ints
    problem: DecisionProblem
    outcomes: Mapping[str, Outcome]

    def paid(self, method: str, index: int) -> Floats:
        """(n,) what the method pays at a cost, by the way that validation sequences chose."""
        outcome, costs = self.outcomes[method], self.problem.costs.tolist()
        way = chosen_ways(outcome, costs)[index]
        return paid(outcome, way, self.labels, self.problem, costs[index])

    def ways(self, method: str) -> list[Any]:
        outcome = self.outcomes[method]
        return [outcome.decisions(place) for place in range(len(outcome.settings))]

    def curve(self, method: str) -> Curve:
        return error_curve(self.ways(method), self.labels, self.problem.classes)


def paid_differences(repeats: Sequence[Repeat], ours: str) -> list[Row]:
    """At every cost, what `ours` pays less what a rival pays, on the same sequences of all repeats, and its chance.

    Chances are Holm's over all rivals and costs of a data set.
    """
    rows = []
    for dataset, own in by_dataset(repeats).items():
        here: list[Row] = []
        if ours not in methods_of(own):
            continue
        for rival in methods_of(own, without=(ours, *BEYOND)):
            for index, cost in enumerate(own[0].problem.costs.tolist()):
                apart = np.concatenate([one.paid(ours, index) - one.paid(rival, index) for one in own])
                level = float(np.concatenate([one.paid(rival, index) for one in own]).mean())
                found = mean_of(apart)
                here.append(
                    {
                        "dataset": dataset,
                        "ours": ours,
                        "rival": rival,
                        "cost": cost,
                        "rival_risk": level,
                        "difference": found.value,
                        "difference_error": found.standard_error,
                        "chance": paired_chance(apart),
                    }
                )
        corrected = holm([row["chance"] for row in here])
        rows += [row | {"corrected": float(chance)} for row, chance in zip(here, corrected, strict=True)]
    return rows


def time_variances(repeats: Sequence[Repeat], ours: str) -> list[Row]:
    """At every cost, the variance of our hitting time and that of static thresholds at the same mean time."""
    rows = []
    for one in repeats:
        if ours not in one.outcomes or STATIC not in one.outcomes:
            continue
        thresholds, curve = one.ways(STATIC), one.curve(STATIC)
        for way, cost in zip(one.ways(ours), one.problem.costs.tolist(), strict=True):
            mean, own = float(way.time.mean()), one.curve(ours)
            rows.append(
                {
                    "dataset": one.dataset,
                    "repeat": one.repeat,
                    "cost": cost,
                    "mean_time": mean,
                    "ours": time_variance(way).value,
                    "static": variance_at(thresholds, mean),
                    "error": own.at(mean).value,
                    "static_error": curve.at(mean).value,
                }
            )
    # Decisions that all fall at the first or last step have nothing to vary.
    return [row for row in rows if np.isfinite(row["static"]) and max(row["static"], row["ours"]) > 0]


def variance_chance(rows: Sequence[Row]) -> float:
    """Wilcoxon's chance that variances would be so much lower in so many repeats and costs if they were not."""
    return signed_rank_chance([row["static"] - row["ours"] for row in rows]) if rows else 1.0


def pooled_curve(repeats: Sequence[Repeat], method: str) -> Curve:
    """Error against mean time over all repeats of a data set: way by way, or at even times if ways differ in number."""
    curves = [one.curve(method) for one in repeats]
    if len({len(one.time) for one in curves}) > 1:
        first, last = max(one.time[0] for one in curves), min(one.time[-1] for one in curves)
        times = np.linspace(first, last, PLACES)
        found = [[one.at(float(time)) for time in times] for one in curves]
        curves = [
            Curve(times, np.array([e.value for e in own]), np.array([e.standard_error for e in own])) for own in found
        ]
    time, value, error = (np.stack([getattr(one, part) for one in curves]) for part in ("time", "value", "error"))
    return Curve(time.mean(axis=0), value.mean(axis=0), np.sqrt((error**2).sum(axis=0)) / len(curves))


def rivals_ahead(repeats: Sequence[Repeat], ours: str, limit: float = 1.0) -> list[Row]:
    """Points of rivals that lie below our speed-accuracy curve by more than `limit` standard errors."""
    rows = []
    for dataset, own in by_dataset(repeats).items():
        if ours not in methods_of(own):
            continue
        curve = pooled_curve(own, ours)
        for rival in methods_of(own, without=(*OURS, *BEYOND)):
            found = points_below(curve, pooled_curve(own, rival), limit)
            rows += [{"dataset": dataset, "method": rival, **asdict(point)} for point in found]
    return rows


def ranking(repeats: Sequence[Repeat]) -> Ranking | None:
    """Mean ranks by realised risk over data sets and costs, of methods that all data sets have."""
    sets = by_dataset(repeats)
    everywhere = set.intersection(*(set(methods_of(own, without=BEYOND)) for own in sets.values()))
    names = sorted(everywhere)
    losses = [
        [float(np.mean([one.paid(name, index).mean() for one in own])) for name in names]
        for own in sets.values()
        for index in range(len(own[0].problem.costs))
    ]
    return rank_methods(names, losses) if len(losses) >= 2 and len(names) >= 3 else None


def by_dataset(repeats: Sequence[Repeat]) -> dict[str, list[Repeat]]:
    found: dict[str, list[Repeat]] = {}
    for one in repeats:
        found.setdefault(one.dataset, []).append(one)
    return found


def methods_of(repeats: Sequence[Repeat], *, without: Sequence[str] = ()) -> list[str]:
    """Those that every repeat has."""
    shared = set.intersection(*(set(one.outcomes) for one in repeats))
    return sorted(shared - set(without))
