"""What all figures share: colours, panels side by side, axes without clutter."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

OURS, STATIC, GRID = "#1763c6", "#8a8f98", "#e3e6ea"
COLOURS = ("#d9480f", "#2b8a3e", "#862e9c", "#b08900", "#0b7285", "#c2255c", "#5c940d", "#364fc7", "#99582a", "#495057")
ACROSS = 3  # panels of a row


def panels_of(count: int, width: float | None = None) -> tuple[Figure, list[Axes]]:
    """Panels side by side, in rows of ACROSS."""
    each, across = width or (6.5 if count == 1 else 4.2), min(count, ACROSS)
    rows = -(-count // across)
    figure = Figure(figsize=(each * across, 4.0 * rows), layout="constrained")
    panels = list(np.atleast_1d(figure.subplots(rows, across)).flat)
    for empty in panels[count:]:
        empty.axis("off")
    return figure, panels[:count]


def finish(axes: Axes, across: str, up: str, *, legend: bool = True) -> None:
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.grid(color=GRID)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if legend and axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=8)
