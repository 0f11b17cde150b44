"""What a study says: first of all where a rival pays or errs less, then whose time varies less, and who ranks where.

Repeats are what chance is judged by. Recorded data have the same test sequences in every repeat: a sequence counts
once, with the mean over its repeats; and no error is taken to be smaller than what repeats differ by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from firmbound.arrays import Floats, Ints
from firmbound.costs import DecisionProblem
from firmbound.evaluation.estimates import Estimate, mean_of
from firmbound.evaluation.hitting_time import time_variance
from firmbound.evaluation.matching import Curve, error_curve, variance_at
from firmbound.evaluation.paired_tests import Ranking, holm, rank_methods, signed_rank_chance
from firmbound.study.contest import Outcome, chosen_ways
from firmbound.study.table import paid
from firmbound.trajectories import Decisions

Row = dict[str, Any]
OURS = ("firmbound-cfl", "firmbound-gp", "firmbound-refined", "firmbound-memory")
# Who has seen more than a method may: compared with, never a rival.
BEYOND = ("optimum", "static-in-hindsight")
STATIC = "static"
LEVEL = 0.05


@dataclass(frozen=True)
class Repeat:
    """One repeat on one data set: the truth, the problem, and every method's outcome.

    rows (n,): names of the test sequences; those of recorded data are the same in every repeat.
    """

    dataset: str
    repeat: int
    labels: Ints
    rows: Ints
    problem: DecisionProblem
    outcomes: Mapping[str, Outcome]

    def paid(self, method: str, index: int) -> Floats:
        """(n,) what the method pays at a cost."""
        outcome, costs = self.outcomes[method], self.problem.costs.tolist()
        way = chosen_ways(outcome, costs)[index]
        return paid(outcome, way, self.labels, self.problem, costs[index])

    def ways(self, method: str) -> list[Decisions]:
        outcome = self.outcomes[method]
        return [outcome.decisions(place) for place in range(len(outcome.settings))]

    def curve(self, method: str) -> Curve:
        return error_curve(self.ways(method), self.labels, self.problem.classes)


def over_repeats(differences: Sequence[Floats], rows: Sequence[Ints]) -> Estimate:
    """Mean of differences, an array a repeat; its error is that over different sequences, or that over repeats."""
    names, place = np.unique(np.concatenate(rows), return_inverse=True)
    every = np.concatenate(differences)
    by_sequence = np.bincount(place, every) / np.bincount(place)
    mean = float(np.mean([one.mean() for one in differences]))
    error = mean_of(by_sequence).standard_error if len(names) > 1 else 0.0
    if len(differences) > 1:
        error = max(error, mean_of(np.array([one.mean() for one in differences])).standard_error)
    return Estimate(mean, error)


def paid_differences(repeats: Sequence[Repeat], ours: str) -> list[Row]:
    """At every cost, what `ours` pays less what a rival pays, on the same sequences, and the chance of that.

    Chances are Holm's over all rivals and costs of a data set.
    """
    rows = []
    for dataset, own in by_dataset(repeats).items():
        if ours not in methods_of(own):
            continue
        here: list[Row] = []
        for rival in methods_of(own, without=(ours, *BEYOND)):
            for index, cost in enumerate(own[0].problem.costs.tolist()):
                theirs = [one.paid(rival, index) for one in own]
                apart = [one.paid(ours, index) - other for one, other in zip(own, theirs, strict=True)]
                found = over_repeats(apart, [one.rows for one in own])
                here.append(
                    {
                        "dataset": dataset,
                        "ours": ours,
                        "rival": rival,
                        "cost": cost,
                        "rival_risk": float(np.mean([one.mean() for one in theirs])),
                        "difference": found.value,
                        "difference_error": found.standard_error,
                        "chance": two_sided(found),
                    }
                )
        corrected = holm([row["chance"] for row in here]).tolist() if here else list[float]()
        rows += [row | {"corrected": chance} for row, chance in zip(here, corrected, strict=True)]
    return rows


def two_sided(found: Estimate) -> float:
    """Chance of a mean so far from 0 by its standard error, if it were 0."""
    if found.value == 0:
        return 1.0
    return float(2 * stats.norm.sf(abs(found.value) / found.standard_error)) if found.standard_error > 0 else 0.0


def cheaper_rivals(differences: Sequence[Row]) -> list[Row]:
    """Where a rival pays less than we do, beyond chance; our own other rules are no rivals."""
    return [
        row for row in differences if row["rival"] not in OURS and row["difference"] > 0 and row["corrected"] < LEVEL
    ]


def rivals_ahead(repeats: Sequence[Repeat], ours: str, limit: float = 1.0) -> list[Row]:
    """Points of rivals that err less than we do at the same mean time, by more than `limit` standard errors.

    Differences are sequence by sequence. Where a rival takes longer than our latest rule, that one is what it is
    compared with; times before our earliest are not covered.
    """
    rows = []
    for dataset, own in by_dataset(repeats).items():
        if ours not in methods_of(own):
            continue
        fronts = [_front_of(one, ours) for one in own]
        for rival in methods_of(own, without=(*OURS, *BEYOND)):
            for way in range(min(len(one.outcomes[rival].settings) for one in own)):
                pairs = zip(own, fronts, strict=True)
                met = [found for one, front in pairs if (found := _errors_apart(one, front, rival, way)) is not None]
                if len(met) < len(own):
                    continue
                apart = over_repeats([found[0] for found in met], [one.rows for one in own])
                if apart.value > limit * apart.standard_error:
                    time, error = (float(np.mean([found[place] for found in met])) for place in (1, 2))
                    row = {"dataset": dataset, "method": rival, "time": time, "rival": error}
                    rows.append(row | {"ours": error + apart.value, "error": apart.standard_error})
    return rows


def _errors_apart(one: Repeat, front: Front, rival: str, way: int) -> tuple[Floats, float, float] | None:
    """(n,) our error less a rival's, weighted so that the mean is that of macro errors; its mean time and error."""
    theirs = one.outcomes[rival].decisions(way)
    time = float(theirs.time.mean())
    mixed = front.wrong_at(time)
    if mixed is None:
        return None
    counts = np.bincount(one.labels, minlength=one.problem.classes)
    weights = len(one.labels) / (np.count_nonzero(counts) * counts[one.labels])
    wrong = weights * (theirs.label != one.labels)
    return weights * mixed - wrong, time, float(wrong.mean())


@dataclass(frozen=True)
class Front:
    """A method's ways on the sequences of a repeat: mean times (S,) in ascending order, wrong (S, n) as 0 or 1."""

    times: Floats
    wrong: Floats

    def wrong_at(self, time: float) -> Floats | None:
        """(n,) chance of an error when tossing a coin between the ways around a mean time; None before the first."""
        if time < self.times[0]:
            return None
        if time >= self.times[-1]:
            return np.asarray(self.wrong[-1])
        behind = int(np.searchsorted(self.times, time, side="right"))
        share = (time - self.times[behind - 1]) / (self.times[behind] - self.times[behind - 1])
        return np.asarray((1 - share) * self.wrong[behind - 1] + share * self.wrong[behind], dtype=np.float64)


def _front_of(one: Repeat, method: str) -> Front:
    outcome = one.outcomes[method]
    times = outcome.time.mean(axis=1)
    order = np.argsort(times, kind="stable")
    return Front(times[order], (outcome.label[order] != one.labels).astype(np.float64))


def time_variances(repeats: Sequence[Repeat], ours: str) -> list[Row]:
    """At every cost, the variance of our hitting time and that of static thresholds at the same mean time."""
    rows = []
    for one in repeats:
        if ours not in one.outcomes or STATIC not in one.outcomes:
            continue
        thresholds, static, own = one.ways(STATIC), one.curve(STATIC), one.curve(ours)
        for way, cost in zip(one.ways(ours), one.problem.costs.tolist(), strict=True):
            mean = float(way.time.mean())
            rows.append(
                {
                    "dataset": one.dataset,
                    "repeat": one.repeat,
                    "cost": cost,
                    "mean_time": mean,
                    "ours": time_variance(way).value,
                    "static": variance_at(thresholds, mean),
                    "error": own.at(mean).value,
                    "static_error": static.at(mean).value,
                }
            )
    # Decisions that all fall at the first or last step have nothing to vary.
    return [row for row in rows if np.isfinite(row["static"]) and min(row["static"], row["ours"]) > 0]


def variance_ratios(rows: Sequence[Row]) -> list[float]:
    """Of each repeat of each data set: our variance as a share of static's, the geometric mean over costs."""
    found: dict[tuple[str, int], list[float]] = {}
    for row in rows:
        found.setdefault((row["dataset"], row["repeat"]), []).append(np.log(row["ours"] / row["static"]))
    return [float(np.exp(np.mean(values))) for values in found.values()]


def variance_chance(rows: Sequence[Row]) -> float:
    """Wilcoxon's chance that variances would be so much lower in so many repeats if they were not."""
    ratios = variance_ratios(rows)
    return signed_rank_chance([-float(np.log(ratio)) for ratio in ratios]) if ratios else 1.0


def pooled_curve(repeats: Sequence[Repeat], method: str) -> Curve:
    """Error against mean time, to draw: way by way, mean over the repeats of a data set."""
    curves = [one.curve(method) for one in repeats]
    ways = min(len(one.time) for one in curves)
    time, value, error = (
        np.stack([getattr(one, part)[:ways] for one in curves]) for part in ("time", "value", "error")
    )
    between = value.std(axis=0, ddof=1) / np.sqrt(len(curves)) if len(curves) > 1 else np.zeros(ways)
    return Curve(time.mean(axis=0), value.mean(axis=0), np.maximum(error.mean(axis=0), between))


def ranking(repeats: Sequence[Repeat]) -> Ranking | None:
    """Mean ranks by realised risk, a data set a block; of those with the most methods, so that rivals take part.

    None where these are fewer than two data sets, or three methods.
    """
    sets = by_dataset(repeats)
    most = max(len(methods_of(own, without=BEYOND)) for own in sets.values())
    full = [own for own in sets.values() if len(methods_of(own, without=BEYOND)) == most]
    names = sorted(set.intersection(*(set(methods_of(own, without=BEYOND)) for own in full)))
    if len(full) < 2 or len(names) < 3:
        return None
    risks = [_relative_risks(own) for own in full]
    return rank_methods(names, [[own[name] for name in names] for own in risks])


def _relative_risks(repeats: Sequence[Repeat]) -> dict[str, float]:
    """Of every method the realised risk over all costs, each in units of what everybody pays there on average."""
    names, costs = methods_of(repeats), range(len(repeats[0].problem.costs))
    risks = np.array(
        [[np.mean([one.paid(name, index).mean() for one in repeats]) for index in costs] for name in names]
    )
    return dict(zip(names, (risks / risks.mean(axis=0)).mean(axis=1).tolist(), strict=True))


def by_dataset(repeats: Sequence[Repeat]) -> dict[str, list[Repeat]]:
    found: dict[str, list[Repeat]] = {}
    for one in repeats:
        found.setdefault(one.dataset, []).append(one)
    return found


def methods_of(repeats: Sequence[Repeat], *, without: Sequence[str] = ()) -> list[str]:
    """Those that every repeat has."""
    shared = set.intersection(*(set(one.outcomes) for one in repeats))
    return sorted(shared - set(without))
