"""The figures of the side experiments: each from rows of firmbound.study.experiments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from firmbound.report.drawing import COLOURS, finish, panels_of

Row = Mapping[str, Any]
SHAPES = {"cfl": "o", "gp": "s"}


def small_data(rows: Sequence[Row]) -> Figure:
    """AAPR and error with fewer and fewer training sequences, as the paper draws them, and the risk above optimum."""
    return _three_panels(rows, lambda row: (row["method"], f"{row['sequences']:,} sequences"))


def statistics(rows: Sequence[Row]) -> Figure:
    """Ratios and posteriors as what a Gaussian process sees."""
    return _three_panels(rows, lambda row: (row["method"], f"sees {row['setting']}"))


def option_sensitivity(rows: Sequence[Row]) -> Figure:
    """Risk above the optimum for every option, a line a setting: flat and low is insensitive."""
    names = list(dict.fromkeys(row["experiment"] for row in rows))
    figure, panels = panels_of(len(names), width=5.2)
    for axes, name in zip(panels, names, strict=True):
        own = [row for row in rows if row["experiment"] == name]
        for place, setting in enumerate(dict.fromkeys(row["setting"] for row in own)):
            some = [row for row in own if row["setting"] == setting]
            _line(axes, some, "cost", "regret", 100.0, COLOURS[place % len(COLOURS)], setting, "o")
        axes.set(yscale="log")
        axes.set_title(name)
        _cost_axis(axes, own)
        finish(axes, "cost of an observation", "risk above the exact optimum, %")
    return figure


def seconds_of_a_look(rows: Sequence[Row]) -> Figure:
    """CPU time and error of one continuation risk, by number of training sequences."""
    figure, panels = panels_of(2, width=5.2)
    drawn = (
        ("look_cpu_seconds", 1e6, "CPU microseconds of one look"),
        ("look_error", 1.0, "mean error of the continuation risk"),
    )
    for axes, (measure, factor, label) in zip(panels, drawn, strict=True):
        for place, method in enumerate(dict.fromkeys(row["method"] for row in rows)):
            some = [row for row in rows if row["method"] == method]
            _line(axes, some, "sequences", measure, factor, COLOURS[place], method, "o")
        axes.set(xscale="log", yscale="log")
        finish(axes, "training sequences", label)
    return figure


def seconds_of_fitting(rows: Sequence[Row]) -> Figure:
    """CPU time of a whole backward induction, by number of training sequences."""
    figure, (axes,) = panels_of(1)
    for place, method in enumerate(dict.fromkeys(row["method"] for row in rows)):
        some = [row for row in rows if row["method"] == method]
        _line(axes, some, "sequences", "cpu_seconds", 1.0, COLOURS[place], method, "o")
    axes.set(xscale="log", yscale="log")
    finish(axes, "training sequences", "CPU seconds of a fit, all costs")
    return figure


def _three_panels(rows: Sequence[Row], label: Any) -> Figure:
    figure, (risk, error, regret) = panels_of(3, width=4.4)
    for place, named in enumerate(dict.fromkeys(label(row) for row in rows)):
        some = [row for row in rows if label(row) == named]
        drawn = (COLOURS[place % len(COLOURS)], ", ".join(named), SHAPES[named[0]])
        _line(risk, some, "cost", "aapr", 1.0, *drawn)
        _line(error, some, "mean_time", "error_rate", 100.0, *drawn, by="cost")
        _line(regret, some, "cost", "regret", 100.0, *drawn)
    _cost_axis(risk, rows)
    _cost_axis(regret, rows)
    regret.set(yscale="log")
    finish(risk, "cost of an observation", "AAPR", legend=False)
    finish(error, "mean number of observations", "error, %", legend=False)
    finish(regret, "cost of an observation", "risk above the exact optimum, %")
    return figure


def _cost_axis(axes: Axes, rows: Sequence[Row]) -> None:
    """Logarithmic, with the costs themselves as marks: there are few, and powers of ten between them would crowd."""
    costs = sorted({row["cost"] for row in rows})
    axes.set_xscale("log")
    axes.set_xticks(costs, [f"{cost:g}" for cost in costs])
    axes.minorticks_off()


def _line(
    axes: Axes,
    rows: Sequence[Row],
    across: str,
    up: str,
    factor: float,
    colour: str,
    label: str,
    marker: str,
    by: str | None = None,
) -> None:
    """Means over repeats with what repeats differ by, a point for each value of `by`, or of what is drawn across."""
    places: dict[float, list[Row]] = {}
    for row in rows:
        places.setdefault(row[by or across], []).append(row)
    order = sorted(places)
    x = [float(np.mean([row[across] for row in places[place]])) for place in order]
    y = [factor * float(np.mean([row[up] for row in places[place]])) for place in order]
    spread = [factor * float(np.std([row[up] for row in places[place]])) for place in order]
    axes.errorbar(x, y, spread, color=colour, marker=marker, markersize=4, capsize=2, lw=1.2, label=label)
