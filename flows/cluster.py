"""Dask beneath Prefect: a cluster on this machine, and slots, so that heavy tasks go where the GPUs are.

A worker declares what it has, as in `dask worker <address> --resources "GPU=1"`. Where workers declare GPUs, heavy
tasks take one each and all others take CPU slots; where none does, heavy tasks are as others.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import dask
from distributed import Nanny, Scheduler, SpecCluster
from prefect.futures import PrefectFuture
from prefect.tasks import Task
from prefect_dask import DaskTaskRunner
from prefect_dask.task_runners import PrefectDaskFuture

from firmbound.errors import ParameterError
from flows.observability import attach
from flows.params import Runner
from flows.processes import keep_to, share_of_cores
from flows.runners import CLUSTER_ADDRESS, HEAVY
from flows.servers import LOOPBACK

CONNECT_SECONDS = 20
NO_WORKERS = "300s"


class SlotRunner(DaskTaskRunner):  # type: ignore[misc]  # of a package without types
    """Tells the scheduler which slot a task takes, by the task's tag and by what the workers have."""

    def submit(
        self,
        task: Task[..., Any],
        parameters: dict[str, Any],
        wait_for: Iterable[PrefectFuture[Any]] | None = None,
        dependencies: dict[str, Any] | None = None,
    ) -> PrefectDaskFuture[Any]:
        slot = slot_of(task.tags, self._declared())
        with dask.annotate(resources=slot) if slot else nullcontext():
            return super().submit(task, parameters, wait_for, dependencies)

    def _declared(self) -> set[str]:
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        if not workers:
            self.logger.warning("The Dask cluster has no worker yet; tasks wait for one.")
        return {name for worker in workers for name, count in worker["resources"].items() if count}


def check_cluster(runner: Runner) -> None:
    """One clear error before any work where nobody answers at the address that params name."""
    if runner.kind != "dask" or runner.address is None:
        return
    host, _, port = runner.address.partition("://")[2].rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
    except OSError as problem:
        raise ParameterError(
            "runner.address",
            "be that of a Dask scheduler that answers",
            f"{runner.address} ({problem.strerror or problem})",
            "Start one with `.venv/bin/dask scheduler`, or write null to have workers started here.",
        ) from None


def slot_of(tags: Iterable[str], declared: set[str]) -> dict[str, int]:
    """What a task takes of a worker; nothing, where workers declare nothing."""
    if HEAVY in tags and "GPU" in declared:
        return {"GPU": 1}
    return {"CPU": 1} if "CPU" in declared else {}


def local_cluster(workers: int, gpus: int = 0) -> SpecCluster:
    """So many worker processes on this machine; the first ones have a GPU each. A worker that dies is started again."""
    threads = share_of_cores(workers)
    # A task that no worker can do is a failure after a while, not a wait for ever.
    dask.config.set({"distributed.scheduler.no-workers-timeout": NO_WORKERS})
    return SpecCluster(
        workers={
            f"worker-{number}": {"cls": Nanny, "options": _worker(number < gpus, number, threads)}
            for number in range(workers)
        },
        scheduler={"cls": Scheduler, "options": {"host": LOOPBACK, "dashboard": False}},
    )


def _worker(with_gpu: bool, number: int, threads: int) -> dict[str, Any]:
    own = {"CUDA_VISIBLE_DEVICES": str(number)} if with_gpu else {"CUDA_VISIBLE_DEVICES": ""}
    return {
        "host": LOOPBACK,
        "nthreads": 1,
        "resources": {"GPU": 1} if with_gpu else {"CPU": 1},
        "env": {**{name: str(threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}, **own},
        "preload": ["flows.cluster"],
        "dashboard": False,
    }


def dask_setup(worker: Any) -> None:
    """Dask calls this in a worker that preloads this file: it logs as stages do and keeps to its share of cores."""
    attach()
    keep_to(int(os.environ.get("OMP_NUM_THREADS", "1")))


@contextmanager
def cluster_for(runner: Runner) -> Iterator[None]:
    """One cluster for all stages of a run, if params ask for one and name no address; stopped at the end."""
    if runner.kind != "dask" or runner.address or os.environ.get(CLUSTER_ADDRESS):
        yield
        return
    with local_cluster(runner.workers, runner.gpus) as cluster:
        os.environ[CLUSTER_ADDRESS] = cluster.scheduler_address
        try:
            yield
        finally:
            del os.environ[CLUSTER_ADDRESS]
