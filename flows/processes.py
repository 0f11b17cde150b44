"""Work in processes of their own, each on one core: torch and BLAS side by side in one process are in their own way."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Any, TypeVar

from threadpoolctl import threadpool_limits

from firmbound.errors import FirmboundError
from flows.observability import attach

R = TypeVar("R")


class ProcessEnded(FirmboundError):
    """A process ended without a word."""


@contextmanager
def processes(workers: int) -> Iterator[ProcessPoolExecutor]:
    """So many processes. Their numbers do not depend on how many cores a machine has, for each keeps to one.

    What has not begun when the block fails never begins.
    """
    pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=begin, initargs=(1,))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def begin(cores: int) -> None:
    """What a process does first."""
    end_with_parent()
    attach()
    keep_to(cores)


def end_with_parent() -> None:
    """Whoever was left behind by a kill would write beside those who go on with the work."""
    parent = parent_process()
    assert parent is not None  # this runs in a child

    def watch() -> None:
        parent.join()
        os._exit(1)

    Thread(target=watch, daemon=True).start()


def share_of_cores(workers: int) -> int:
    """How many threads arithmetic may have where so many work side by side."""
    return max(1, (os.cpu_count() or 1) // workers)


def keep_to(cores: int) -> None:
    """Arithmetic has so many threads from now on, also that of libraries which are loaded later."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(cores)
    if "numba" in sys.modules:
        numba = sys.modules["numba"]
        numba.set_num_threads(min(cores, numba.config.NUMBA_NUM_THREADS))
    else:
        # Numba starts as many OpenMP threads as it was told of on import, and torch, which shares OpenMP, would then
        # have as many: beside another process on the same cores, both wait for each other most of the time.
        os.environ["NUMBA_NUM_THREADS"] = str(cores)
    threadpool_limits(cores)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(cores)


def on_one_core(work: Callable[..., R], *arguments: Any) -> R:
    """For a process that has more cores at other times."""
    before = int(os.environ.get("OMP_NUM_THREADS", "1"))
    keep_to(1)
    try:
        return work(*arguments)
    finally:
        keep_to(before)


def in_process(pool: ProcessPoolExecutor, work: Callable[..., R], *arguments: Any) -> R:
    """The result of `work`, which one of the processes runs."""
    try:
        return pool.submit(work, *arguments).result()
    except BrokenProcessPool:
        raise ProcessEnded(
            "A process ended without a word, for want of memory perhaps. Start again to go on with what is left."
        ) from None
