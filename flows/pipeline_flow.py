"""The flow above the stages: what shows as one run in the Prefect UI."""

import subprocess
import sys

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE

from firmbound.errors import FirmboundError
from flows.observability import observed
from flows.params import Params, read_params
from flows.pipeline import DVC, STUDY
from flows.results import ensure_registered
from flows.stage import keep_quiet_about_known_errors, reports_failure, run_flow
from flows.stage_tracking import track_stages


class PipelineError(FirmboundError):
    """`dvc repro` ended with an error, which it has printed."""


@flow(name="pipeline", flow_run_name="pipeline of {params.datasets}")
@reports_failure
def pipeline_flow(params: Params) -> None:
    """Bring all stages up to date, then make sure that each data set's rule on disk is its registered champion."""
    try:
        reproduce()
    finally:  # also of stages that failed
        track()
    for dataset in params.datasets:
        register.with_options(task_run_name=f"register {dataset}")(dataset, params)


@flow(name="study pipeline", flow_run_name="study of {params.study.datasets}")
@reports_failure
def study_pipeline_flow(params: Params) -> None:
    """Bring the study and what it needs of the stages up to date."""
    try:
        reproduce("study/dvc.yaml")
    finally:
        track()


@task(name="dvc repro", cache_policy=NO_CACHE)
def reproduce(*targets: str) -> None:
    ended = subprocess.run([*DVC, "repro", *targets], check=False)
    if ended.returncode:
        raise PipelineError(f"dvc repro ended with exit code {ended.returncode}; the reason stands above")


def track() -> None:
    """What stages used goes to MLflow. A run that did its work is not lost for want of that."""
    try:
        new = track_stages()
    except Exception as problem:
        get_run_logger().warning("what stages used could not be logged with MLflow: %s", problem)
    else:
        get_run_logger().info("%d stage runs are new in MLflow; `firmbound logs --stages` shows them", new)


@task(name="register", cache_policy=NO_CACHE)
def register(dataset: str, params: Params) -> None:
    """The report stage registers what it logs; this mends a registry that was lost or replaced since."""
    get_run_logger().info("%s is version %s", dataset, ensure_registered(dataset, params))


if __name__ == "__main__":
    chosen = study_pipeline_flow if sys.argv[1:] == [STUDY] else pipeline_flow
    with observed(chosen.name):
        keep_quiet_about_known_errors()
        run_flow(chosen, read_params())
