"""What stages used, in MLflow: one run a stage run, in an experiment of its own.

Stages do not do this themselves: importing MLflow takes longer than most of them. They leave a line in the log, and the
pipeline, which has MLflow at hand, brings those in that MLflow does not know yet: also of stages started by hand.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from mlflow import MlflowClient
from mlflow.entities import LifecycleStage, Metric, Param, Run, RunTag, ViewType
from mlflow.exceptions import MlflowException

from flows.log_reading import MEASURES, StageRun, read_log, stage_runs
from flows.tracking import EXPERIMENT as RESULTS
from flows.tracking import connect

EXPERIMENT = "firmbound-stages"
ID = "firmbound.stage_run"
# More than the log holds: lines are some hundred bytes, and a stage run has at least two.
MOST = 50_000
STATUS = {"completed": "FINISHED", "interrupted": "KILLED"}


def track_stages(lines: Iterable[dict[str, object]] | None = None) -> int:
    """Log all stage runs that have ended and that MLflow has not, or not as a whole; returns how many."""
    ended = [one for one in stage_runs(read_log() if lines is None else lines) if one.seconds is not None]
    if not ended:
        return 0
    client = connect()
    experiment = _experiment(client)
    known = _known(client, experiment)
    new = [one for one in ended if not _whole(known.get(one.id))]
    for one in new:
        begun = known.get(one.id)
        _log(client, _begin(client, experiment, one) if begun is None else begun.info.run_id, one)
    return len(new)


def _experiment(client: MlflowClient) -> str:
    found = client.get_experiment_by_name(EXPERIMENT)
    if found is not None:
        return str(found.experiment_id)
    try:
        beside = client.get_experiment_by_name(RESULTS).artifact_location
        return str(client.create_experiment(EXPERIMENT, beside))
    except MlflowException:  # another process was quicker
        return str(client.get_experiment_by_name(EXPERIMENT).experiment_id)


def _known(client: MlflowClient, experiment: str) -> dict[str, Run]:
    """Deleted ones among them: what a person removed is not brought back."""
    found = client.search_runs([experiment], run_view_type=ViewType.ALL, max_results=MOST)
    return {run.data.tags.get(ID, ""): run for run in found}


def _whole(run: Run | None) -> bool:
    """Whoever was killed while logging left a run without an end; the next one goes on with it."""
    return run is not None and (run.info.end_time is not None or run.info.lifecycle_stage == LifecycleStage.DELETED)


def _begin(client: MlflowClient, experiment: str, one: StageRun) -> str:
    tags = {ID: one.id, "stage": one.stage, "dataset": one.dataset, "result": one.result, "run": one.run}
    given = {name: value for name, value in tags.items() if value is not None}
    name = f"{one.stage} {one.dataset}" if one.dataset else one.stage
    return str(client.create_run(experiment, start_time=_begun(one), tags=given, run_name=name).info.run_id)


def _log(client: MlflowClient, run: str, one: StageRun) -> None:
    begun = _begun(one)
    measured = [(name, getattr(one, name)) for name in MEASURES]
    metrics = [Metric(name, value, begun, 0) for name, value in measured if value is not None]
    why = [RunTag("why", one.exception[:5000])] if one.exception else []
    params = [Param(name, value) for name, value in (("stage", one.stage), ("dataset", one.dataset or ""))]
    client.log_batch(run, metrics=metrics, params=params, tags=why)
    client.set_terminated(run, STATUS.get(one.result, "FAILED"), end_time=begun + int(1000 * (one.seconds or 0)))


def _begun(one: StageRun) -> int:
    return int(datetime.fromisoformat(one.begun).timestamp() * 1000)
