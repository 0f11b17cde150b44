"""Progress a person can follow: a bar in a terminal, a line now and then in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

SECONDS_BETWEEN_LINES = 5.0
Advance = Callable[[int, int], None]


@contextmanager
def progress(what: str) -> Iterator[Advance]:
    """Yield `advance(done, total)`; says how long it took at the end."""
    console = Console(file=sys.stderr)
    started = time.perf_counter()
    show = _bar if console.is_terminal else _lines
    with show(console, what) as advance:
        yield advance
    console.print(f"  {what}: done in {time.perf_counter() - started:.1f} s", highlight=False)


@contextmanager
def _bar(console: Console, what: str) -> Iterator[Advance]:
    columns = (
        TextColumn("  {task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def _lines(console: Console, what: str) -> Iterator[Advance]:
    last = time.perf_counter()

    def advance(done: int, total: int) -> None:
        nonlocal last
        if time.perf_counter() - last >= SECONDS_BETWEEN_LINES:
            last = time.perf_counter()
            console.print(f"  {what}: {done}/{total}", highlight=False)

    yield advance
