"""What a study says: first of all where a rival pays or errs less, then whose time varies less, and who ranks where.

Methods are compared on the repeats in which both took part, which are what chance is judged by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from firmbound.arrays import Floats
from firmbound.evaluation.hitting_time import time_variance
from firmbound.evaluation.matching import Curve, variance_at
from firmbound.evaluation.paired_tests import Ranking, holm, rank_methods, signed_rank_chance
from firmbound.study.repeats import Repeat, by_dataset, having, methods_of, over_repeats, two_sided

Row = dict[str, Any]
OURS = ("firmbound-cfl", "firmbound-gp", "firmbound-refined", "firmbound-memory")
# Who has seen more than a method may: compared with, never a rival.
STATIC, HINDSIGHT = "static", "static-in-hindsight"
BEYOND = ("optimum", HINDSIGHT)
LEVEL = 0.05
# Of the horizon: where errors are told.
SHARES = (0.2, 0.4, 0.6, 0.8)


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
            both = having(own, ours, rival)
            for index, cost in enumerate(both[0].problem.costs.tolist() if both else []):
                theirs = [one.paid(rival, index) for one in both]
                apart = [one.paid(ours, index) - other for one, other in zip(both, theirs, strict=True)]
                found = over_repeats(apart, [one.rows for one in both])
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


def cheaper_rivals(differences: Sequence[Row]) -> list[Row]:
    """Where a rival pays less than we do, beyond chance; our own other rules are no rivals."""
    return [
        row for row in differences if row["rival"] not in OURS and row["difference"] > 0 and row["corrected"] < LEVEL
    ]


def rivals_ahead(repeats: Sequence[Repeat], ours: str, limit: float = 1.0) -> list[Row]:
    """Mean times at which rivals err less than we do, by more than `limit` standard errors."""
    return [
        row
        for own in by_dataset(repeats).values()
        for rival in methods_of(own, without=(*OURS, *BEYOND))
        for row in errors_at_same_times(rival, own, ours)
        if row["ours"] - row["rival"] > limit * row["error"]
    ]


def errors_at_same_times(rival: str, repeats: Sequence[Repeat], ours: str) -> list[Row]:
    """Our error beside a rival's at the same mean times, on one data set; differences are sequence by sequence.

    Times are those of whoever has fewer ways, and a coin is tossed between the two nearest of the other. Chords lie
    above a curve, the longer the higher: between rules of eight costs the exact optimum itself would seem to err more
    than two hundred thresholds. Where a rival of few ways takes longer than our latest rule, that one is what it is
    compared with; times before the other's earliest are not covered.
    """
    both = having(repeats, ours, rival)
    if not both:
        return []
    ways = {name: min(len(one.outcomes[name].settings) for one in both) for name in (ours, rival)}
    few, many = (ours, rival) if ways[ours] < ways[rival] else (rival, ours)
    fronts = [_front_of(one, many) for one in both]
    sign = 1.0 if few == rival else -1.0
    rows = []
    for way in range(ways[few]):
        pairs = zip(both, fronts, strict=True)
        met = [found for one, front in pairs if (found := _errors_apart(one, front, few, way)) is not None]
        if len(met) == len(both):
            apart = over_repeats([sign * found[0] for found in met], [one.rows for one in both])
            time, error = (float(np.mean([found[place] for found in met])) for place in (1, 2))
            own = error + apart.value if few == rival else error
            row = {"dataset": both[0].dataset, "method": rival, "time": time, "rival": own - apart.value}
            rows.append(row | {"ours": own, "error": apart.standard_error})
    return rows


def errors_at_shares(repeats: Sequence[Repeat], method: str) -> list[float | None]:
    """Macro error when looking at SHARES of the horizon on average, on one data set; None before its earliest way."""
    both, found = having(repeats, method), list[float | None]()
    fronts = [_front_of(one, method) for one in both]
    for share in SHARES:
        mixed = [front.wrong_at(share * one.problem.horizon) for one, front in zip(both, fronts, strict=True)]
        errors = [
            float((class_weights(one) * wrong).mean())
            for one, wrong in zip(both, mixed, strict=True)
            if wrong is not None
        ]
        found.append(float(np.mean(errors)) if len(errors) == len(both) else None)
    return found


def class_weights(one: Repeat) -> Floats:
    """(n,) weights whose mean of errors is the macro error."""
    counts = np.bincount(one.labels, minlength=one.problem.classes)
    return np.asarray(len(one.labels) / (np.count_nonzero(counts) * counts[one.labels]))


def beside_static(repeats: Sequence[Repeat], ours: str) -> list[Row]:
    """At every cost, believed and realised risk of `ours` less those of static thresholds on the same evidence.

    Static thresholds are chosen on validation sequences, and in hindsight, by what test sequences paid.
    """
    rows = []
    for dataset, own in by_dataset(repeats).items():
        for static in (STATIC, HINDSIGHT):
            both = having(own, ours, static)
            for index, cost in enumerate(both[0].problem.costs.tolist() if both else []):
                row: Row = {"dataset": dataset, "ours": ours, "static": static, "cost": cost}
                for measure in ("believed", "paid"):
                    mine, theirs = ([getattr(one, measure)(name, index) for one in both] for name in (ours, static))
                    apart = [us - them for us, them in zip(mine, theirs, strict=True)]
                    found = over_repeats(apart, [one.rows for one in both])
                    row[f"static_{measure}"] = float(np.mean([one.mean() for one in theirs]))
                    row |= {measure: found.value, f"{measure}_error": found.standard_error}
                rows.append(row)
    return rows


def _errors_apart(one: Repeat, front: Front, few: str, way: int) -> tuple[Floats, float, float] | None:
    """(n,) error of a front less that of a way, weighted so that the mean is that of macro errors; the way's own."""
    chosen = one.outcomes[few].decisions(way)
    time = float(chosen.time.mean())
    mixed = front.wrong_at(time)
    if mixed is None:
        return None
    weights = class_weights(one)
    wrong = weights * (chosen.label != one.labels)
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
    curves = [one.curve(method) for one in having(repeats, method)]
    ways = min(len(one.time) for one in curves)
    time, value, error = (
        np.stack([getattr(one, part)[:ways] for one in curves]) for part in ("time", "value", "error")
    )
    between = value.std(axis=0, ddof=1) / np.sqrt(len(curves)) if len(curves) > 1 else np.zeros(ways)
    return Curve(time.mean(axis=0), value.mean(axis=0), np.maximum(error.mean(axis=0), between))


def ranking(repeats: Sequence[Repeat]) -> Ranking | None:
    """Mean ranks by realised risk, a data set a block; of those that most methods can take part in.

    None where these are fewer than two data sets, or three methods.
    """
    sets = by_dataset(repeats)
    half = len(methods_of(repeats, without=BEYOND)) / 2
    full = [own for own in sets.values() if len(methods_of(own, without=BEYOND)) > half]
    names = sorted(set.intersection(*(set(methods_of(own, without=BEYOND)) for own in full)))
    together = [having(own, *names) for own in full]
    if len(full) < 2 or len(names) < 3 or not all(together):
        return None
    risks = [_relative_risks(own, names) for own in together]
    return rank_methods(names, [[own[name] for name in names] for own in risks])


def _relative_risks(repeats: Sequence[Repeat], names: Sequence[str]) -> dict[str, float]:
    """Of every method the realised risk over all costs, each in units of what everybody pays there on average."""
    costs = range(len(repeats[0].problem.costs))
    risks = np.array(
        [[np.mean([one.paid(name, index).mean() for one in repeats]) for index in costs] for name in names]
    )
    return dict(zip(names, (risks / risks.mean(axis=0)).mean(axis=1).tolist(), strict=True))
