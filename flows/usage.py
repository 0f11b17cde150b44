"""What a process has used since it was started: seconds, CPU seconds, peak memory."""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path

STATUS = Path("/proc/self/status")


class Usage:
    """Counts from the start of the process, imports included: for small stages they are most of it."""

    def __init__(self) -> None:
        import psutil

        self.before = max(0.0, time.time() - psutil.Process().create_time())
        self.started = time.perf_counter()

    def now(self) -> dict[str, float]:
        """seconds: on the clock. cpu_seconds: of all threads, and of child processes that have ended.

        peak_mb: the most memory that this process held at one time. child_peak_mb: at most so much the largest of its
        children that have ended; Linux counts in what a child shared with this process when it was started. They were
        not at their peaks together, so nobody should add them.
        """
        spent = os.times()
        return {
            "seconds": round(self.before + time.perf_counter() - self.started, 3),
            "cpu_seconds": round(spent.user + spent.system + spent.children_user + spent.children_system, 3),
            "peak_mb": round(_own_peak() / 2**20, 1),
            "child_peak_mb": round(_largest_child() / 2**20, 1),
        }


def _own_peak() -> int:
    """Bytes. Linux counts in getrusage what the process that started this one held, so the kernel's mark is better."""
    try:
        (line,) = (line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        return _bytes(resource.RUSAGE_SELF)


def _largest_child() -> int:
    return _bytes(resource.RUSAGE_CHILDREN)


def _bytes(whose: int) -> int:
    most = resource.getrusage(whose).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
