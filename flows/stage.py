"""How every stage starts and ends: `python -m flows.<stage> <dataset>`, one clear line on failure."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from flows.observability import RUN, observed
from flows.redaction import hides_secrets, redact

if TYPE_CHECKING:
    from prefect.task_runners import TaskRunner

    from flows.params import Params

DATA = Path("data")
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
P = ParamSpec("P")
C = TypeVar("C")


def stage_folder(dataset: str, stage: str) -> Path:
    """Stage = flow = folder: data/<dataset>/<stage>."""
    return DATA / dataset / stage


def main(stage: str) -> None:
    """Run the stage's flow for the data set named on the command line."""
    if len(sys.argv) != 2:
        sys.exit(f"usage: python -m flows.{stage} <dataset>")
    with observed(stage, sys.argv[1]):
        start(stage, sys.argv[1])


def start(stage: str, name: str) -> None:
    logging.captureWarnings(True)
    keep_quiet_about_known_errors()
    from importlib import import_module

    from flows.params import check_dataset_name
    from flows.processes import keep_to, share_of_cores

    params, dataset, runner = begin(lambda params: check_dataset_name(params, name))
    # The same number of threads wherever tasks run, so that results are the same to the bit.
    keep_to(share_of_cores(params.runner.workers))
    flow = getattr(import_module(f"flows.{stage}"), f"{stage}_flow")
    run_flow(flow.with_options(task_runner=runner), dataset, params)


def begin(check: Callable[[Params], C]) -> tuple[Params, C, TaskRunner[Any]]:
    """params.yaml, what `check` gives for it, and the task runner that it asks for; a slip in it ends with one line."""
    from firmbound.errors import FirmboundError
    from flows.params import read_params
    from flows.runners import make_task_runner

    try:
        params = read_params()
        return params, check(params), make_task_runner(params.runner)
    except FirmboundError as problem:
        sys.exit(redact(f"firmbound: {problem}"))


def forget_others(folder: Path) -> None:
    """Remove the neighbours of a folder that is named after its work: they are of other settings or files."""
    for other in folder.parent.glob("*"):
        if other != folder:
            shutil.rmtree(other, ignore_errors=True)


def keep_quiet_about_known_errors() -> None:
    """A task that ends in an error of ours is logged without a traceback: its message says all."""
    from firmbound.errors import FirmboundError

    def shorten(record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if isinstance(error, FirmboundError):
            record.exc_info, record.exc_text = None, None
            record.msg, record.args = "%s", (redact(str(error)),)
        return True

    logging.getLogger("prefect.task_runs").addFilter(shorten)


def run_flow(flow: Any, *arguments: Any) -> None:
    """Run to the end; a failed run ends the process with one line and exit code 1."""
    from prefect import tags

    try:
        with tags(*filter(None, [os.environ.get(RUN)])):
            state = flow(*arguments, return_state=True)
    except RuntimeError as problem:
        if "Failed to reach API" not in str(problem):
            raise
        sys.exit(
            redact(
                f"firmbound: {flow.name} failed: the Prefect server does not answer ({problem}). Start it, or unset "
                "PREFECT_API_URL; then run again, nothing is lost."
            )
        )
    if not state.is_completed():
        sys.exit(redact(f"firmbound: {flow.name} failed: {state.message}"))


def reports_failure(work: Callable[P, Any]) -> Callable[P, Any]:
    """A flow body whose known errors become a failed flow run with their message, without a traceback."""

    @wraps(work)
    def body(*args: P.args, **kwargs: P.kwargs) -> Any:
        from prefect.states import Failed

        from firmbound.errors import FirmboundError

        try:
            return hides_secrets(work)(*args, **kwargs)
        except FirmboundError as problem:
            return Failed(message=str(problem))
        except OSError as problem:
            if problem.errno not in DISK_FULL:
                raise
            return Failed(message=f"the disk is full ({problem}). Make room and run again: what was there still is.")

    return body
