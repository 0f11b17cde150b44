"""Ends everybody whom `make serve` started, also where nobody else can: after kill -9.

python -m flows.guard <mark>     waits until its standard input ends, as it does when whoever started it is gone; then
                                 ends all processes that have the mark in their environment
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from flows.process_tree import GRACE_SECONDS, end, marked

MARK = "FIRMBOUND_SERVE"


@contextmanager
def guarded() -> Iterator[tuple[dict[str, str], subprocess.Popen[bytes]]]:
    """An environment for processes of which none outlives the block, and the guard, who must not end before them."""
    mark = uuid4().hex
    # A session of its own: the terminal's Ctrl-C is not meant for it.
    guard = subprocess.Popen(
        [sys.executable, "-m", "flows.guard", mark],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert guard.stdin is not None
    try:
        yield os.environ | {MARK: mark}, guard
    finally:
        guard.stdin.close()
        try:
            guard.wait(timeout=3 * GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            guard.kill()
        # In case that somebody killed the guard.
        end(lambda: marked(MARK, mark), grace=1)


def main() -> None:
    for unwanted in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(unwanted, signal.SIG_IGN)
    sys.stdin.buffer.read()
    end(lambda: marked(MARK, sys.argv[1]))


if __name__ == "__main__":
    main()
