"""Where tasks run: the task runner of params.yaml, and backward induction's schedule on top of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from prefect import Task
from prefect.cache_policies import NO_CACHE
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

from firmbound.schedule import Handle
from flows.params import Runner
from flows.redaction import hides_secrets

R = TypeVar("R")


def make_task_runner(runner: Runner) -> TaskRunner[Any]:
    return ThreadPoolTaskRunner(max_workers=runner.workers)


def work_task(work: Callable[..., R], name: str) -> Task[..., R]:
    """`work` as a Prefect task. DVC is the only cache, so Prefect keeps no results; arithmetic is never retried."""
    called = work.__name__.strip("_")
    work = hides_secrets(work)
    return Task(work, name=called, task_run_name=name, cache_policy=NO_CACHE, persist_result=False)


class PrefectSchedule:
    """Runs backward induction's work as tasks of the flow that is under way, named by data set and time step."""

    def __init__(self, dataset: str) -> None:
        self.dataset = dataset

    def submit(self, name: str, work: Callable[..., R], *arguments: Any) -> Handle[R]:
        # Prefect replaces futures among the arguments by their results, as a Schedule must.
        return work_task(work, f"{self.dataset} {name}").submit(*arguments)
