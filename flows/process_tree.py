"""Ending processes together with all that they started."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterable

import psutil

# How long those who were asked to end may take, before they are killed.
GRACE_SECONDS = 10.0


def tree(process: int) -> list[psutil.Process]:
    """A process and all below it, those who were started last first."""
    try:
        root = psutil.Process(process)
        return [*reversed(root.children(recursive=True)), root]
    except psutil.NoSuchProcess:
        return []


def marked(name: str, value: str) -> list[psutil.Process]:
    """Processes that have `name=value` in the environment they were started with: it is handed down, whoever dies."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(name) == value and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def end(
    remaining: Callable[[], Iterable[psutil.Process]], *, ask: int = signal.SIGTERM, grace: float = GRACE_SECONDS
) -> None:
    """Ask all to end, once; kill those who have not after `grace` seconds, and whoever they started meanwhile."""
    asked = list(remaining())
    for process in asked:
        with contextlib.suppress(psutil.Error):
            process.send_signal(ask)
    psutil.wait_procs(asked, timeout=grace)
    deadline = time.monotonic() + grace
    while (left := _alive([*asked, *remaining()])) and time.monotonic() < deadline:
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=1)


def _alive(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    found = []
    for process in set(processes):
        with contextlib.suppress(psutil.Error):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found
