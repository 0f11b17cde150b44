"""The figures of a study; each is a function from what a study found to a matplotlib Figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from firmbound.baselines.tapering import KAPPAS, tapering_threshold
from firmbound.evaluation.matching import Curve
from firmbound.evaluation.paired_tests import Ranking
from firmbound.report.drawing import COLOURS, OURS, STATIC, finish, panels_of

Row = Mapping[str, Any]
STYLE: Mapping[str, dict[str, Any]] = {
    "firmbound-cfl": {"color": OURS, "lw": 2.2, "zorder": 5},
    "firmbound-gp": {"color": OURS, "lw": 1.4, "ls": "--", "zorder": 5},
    "firmbound-refined": {"color": "#0b2e6b", "lw": 2.2, "ls": ":", "zorder": 6},
    "firmbound-memory": {"color": "#0b2e6b", "lw": 1.0, "ls": "-.", "zorder": 4},
    "static": {"color": STATIC, "lw": 1.6},
    "optimum": {"color": "#000000", "lw": 0.0, "marker": "o", "markerfacecolor": "none"},
}
SHOWN = (-45, 60)  # per cent
FEW = 12  # points up to which a method is drawn as such


def style_of(method: str, place: int) -> dict[str, Any]:
    return dict(STYLE.get(method, {"color": COLOURS[place % len(COLOURS)], "lw": 1.1}))


def speed_accuracy_curves(curves: Mapping[str, Mapping[str, Curve]]) -> Figure:
    """Error against mean time, a panel a data set, all methods with standard errors: lower left is better."""
    figure, panels = panels_of(len(curves), width=5.2)
    for axes, (dataset, methods) in zip(panels, curves.items(), strict=True):
        for place, (method, curve) in enumerate(methods.items()):
            style = style_of(method, place)
            if len(curve.time) <= FEW:
                style.setdefault("marker", "o")
                axes.errorbar(curve.time, curve.value, curve.error, label=method, markersize=4, capsize=2, **style)
            else:
                axes.plot(curve.time, curve.value, label=method, **style)
                band = (curve.value - curve.error, curve.value + curve.error)
                axes.fill_between(curve.time, *band, color=style["color"], alpha=0.12, lw=0)
        axes.set_title(dataset)
        axes.set_ylim(bottom=0)
        finish(axes, "mean number of observations", "error (1 - macro recall)", legend=False)
        axes.legend(frameon=False, fontsize=7, ncols=2)
    return figure


def risks_by_cost(rows: Sequence[Row], measure: str) -> Figure:
    """`realised_risk` or `aapr` of what validation sequences chose, against cost, relative to the best static one's."""
    datasets = list(dict.fromkeys(row["dataset"] for row in rows))
    figure, panels = panels_of(len(datasets), width=5.2)
    for axes, dataset in zip(panels, datasets, strict=True):
        own = [row for row in rows if row["dataset"] == dataset and row["chosen"]]
        base = _means(own, "static", measure)
        for place, method in enumerate(dict.fromkeys(row["method"] for row in own)):
            found = _means(own, method, measure)
            costs = [cost for cost in sorted(found) if cost in base and np.isfinite(found[cost])]
            if method in ("fixed", "random", "tapering") or not costs:
                continue  # far above: they would press all others together
            shares = [100 * (found[cost] / base[cost] - 1) for cost in costs]
            axes.plot(costs, shares, marker="o", markersize=3, label=method, **_plain(style_of(method, place)))
        axes.set_xscale("log")
        axes.set_ylim(*SHOWN)
        axes.set_title(f"{dataset} (what lies beyond {SHOWN[0]} or {SHOWN[1]} % is cut off)", fontsize=9)
        words = "realised risk" if measure == "realised_risk" else "believed risk (AAPR)"
        finish(axes, "cost of an observation", f"{words} above static's, %", legend=False)
        axes.legend(frameon=False, fontsize=7, ncols=2)
    return figure


def beliefs_beside_errors(rows: Sequence[Row], methods: Sequence[str], cost_place: int) -> Figure:
    """What methods believe that they pay, what they do pay, and how they err, at one cost and in all their ways.

    Whose belief lies below what it pays is sure without a reason: ranks by belief are then not ranks by error.
    """
    datasets = list(dict.fromkeys(row["dataset"] for row in rows))
    figure, panels = panels_of(3 * len(datasets), width=4.4)
    measures = (("aapr", "believed risk (AAPR)"), ("realised_risk", "realised risk"), ("error_rate", "error"))
    for place, dataset in enumerate(datasets):
        cost = sorted({row["cost"] for row in rows if row["dataset"] == dataset})[cost_place]
        own = [row for row in rows if row["dataset"] == dataset and row["cost"] == cost]
        for axes, (measure, words) in zip(panels[3 * place : 3 * place + 3], measures, strict=True):
            for number, method in enumerate(methods):
                at = _by_setting([row for row in own if row["method"] == method], measure)
                if at:
                    style = _plain(style_of(method, number))
                    axes.plot(*zip(*at, strict=True), marker="o", markersize=3, label=method, **style)
            axes.set_ylim(bottom=0)
            axes.set_title(f"{dataset}, cost {cost:.3g}", fontsize=9)
            finish(axes, "mean number of observations", words, legend=False)
            axes.legend(frameon=False, fontsize=7)
    return figure


def variance_of_time(rows: Sequence[Row]) -> Figure:
    """Variance of the hitting time against static's at the same mean time: below the line is steadier."""
    datasets = list(dict.fromkeys(row["dataset"] for row in rows))
    figure, panels = panels_of(len(datasets), width=4.0)
    for axes, dataset in zip(panels, datasets, strict=True):
        own = [row for row in rows if row["dataset"] == dataset]
        static, ours = np.array([row["static"] for row in own]), np.array([row["ours"] for row in own])
        top = max(static.max(), ours.max()) * 1.05
        axes.plot([0, top], [0, top], color=STATIC, lw=1)
        axes.plot(static, ours, "o", color=OURS, markersize=4)
        axes.set_title(dataset)
        finish(axes, "variance, static threshold", "variance, firmbound", legend=False)
    return figure


def critical_difference(ranking: Ranking) -> Figure:
    """Mean ranks of all methods; a bar joins those that do not differ beyond chance."""
    order = np.argsort(ranking.ranks, kind="stable")
    figure = Figure(figsize=(8.0, 0.6 + 0.3 * len(order)), layout="constrained")
    axes = figure.subplots()
    for place, index in enumerate(order):
        ours = ranking.names[index].startswith("firmbound")
        axes.plot(ranking.ranks[index], place, "o", color=OURS if ours else STATIC)
        axes.annotate(
            f"{ranking.names[index]}  {ranking.ranks[index]:.2f}",
            (ranking.ranks[index], place),
            (7, -3),
            textcoords="offset points",
            fontsize=8,
        )
    places = {int(index): place for place, index in enumerate(order)}
    for clique in ranking.cliques:
        low, high = places[clique[0]], places[clique[-1]]
        at = float(ranking.ranks[clique[0]]) - 0.12
        axes.plot([at, at], [low, high], color="#495057", lw=2.5, solid_capstyle="butt")
    axes.invert_yaxis()
    axes.set_yticks([])
    axes.set_xlim(right=float(ranking.ranks.max()) + 1.8)
    finish(axes, f"mean rank by realised risk; {ranking.critical:.2f} apart differ at 5 %", "", legend=False)
    return figure


def tapering_curves(horizon: int = 50) -> Figure:
    """The thresholds that App. ablation draws by hand."""
    figure, (axes,) = panels_of(1)
    for kappa, colour in zip(KAPPAS, COLOURS, strict=False):
        axes.plot(np.arange(1, horizon + 1), tapering_threshold(horizon, 1.0, kappa), color=colour, label=f"{kappa:g}")
    axes.set_title("f(t) = A (1 - t / T)^exp(kappa), by kappa")
    finish(axes, "t", "threshold / A")
    return figure


def _means(rows: Sequence[Row], method: str, measure: str) -> dict[float, float]:
    """Mean over repeats at every cost."""
    found: dict[float, list[float]] = {}
    for row in rows:
        if row["method"] == method:
            found.setdefault(row["cost"], []).append(row[measure])
    return {cost: float(np.mean(values)) for cost, values in found.items()}


def _by_setting(rows: Sequence[Row], measure: str) -> list[tuple[float, float]]:
    """Mean time and measure of each way, means over repeats, in order of time."""
    found: dict[int, list[tuple[float, float]]] = {}
    places: dict[int, int] = {}
    for row in rows:
        # Ways are told apart by their place: settings of some methods differ from repeat to repeat.
        place = places[row["repeat"]] = places.get(row["repeat"], -1) + 1
        found.setdefault(place, []).append((row["mean_time"], row[measure]))
    means = [tuple(np.mean(points, axis=0).tolist()) for points in found.values()]
    return sorted((time, value) for time, value in means if np.isfinite(value))


def _plain(style: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in style.items() if name in ("color", "ls", "lw", "zorder")}
