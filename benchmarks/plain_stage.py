"""A stage without Prefect, to see what Prefect costs: `python -m benchmarks.plain_stage <stage> <dataset>`.

What the flows take from Prefect stands here in a few lines: flows are functions, tasks run on plain threads, logs go to
the console. All else is the stage as it is.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from types import ModuleType
from typing import Any

POOL = ThreadPoolExecutor(2)


class PlainTask:
    def __init__(self, work: Callable[..., Any], **_: Any) -> None:
        self.work = work

    def submit(self, *arguments: Any) -> Future[Any]:
        return POOL.submit(lambda: self.work(*[one.result() if isinstance(one, Future) else one for one in arguments]))


class PlainFlow:
    def __init__(self, work: Callable[..., Any]) -> None:
        self.work, self.name = work, work.__name__

    def with_options(self, **_: Any) -> PlainFlow:
        return self

    def __call__(self, *arguments: Any, return_state: bool = False) -> Any:
        failed = self.work(*arguments)
        return failed or PlainState("")


class PlainState:
    def __init__(self, message: str, *, completed: bool = True) -> None:
        self.message, self.completed = message, completed

    def is_completed(self) -> bool:
        return self.completed


def instead_of_prefect() -> None:
    """Modules of the names that flows import."""
    made: dict[str, dict[str, Any]] = {
        "prefect": {
            "flow": lambda **_: PlainFlow,
            "task": lambda **_: PlainTask,
            "Task": PlainTask,
            "get_run_logger": lambda: logging.getLogger("firmbound"),
            "tags": lambda *_: nullcontext(),
        },
        "prefect.cache_policies": {"NO_CACHE": None},
        "prefect.futures": {"PrefectFuture": Future},
        "prefect.runtime": {"flow_run": None},
        "prefect.states": {"Failed": lambda message: PlainState(message, completed=False)},
        "prefect.task_runners": {
            "TaskRunner": list,  # anything that can be written with brackets
            "ThreadPoolTaskRunner": lambda **_: None,
            "ProcessPoolTaskRunner": None,
        },
    }
    for name, content in made.items():
        module = ModuleType(name)
        module.__dict__.update(content)
        sys.modules[name] = module


if __name__ == "__main__":
    instead_of_prefect()
    logging.basicConfig(level=logging.INFO)
    from flows.stage import main

    main(sys.argv.pop(1))
