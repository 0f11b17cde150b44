"""The figures of a report; each is a function from results to a matplotlib Figure, drawn without any global state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from firmbound.arrays import Floats, Ints
from firmbound.evaluation.boundary import continuation_interval
from firmbound.report.drawing import GRID, OURS, STATIC, finish, panels_of
from firmbound.stopping_rule import StoppingRule
from firmbound.trajectories import Batch, Decisions

Row = Mapping[str, Any]
OPTIMUM = "#d9480f"
CLASS_COLOURS = ("#1763c6", "#d9480f", "#2b8a3e", "#862e9c", "#b08900", "#0b7285")
# Sequences that a bin must hold before its share of right decisions means anything.
ENOUGH = 30
# The optimum is a ring, so that a rule that reaches it shows as a dot inside.
MARKERS: dict[str, dict[str, Any]] = {
    "optimum": {"color": OPTIMUM, "markersize": 10, "markerfacecolor": "none"},
    "firmbound": {"color": OURS, "markersize": 5},
}
NAMES = {"firmbound": "firmbound", "static": "static threshold", "optimum": "exact optimum"}
NAME_WIDTH = 0.12  # of a point, as a share of the horizon: those of neighbours would stand in each other


def speed_accuracy(rows: Sequence[Row]) -> Figure:
    """Error (1 - macro recall) against mean number of observations: lower left is better."""
    figure, (axes,) = panels_of(1)
    costs = _costs(rows)
    swept = sorted((r for r in rows if r["method"] == "static" and r["cost"] == costs[0]), key=lambda r: r["mean_time"])
    axes.plot(
        [r["mean_time"] for r in swept], [r["error_rate"] for r in swept], color=STATIC, label="static thresholds"
    )
    for method, style in MARKERS.items():
        found = [r for r in rows if r["method"] == method]
        if found:
            times, errors = [r["mean_time"] for r in found], [r["error_rate"] for r in found]
            axes.plot(times, errors, "o", label=NAMES[method], **style)
    horizon = max(r["mean_time"] for r in rows)
    last = -horizon
    for row in sorted((r for r in rows if r["method"] == "firmbound"), key=lambda r: r["mean_time"]):
        if row["mean_time"] - last > NAME_WIDTH * horizon:
            place = (row["mean_time"], row["error_rate"])
            axes.annotate(f"cost {row['cost']:g}", place, (8, 6), textcoords="offset points")
            last = row["mean_time"]
    finish(axes, "mean number of observations", "error (1 - macro recall)")
    return figure


def risk_curves(rows: Sequence[Row]) -> Figure:
    """Believed (AAPR) and realised risk against mean number of observations, a panel a cost."""
    costs = _costs(rows)
    figure, panels = panels_of(len(costs))
    for axes, cost in zip(panels, costs, strict=True):
        here = [r for r in rows if r["cost"] == cost]
        swept = sorted((r for r in here if r["method"] == "static"), key=lambda r: r["mean_time"])
        times = [r["mean_time"] for r in swept]
        axes.plot(times, [r["aapr"] for r in swept], color=STATIC, label="static, believed")
        axes.plot(times, [r["realised_risk"] for r in swept], color=STATIC, ls=":", label="static, realised")
        marked = [r for r in here if r["method"] in MARKERS]
        for row in sorted(marked, key=lambda r: list(MARKERS).index(r["method"])):
            style = MARKERS[row["method"]]
            for risk, fmt, words in (("aapr", "o", "believed"), ("realised_risk", "x", "realised")):
                label = f"{NAMES[row['method']]}, {words}"
                axes.errorbar(row["mean_time"], row[risk], row[f"{risk}_error"], fmt=fmt, label=label, **style)
            axes.plot([row["mean_time"]] * 2, [row["aapr"], row["realised_risk"]], color=style["color"], lw=0.8)
        low = min(min(r["aapr"], r["realised_risk"]) for r in here)
        # What is paid stays in the picture, however far beliefs are below it.
        axes.set_ylim(0.85 * low, max([3.0 * low, *(1.1 * r["realised_risk"] for r in marked)]))
        axes.set_title(f"cost {cost:g} an observation")
        finish(axes, "mean number of observations", "risk", legend=axes is panels[0])
    return figure


def hitting_times(rows: Sequence[Row]) -> Figure:
    """How many sequences are decided at each t: the rule, and the chosen static threshold."""
    costs = _costs(rows)
    figure, panels = panels_of(len(costs))
    for axes, cost in zip(panels, costs, strict=True):
        for row in (r for r in rows if r["cost"] == cost and (r["method"] == "firmbound" or r.get("chosen"))):
            share = np.asarray(row["time_counts"]) / np.sum(row["time_counts"])
            colour = OURS if row["method"] == "firmbound" else STATIC
            label = f"{NAMES[row['method']]}: {row['mean_time']:.1f} ± {row['time_variance'] ** 0.5:.1f}"
            axes.step(np.arange(1, len(share) + 1), share, where="mid", color=colour, label=label)
        axes.set_title(f"cost {cost:g}")
        finish(axes, "observations used", "share of sequences")
    return figure


def trajectories(
    rule: StoppingRule,
    batch: Batch,
    cost: float,
    optimal: Sequence[Sequence[float | None]] | None = None,
) -> Figure:
    """Evidence of a few sequences until their decision; with two classes, between the moving boundaries.

    A rule that looks at the past has no one boundary to draw.
    """
    figure, (axes,) = panels_of(1, width=8.0)
    evidence = batch.evidence
    assert evidence is not None
    decisions = rule.decide(evidence, cost=cost, lengths=batch.lengths)
    two = rule.problem.classes == 2
    top = np.sort(evidence, axis=-1)
    height = evidence[..., 1] - evidence[..., 0] if two else top[..., -1] - top[..., -2]
    _draw_paths(axes, height, batch.labels, decisions)
    if two and not rule.remembers:
        t = np.arange(1, rule.problem.horizon)
        low, high = continuation_interval(rule, cost).T
        axes.plot(t, low, color="black", lw=1.5, label="boundary: decide outside")
        axes.plot(t, high, color="black", lw=1.5)
        if optimal is not None:
            exact = np.array(optimal, dtype=float)
            axes.plot(t, exact, color=OPTIMUM, lw=1, ls="--", label=None)
            axes.plot([], [], color=OPTIMUM, lw=1, ls="--", label="exact optimum's boundary")
    if two:
        # A boundary may lie beyond all that was ever seen; the picture is about what was.
        seen = 1.6 * max(1.0, np.abs(height[np.arange(len(height)), decisions.time - 1]).max())
        axes.set_ylim(-seen, seen)
    axes.set_title(f"cost {cost:g}: dots are decisions, crosses wrong ones")
    finish(axes, "observation", "log-likelihood ratio" if two else "lead of the first class over the second")
    return figure


def risk_surface(rule: StoppingRule, cost: float, steps: Sequence[int]) -> Figure | None:
    """Risk of stopping and of going on over posteriors: curves for two classes, regions of the simplex for three.

    None for more, and for a rule that looks at the past: its risk is no function of the posterior alone.
    """
    if rule.remembers:
        return None
    if rule.problem.classes == 2:
        return _risk_lines(rule, cost, steps)
    if rule.problem.classes == 3:
        return _simplex_regions(rule, cost, steps)
    return None


def _risk_lines(rule: StoppingRule, cost: float, steps: Sequence[int]) -> Figure:
    figure, (axes,) = panels_of(1)
    share = np.linspace(1e-6, 1 - 1e-6, 801)
    belief = np.stack([1 - share, share], axis=1)
    evidence = np.log(belief) - np.log(rule.prior)
    axes.plot(share, rule.problem.scale * rule.problem.stopping_risk(belief), color="black", label="stop now")
    for t, shade in zip(steps, np.linspace(0.35, 1.0, len(steps)), strict=True):
        outlook = rule.outlook(evidence, t=t, cost=cost)
        axes.plot(share, outlook.continuation_risk, color=OURS, alpha=shade, label=f"go on at t = {t}")
        if not np.isnan(outlook.deviation).any():
            doubt = 2 * outlook.deviation
            below, above = outlook.continuation_risk - doubt, outlook.continuation_risk + doubt
            axes.fill_between(share, below, above, color=OURS, alpha=0.25 * shade, lw=0)
    sure = f" by a confidence of {rule.confidence:g}" if rule.confidence > 0.5 else ""
    axes.set_title(f"cost {cost:g}: stop where the black line is lower{sure}")
    finish(axes, "posterior of class 1", "risk")
    return figure


def _simplex_regions(rule: StoppingRule, cost: float, steps: Sequence[int]) -> Figure:
    figure, panels = panels_of(len(steps), width=4.0)
    belief = _simplex_grid(120)
    evidence = np.log(np.maximum(belief, 1e-12)) - np.log(rule.prior)
    across = belief @ np.array([0.0, 1.0, 0.5])
    up = belief @ np.array([0.0, 0.0, np.sqrt(3) / 2])
    for axes, t in zip(panels, steps, strict=True):
        outlook = rule.outlook(evidence, t=t, cost=cost)
        colours = np.array([*CLASS_COLOURS[:3], GRID])[np.where(outlook.decided, outlook.label, 3)]
        axes.scatter(across, up, c=colours, s=5, marker="h", linewidths=0, rasterized=True)
        axes.set_title(f"t = {t}", pad=16)
        axes.set_aspect("equal")
        axes.axis("off")
        for k, (x, y) in enumerate([(0.0, -0.06), (1.0, -0.06), (0.5, 0.91)]):
            axes.text(x, y, f"class {k}", ha="center", va="center", color=CLASS_COLOURS[k])
    figure.suptitle(f"cost {cost:g}: coloured = decide, grey = go on")
    return figure


def risk_envelope(rule: StoppingRule, cost: float, t: int) -> Figure | None:
    """Three classes in space: the risk of stopping over the simplex, and the concave risk of going on.

    The lower of the two is what is paid; where they meet, the boundary. None for other numbers of classes, and for a
    rule that looks at the past.
    """
    if rule.problem.classes != 3 or rule.remembers:
        return None
    belief = _simplex_grid(42)  # its middle is a point of it
    evidence = np.log(np.maximum(belief, 1e-12)) - np.log(rule.prior)
    outlook = rule.outlook(evidence, t=t, cost=cost)
    across, deep = belief @ np.array([0.0, 1.0, 0.5]), belief @ np.array([0.0, 0.0, np.sqrt(3) / 2])
    figure = Figure(figsize=(7.0, 5.0), layout="constrained")
    axes: Any = figure.add_subplot(projection="3d")
    axes.plot_trisurf(across, deep, outlook.stopping_risk, color=STATIC, alpha=0.35, linewidth=0)
    axes.plot_trisurf(across, deep, outlook.continuation_risk, color=OURS, alpha=0.6, linewidth=0)
    for k, (x, y) in enumerate([(0.0, 0.0), (1.0, 0.0), (0.5, np.sqrt(3) / 2)]):
        axes.text(x, y, 0.0, f"class {k}", color=CLASS_COLOURS[k], ha="center")
    axes.set_title(f"cost {cost:g}, t = {t}: stop where grey is lower, go on where blue is")
    axes.set_zlabel("risk")
    axes.set_xticks([])
    axes.set_yticks([])
    return figure


def _simplex_grid(count: int) -> Floats:
    first, second = np.meshgrid(np.arange(count + 1), np.arange(count + 1))
    inside = first + second <= count
    a, b = first[inside] / count, second[inside] / count
    return np.stack([1 - a - b, a, b], axis=1).clip(0.0, 1.0)


def _draw_paths(axes: Axes, height: Floats, labels: Ints, decisions: Decisions) -> None:
    for path, label, time, said in zip(height, labels, decisions.time, decisions.label, strict=True):
        colour = CLASS_COLOURS[int(label) % len(CLASS_COLOURS)]
        axes.plot(np.arange(1, time + 1), path[:time], color=colour, alpha=0.35, lw=0.8)
        axes.plot(time, path[time - 1], "o" if said == label else "x", color=colour, ms=4 if said == label else 7)


def _costs(rows: Sequence[Row]) -> list[float]:
    return sorted({row["cost"] for row in rows})


def calibration(honesty: Mapping[str, Any]) -> Figure:
    """Reliability at some t; calibration error and negative log-likelihood at every t."""
    figure, (curves, errors, losses) = panels_of(3)
    least = 1.0
    for colour, (t, curve) in zip(CLASS_COLOURS, honesty["reliability"].items(), strict=False):
        filled = np.asarray(curve["count"]) >= ENOUGH
        sure, right = np.asarray(curve["confidence"])[filled], np.asarray(curve["accuracy"])[filled]
        curves.plot(sure, right, "o-", color=colour, markersize=3, label=f"t = {t}")
        least = min([least, *sure, *right])
    curves.plot([least, 1], [least, 1], color=STATIC, ls=":")
    finish(curves, "how sure", "how often right")
    t = np.arange(1, len(honesty["error"]) + 1)
    errors.plot(t, honesty["error"], color=OURS)
    errors.plot(t, honesty["chance"], color=STATIC, ls=":", label="by chance, were beliefs honest")
    if honesty["limit"] is not None:
        limit = honesty["limit"] + np.asarray(honesty["chance"])
        errors.plot(t, limit, color=OPTIMUM, ls="--", label="limit above chance")
    errors.set_ylim(bottom=0)
    finish(errors, "observations", "calibration error")
    losses.plot(t, honesty["negative_log_likelihood"], color=OURS)
    losses.set_ylim(bottom=0)
    finish(losses, "observations", "negative log-likelihood", legend=False)
    return figure
