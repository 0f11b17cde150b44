"""What the report's page draws from: numbers of all costs and a few sequences, small and safe inside HTML."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from firmbound.arrays import Floats, Ints
from firmbound.evaluation.boundary import continuation_interval
from firmbound.posterior import posterior
from firmbound.stopping_rule import StoppingRule
from firmbound.trajectories import Batch

Row = Mapping[str, Any]
Interval = Sequence[Sequence[float | None]]
# Sequences on the page, and numbers of all their paths: more would be neither legible nor quick.
MOST_SEQUENCES, MOST_NUMBERS = 60, 60_000
MOST_BARS = 60  # of a histogram
MOST_STEPS = 400  # of a line over time
SUREST = 16.0  # log odds: what is surer is drawn there
# Short names, for they are repeated at every point.
MEASURES = {
    "time": "mean_time",
    "error": "error_rate",
    "error_se": "error_rate_error",
    "believed": "aapr",
    "believed_se": "aapr_error",
    "realised": "realised_risk",
    "realised_se": "realised_risk_error",
}


def page_data(
    rule: StoppingRule,
    batch: Batch,
    rows: Sequence[Row],
    optimal: Mapping[str, Interval | None],
    honesty: Mapping[str, Any],
    names: Sequence[str | int] = (),
) -> dict[str, Any]:
    """All that the page's script needs. rows: every method at every cost; batch: sequences to show, with evidence."""
    costs = sorted(rule.costs.tolist())
    return {
        "costs": costs,
        "horizon": rule.problem.horizon,
        "classes": class_names(rule, names),
        "fronts": [front(rows, cost) for cost in costs],
        "boundaries": [boundaries(rule, cost, optimal.get(str(cost))) for cost in costs],
        "sequences": sequences(rule, batch, costs),
        "honesty": honest_curves(honesty),
    }


def as_json(data: Mapping[str, Any]) -> Markup:
    """JSON for a script element: no name can close the element, and a number that JSON does not know is an error."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def class_names(rule: StoppingRule, names: Sequence[str | int]) -> list[str]:
    """In the words of the data set, else numbers."""
    return [str(name) for name in names] if names else [f"class {k}" for k in range(rule.problem.classes)]


def front(rows: Sequence[Row], cost: float) -> dict[str, Any]:
    """What each method did at one cost; `best` is the static threshold that paid least on training labels."""
    here = [row for row in rows if row["cost"] == cost]
    swept = [row for row in here if row["method"] == "static" and not (row["chosen"] or row["least_believed"])]
    marked = [
        ("ours", next(row for row in here if row["method"] == "firmbound")),
        ("best", next((row for row in here if row["method"] == "static" and row["chosen"]), None)),
        ("optimum", next((row for row in here if row["method"] == "optimum"), None)),
    ]
    return {
        "static": [_point(row) for row in sorted(swept, key=lambda row: float(row["mean_time"]))],
        **{name: None if row is None else _point(row) | {"times": _bars(row)} for name, row in marked},
    }


def boundaries(rule: StoppingRule, cost: float, optimal: Interval | None) -> dict[str, Any] | None:
    """Ratios between which two classes are waited for, [t, low, high]; None where there is no one such interval."""
    if rule.problem.classes != 2 or rule.remembers:
        return None
    exact = None if optimal is None else _interval(np.array(optimal, dtype=np.float64))
    return {"fitted": _interval(continuation_interval(rule, cost)), "optimal": exact}


def sequences(rule: StoppingRule, batch: Batch, costs: Sequence[float]) -> list[dict[str, Any]]:
    """Label, decision at every cost, and the path of evidence until the last of them.

    Two classes: e_1 - e_0. More: log odds of the leading class, and which one leads.
    """
    shown = batch.part(slice(min(MOST_SEQUENCES, max(1, MOST_NUMBERS // rule.problem.horizon))))
    assert shown.evidence is not None
    decided = [rule.decide(shown.evidence, cost=cost, lengths=shown.lengths) for cost in costs]
    times = np.stack([decisions.time for decisions in decided], axis=1)
    labels = np.stack([decisions.label for decisions in decided], axis=1)
    heights, leaders = _heights(rule, shown)
    found = []
    for place, last in enumerate(times.max(axis=1).tolist()):
        path: dict[str, Any] = {"path": [round(float(height), 2) for height in heights[place, :last]]}
        if leaders is not None:
            path["leaders"] = leaders[place, :last].tolist()
        known = {"label": int(shown.labels[place]), "times": times[place].tolist(), "said": labels[place].tolist()}
        found.append(known | path)
    return found


def honest_curves(honesty: Mapping[str, Any]) -> dict[str, Any]:
    """Reliability at some t; calibration error, what of it is chance, and loss over t."""
    limit, chance = honesty["limit"], honesty["chance"]
    errors, losses = honesty["error"], honesty["negative_log_likelihood"]
    stride = -(-len(errors) // MOST_STEPS)
    return {
        "reliability": [
            {
                "t": int(t),
                "bins": [
                    {"count": count, "sure": _short(sure), "right": _short(right)}
                    for count, sure, right in zip(curve["count"], curve["confidence"], curve["accuracy"], strict=True)
                    if count
                ],
            }
            for t, curve in honesty["reliability"].items()
        ],
        "steps": [
            {
                "t": t + 1,
                "error": _short(errors[t]),
                "chance": _short(chance[t]),
                "limit": None if limit is None else _short(limit + chance[t]),
                "loss": _short(losses[t]),
            }
            for t in range(0, len(errors), stride)
        ],
    }


def _heights(rule: StoppingRule, batch: Batch) -> tuple[Floats, Ints | None]:
    """(n, T): what a path shows, and which class leads where there are more than two."""
    assert batch.evidence is not None
    evidence = np.asarray(batch.evidence, dtype=np.float64)
    if rule.problem.classes == 2:
        return evidence[..., 1] - evidence[..., 0], None
    belief = posterior(evidence, rule.prior)
    leaders = belief.argmax(axis=-1)
    first = np.take_along_axis(belief, leaders[..., None], axis=-1)[..., 0]
    # The sum of the others keeps its digits where the first rounds to 1.
    others = np.where(np.arange(belief.shape[-1]) == leaders[..., None], 0.0, belief).sum(axis=-1)
    odds = np.log(first) - np.log(np.maximum(others, math.exp(-SUREST)))
    return np.minimum(odds, SUREST), leaders


def _point(row: Row) -> dict[str, Any]:
    found: dict[str, Any] = {name: _short(row[measure]) for name, measure in MEASURES.items()}
    found["spread"] = _short(max(float(row["time_variance"]), 0.0) ** 0.5)
    return found | ({"threshold": _short(row["threshold"])} if "threshold" in row else {})


def _bars(row: Row) -> list[list[Any]]:
    """Histogram of decision times: [first t, last t, share of sequences]."""
    counts = np.asarray(row["time_counts"], dtype=np.float64)
    width = -(-len(counts) // MOST_BARS)
    return [
        [start + 1, min(start + width, len(counts)), _short(counts[start : start + width].sum() / counts.sum())]
        for start in range(0, len(counts), width)
    ]


def _interval(ends: Floats) -> list[list[Any]]:
    stride = -(-len(ends) // MOST_STEPS)
    return [[t + 1, _short(ends[t, 0]), _short(ends[t, 1])] for t in range(0, len(ends), stride)]


def _short(value: Any) -> float | None:
    """Seven digits, so that rounding for the eye comes out as in the tables; None for what JSON has no number for."""
    return float(f"{value:.7g}") if value is not None and math.isfinite(value) else None
