"""Where tasks run: threads, processes or a Dask cluster, as params.yaml says; heavy ones ask for a GPU slot.

Tasks hand on paths, never large arrays: with processes and clusters, what they take and return travels.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from prefect import Task
from prefect.cache_policies import NO_CACHE
from prefect.futures import PrefectFuture
from prefect.task_runners import ProcessPoolTaskRunner, TaskRunner, ThreadPoolTaskRunner

from firmbound.schedule import Handle
from flows.observability import DATASET, RUN, STAGE
from flows.params import Runner
from flows.processes import begin, in_process, keep_to, on_one_core, processes, share_of_cores
from flows.redaction import hides_secrets

P = ParamSpec("P")
R = TypeVar("R")
THREADS = "OMP_NUM_THREADS"
# Of tasks that a GPU makes faster: training, solvers, backbones. The tag shows in the UI.
HEAVY = "gpu"
# A cluster that was started for a whole run of the pipeline.
CLUSTER_ADDRESS = "FIRMBOUND_DASK_ADDRESS"


def make_task_runner(runner: Runner) -> TaskRunner[Any]:
    if runner.kind == "processes":
        return ProcessPoolTaskRunner(runner.workers, initializer=begin, initargs=(share_of_cores(runner.workers),))
    if runner.kind == "dask":
        from flows.cluster import SlotRunner, check_cluster, local_cluster  # a second of imports, for those who need it

        check_cluster(runner)
        address = runner.address or os.environ.get(CLUSTER_ADDRESS)
        if address:
            return SlotRunner(address=address)
        return SlotRunner(cluster_class=local_cluster, cluster_kwargs={"workers": runner.workers, "gpus": runner.gpus})
    return ThreadPoolTaskRunner(max_workers=runner.workers)


def work_task(work: Callable[..., R], name: str, *, heavy: bool = False) -> Task[..., R]:
    """`work` as a Prefect task. DVC is the only cache, so Prefect keeps no results; arithmetic is never retried."""
    return Task(
        hides_secrets(as_in_the_stage(work)),
        name=getattr(work, "__name__", name).strip("_"),
        task_run_name=name,
        tags={HEAVY} if heavy else None,
        cache_policy=NO_CACHE,
        persist_result=False,
    )


def as_in_the_stage(work: Callable[P, R]) -> Callable[P, R]:
    """Wherever it runs, work is logged under the stage that it is of, and its arithmetic has as many threads."""
    known = {name: os.environ[name] for name in (RUN, STAGE, DATASET, THREADS) if name in os.environ}

    @wraps(work)
    def body(*args: P.args, **kwargs: P.kwargs) -> R:
        if THREADS in known and os.environ.get(THREADS) != known[THREADS]:
            keep_to(int(known[THREADS]))
        os.environ.update(known)
        return work(*args, **kwargs)

    return body


class PrefectSchedule:
    """Runs backward induction's work as tasks of the flow that is under way, named by data set and time step."""

    def __init__(self, dataset: str) -> None:
        self.dataset = dataset

    def submit(self, name: str, work: Callable[..., R], *arguments: Any) -> Handle[R]:
        # Prefect replaces futures among the arguments by their results, as a Schedule must.
        return work_task(work, f"{self.dataset} {name}", heavy=True).submit(*arguments)


Submit = Callable[..., PrefectFuture[Any]]


@contextmanager
def one_core_tasks(runner: Runner) -> Iterator[Submit]:
    """Yield `submit(name, work, *arguments)`: tasks that run in processes of one core each, whatever the runner."""
    if runner.kind != "threads":
        yield lambda name, work, *arguments: work_task(on_one_core, name, heavy=True).submit(work, *arguments)
        return
    with processes(runner.workers) as pool:
        yield lambda name, work, *arguments: work_task(in_process, name).submit(pool, work, *arguments)
