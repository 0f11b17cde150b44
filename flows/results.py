"""Results of a data set in MLflow: a run with params, metrics and the report; its classifier registered with it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import mlflow
from mlflow import MlflowClient

from firmbound.store import TrajectoryStore
from flows.gate import refusal
from flows.params import Params
from flows.promotion import of_store
from flows.registry import (
    ARTIFACT,
    FINGERPRINT,
    Standing,
    find_version,
    fingerprint,
    model_name,
    one_at_a_time,
    register_classifier,
    standings,
)
from flows.stage import stage_folder
from flows.tracking import EXPERIMENT, connect, flat

RESULTS = "firmbound.metrics_sha256"


def classifier_folder(dataset: str) -> Path:
    return stage_folder(dataset, "evaluation") / ARTIFACT


def log_results(dataset: str, params: Params) -> str:
    """Log a run and register its model; returns the version. What is logged and registered already is not again."""
    with one_at_a_time():
        client = connect()
        metrics = json.loads((stage_folder(dataset, "evaluation") / "metrics.json").read_text())
        folder = classifier_folder(dataset)
        tags = {"dataset": dataset, FINGERPRINT: fingerprint(folder), RESULTS: _digest(metrics)}
        if find_version(client, dataset, folder) and _find_run(client, tags):
            return _register(dataset)
        mlflow.set_experiment(EXPERIMENT)
        with mlflow.start_run(run_name=dataset, tags=tags):
            for section in ("features", "tandem", "boundary"):
                mlflow.log_params(flat({section: getattr(params, section)[dataset].model_dump()}))
            mlflow.log_metrics(_flat_metrics(metrics))
            mlflow.log_artifacts(str(stage_folder(dataset, "report")), "report")
            return _register(dataset)


def ensure_registered(dataset: str, params: Params) -> str:
    """The version that holds the classifier on disk; logs and registers it only if there is none."""
    with one_at_a_time():
        if find_version(connect(), dataset, classifier_folder(dataset)) is not None:
            return _register(dataset)
    return log_results(dataset, params)


def standing(dataset: str) -> Standing:
    """Of the version that holds the classifier on disk."""
    version = find_version(connect(), dataset, classifier_folder(dataset))
    return next(one for one in standings(model_name(dataset)) if one.version == version)


def _register(dataset: str) -> str:
    test = TrajectoryStore(stage_folder(dataset, "features") / "test.zarr")
    return register_classifier(
        classifier_folder(dataset),
        dataset,
        parts=of_store(test),
        refused=refusal(dataset),
        in_run=mlflow.active_run() is not None,
    )


def _find_run(client: MlflowClient, tags: dict[str, str]) -> bool:
    experiment = client.get_experiment_by_name(EXPERIMENT)
    wanted = " and ".join(f"tags.`{name}` = '{value}'" for name, value in tags.items())
    return bool(client.search_runs([experiment.experiment_id], f"{wanted} and attributes.status = 'FINISHED'"))


def _digest(metrics: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(metrics, sort_keys=True).encode()).hexdigest()


def _flat_metrics(metrics: dict[str, dict[str, float]]) -> dict[str, float]:
    """{cost: {measure: value}} -> {"cost/measure": value}."""
    return {f"{cost}/{name}": float(value) for cost, measures in metrics.items() for name, value in measures.items()}
