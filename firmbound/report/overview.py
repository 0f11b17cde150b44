"""The first thing a reader sees: which rule, how early, how often wrong, what it pays, how far from the optimum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from firmbound.continuation.surface import UncertainSurface
from firmbound.stopping_rule import StoppingRule

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Fact:
    """One number with its question above and its doubts below; name: of the element that shows it."""

    name: str
    title: str
    value: str
    note: str


def overview_of(rule: StoppingRule, rows: Sequence[Row], *, refined: bool) -> list[list[Fact]]:
    """Five facts at every cost, costs in rising order."""
    costs = sorted(rule.costs.tolist())
    return [_facts(rule, [row for row in rows if row["cost"] == cost], refined=refined) for cost in costs]


def method_of(rule: StoppingRule) -> str:
    """Which estimator the rule's surfaces come from, in words."""
    uncertain = all(isinstance(surface, UncertainSurface) for surface in rule.surfaces)
    return "Gaussian processes" if uncertain else "Convex functions"


def _facts(rule: StoppingRule, here: Sequence[Row], *, refined: bool) -> list[Fact]:
    ours = next(row for row in here if row["method"] == "firmbound")
    horizon = rule.problem.horizon
    return [
        Fact("rule", "Which rule", method_of(rule), _rule_told(rule, refined=refined)),
        Fact(
            "early",
            "How early",
            f"{ours['mean_time']:.1f} of {horizon}",
            f"observations on average: {100 * ours['mean_time'] / horizon:.0f} % of the time; "
            f"± {max(ours['time_variance'], 0.0) ** 0.5:.1f} from sequence to sequence",
        ),
        Fact(
            "wrong",
            "How often wrong",
            f"{100 * ours['error_rate']:.2f} %",
            f"± {100 * ours['error_rate_error']:.2f}, the mean over classes",
        ),
        Fact(
            "paid",
            "What it pays",
            f"{ours['realised_risk']:.3f}",
            f"± {ours['realised_risk_error']:.3f} for errors and observations; it believes {ours['aapr']:.3f}"
            + (f": {ours['alarm']}" if ours["alarm"] else ""),
        ),
        _distance(ours, here),
    ]


def _rule_told(rule: StoppingRule, *, refined: bool) -> str:
    told = "on refined evidence" if refined else "on plain evidence"
    if rule.remembers:
        told += ", with a memory of how beliefs moved"
    return told + (f", stops when {100 * rule.confidence:g} % sure that it should" if rule.confidence > 0.5 else "")


def _distance(ours: Row, here: Sequence[Row]) -> Fact:
    """From the exact optimum where it is known, else from the best static threshold."""
    optimum = next((row for row in here if row["method"] == "optimum"), None)
    if optimum is not None and "regret" in ours:
        told = f"above the least possible risk, {optimum['bayes_risk']:.3f}"
        if "regret_error" in ours:
            told = f"± {100 * ours['regret_error']:.3f} {told}"
        return Fact("distance", "How far from the optimum", f"{100 * ours['regret']:.3f} %", told)
    static = next((row for row in here if row["method"] == "static" and row["chosen"]), None)
    if static is None or not static["realised_risk"]:
        return Fact("distance", "How far from the optimum", "unknown", "nothing is there to compare with")
    above = ours["realised_risk"] / static["realised_risk"] - 1.0
    paid = f"{static['realised_risk']:.3f} ± {static['realised_risk_error']:.3f}"
    told = f"than the best static threshold, which pays {paid}; the exact optimum is not known"
    return Fact("distance", "Against thresholds", f"{abs(100 * above):.1f} % {'more' if above > 0 else 'less'}", told)
