"""The flow above the stages: what shows as one run in the Prefect UI."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.runtime import flow_run
from prefect.states import Cancelled, Completed

from firmbound.errors import FirmboundError
from flows.observability import RUN, STAGE, attach, observed
from flows.params import Params, read_params
from flows.pipeline import DVC, STUDY
from flows.process_tree import end, tree
from flows.redaction import hides_secrets, redact
from flows.registry import Standing
from flows.results import ensure_registered, standing
from flows.run_page import show, verdict
from flows.stage import keep_quiet_about_known_errors, reports_failure, run_flow
from flows.stage_tracking import track_stages
from flows.warm import warm_stages

LOCK = Path(".dvc/tmp/firmbound.lock")
DVC_LOCKS = Path(".dvc/tmp/rwlock")


class PipelineError(FirmboundError):
    """`dvc repro` ended with an error, which it has printed."""


class AnotherRun(FirmboundError):
    """Somebody else runs the pipeline in this folder."""


def run_name() -> str:
    return f"pipeline {datetime.now().astimezone():%Y-%m-%d %H:%M:%S}"


@flow(name="pipeline", flow_run_name=run_name)
@reports_failure
def pipeline_flow() -> Any:
    """Bring all stages up to date, then make sure that each data set's rule on disk is registered and was judged.

    params.yaml is read when a run begins, so a deployment need not be served again after a change.
    """
    os.environ.setdefault(STAGE, "pipeline")  # a scheduled run comes without `observed`
    attach()
    keep_quiet_about_known_errors()
    params = read_params()
    try:
        with alone():
            bring_up_to_date(params)
            found = {
                dataset: register.with_options(task_run_name=f"register {dataset}")(dataset, params)
                for dataset in params.datasets
            }
    except AnotherRun as problem:
        return Cancelled(message=str(problem))
    try:
        show(found)
    except Exception as problem:  # all is registered; a page that lacks its tables is no failure
        get_run_logger().warning("the run's page could not be made: %s", redact(str(problem)))
    return Completed(message="; ".join(f"{dataset}: {verdict(one)}" for dataset, one in found.items()))


@flow(name="study pipeline", flow_run_name="study of {params.study.datasets}")
@reports_failure
def study_pipeline_flow(params: Params) -> None:
    """Bring the study and what it needs of the stages up to date."""
    with alone():
        bring_up_to_date(params, "study/dvc.yaml")


def bring_up_to_date(params: Params, *targets: str) -> None:
    """Run what is stale, on what params ask for; what stages used is kept, also of those that failed."""
    mend_locks_of_dvc()
    try:
        with cluster_of(params), warm_stages():
            reproduce(*targets)
    finally:
        track()


@contextmanager
def alone() -> Iterator[None]:
    """One run at a time in a project, whoever started it; the kernel lets go of the lock, however the process ends."""
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    with LOCK.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise AnotherRun(f"skipped, since another run is under way: {file.read().strip()}") from None
        file.truncate(0)
        file.write(f"{flow_run.name} (process {os.getpid()})\n")
        file.flush()
        yield


def mend_locks_of_dvc(patience: float = 1.0) -> None:
    """DVC writes the list of its locks in place: a kill meanwhile leaves half of it, which no later DVC would read.

    One that another DVC is writing is whole a moment later.
    """
    until = time.monotonic() + patience
    while True:
        try:
            json.loads(DVC_LOCKS.read_bytes())
            return
        except FileNotFoundError:
            return
        except ValueError:
            if time.monotonic() > until:
                DVC_LOCKS.unlink(missing_ok=True)
                return
            time.sleep(0.05)


def cluster_of(params: Params) -> AbstractContextManager[None]:
    """What stages run on, where params ask for a Dask cluster: one for the whole run."""
    if params.runner.kind != "dask":
        return nullcontext()
    from flows.cluster import cluster_for

    return cluster_for(params.runner)


@task(name="dvc repro", cache_policy=NO_CACHE)
@hides_secrets
def reproduce(*targets: str) -> None:
    # On a terminal stages draw their own progress; elsewhere we look for the reason of a failure.
    watched = not sys.stderr.isatty()
    os.environ[RUN] = str(flow_run.name)  # on every line that a stage of this run logs
    # Whoever asks DVC something meanwhile holds its lock; after three seconds DVC would give a whole run up for that.
    command = [*DVC, "--wait-for-lock", "repro", *targets]
    dvc = subprocess.Popen(command, stderr=subprocess.PIPE if watched else None, text=True)
    reason = "the reason stands above"
    try:
        for line in dvc.stderr or ():
            sys.stderr.write(line)
            if line.startswith("firmbound: "):
                reason = line.removeprefix("firmbound: ").strip()
        code = dvc.wait()
    except BaseException as stopped:
        # The terminal's Ctrl-C was told to all of them already. Left behind, a stage would write beside the next run.
        told = isinstance(stopped, KeyboardInterrupt)
        end(lambda: tree(dvc.pid), ask=0 if told else signal.SIGINT)
        raise
    if code:
        raise PipelineError(f"dvc repro ended with exit code {code}: {reason}")


def track() -> None:
    """What stages used goes to MLflow. A run that did its work is not lost for want of that."""
    try:
        new = track_stages()
    except Exception as problem:
        get_run_logger().warning("what stages used could not be logged with MLflow: %s", problem)
    else:
        get_run_logger().info("%d stage runs are new in MLflow; `firmbound logs --stages` shows them", new)


@task(name="register", cache_policy=NO_CACHE)
@hides_secrets
def register(dataset: str, params: Params) -> Standing:
    """The report stage registers what it logs; this mends a registry that was lost or replaced since."""
    get_run_logger().info("%s is version %s", dataset, ensure_registered(dataset, params))
    return standing(dataset)


if __name__ == "__main__":
    chosen, given = (study_pipeline_flow, [read_params()]) if sys.argv[1:] == [STUDY] else (pipeline_flow, [])
    with observed(chosen.name):
        keep_quiet_about_known_errors()
        run_flow(chosen, *given)
