"""What the command line shows in columns, and what it says where a rule pays other than it believes."""

import sys

from rich.console import Console
from rich.table import Table

from firmbound.early.front import FrontPoint
from firmbound.evaluation.risk_gap import in_words


def show_front(points: list[FrontPoint], cost: float, where: str) -> None:
    """Every cost of a front; a star at `cost`."""
    rows = [
        [
            f"{p.cost:g}" + (" *" if p.cost == cost else ""),
            f"{p.mean_time:.2f} ± {p.mean_time_error:.2f}",
            f"{100 * p.error:.2f} % ({100 * p.error_low:.2f} to {100 * p.error_high:.2f})",
            "" if p.believed_risk is None else f"{p.believed_risk:.3f} ± {p.believed_risk_error:.3f}",
            f"{p.risk:.3f} ± {p.risk_error:.3f}",
        ]
        for p in points
    ]
    columns = ["cost", "observations", "wrong (95 %)", "believed risk", "realised risk"]
    show_table(f"the front {where}; * this cost", columns, rows)
    say_alarms(points)


def say_alarms(points: list[FrontPoint]) -> None:
    """Costs at which beliefs are not honest, on the side where no other program reads."""
    for p in points:
        if p.alarm is not None and p.believed_risk is not None:
            said = in_words(p.cost, p.believed_risk, p.risk, p.risk_error)
            print(f"{p.alarm}: {said}; judge it by what it pays", file=sys.stderr)


def show_table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*row)
    Console().print(table)
