"""The model registry: results of a data set logged as a run, its model registered and, if it may, promoted."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.models import ModelSignature
from mlflow.types import ParamSchema, ParamSpec, Schema, TensorSpec

from firmbound.bundle import ARRAYS, read_header
from firmbound.stopping_rule import StoppingRule
from firmbound.version import __version__
from flows.gate import refusal
from flows.params import Params
from flows.stage import stage_folder
from flows.tracking import EXPERIMENT, connect, flat

CHAMPION = "champion"
FINGERPRINT = "firmbound.bundle_sha256"
RESULTS = "firmbound.metrics_sha256"
MODEL_CODE = Path(__file__).with_name("served_rule.py")


def model_name(dataset: str) -> str:
    return f"firmbound-{dataset}"


def log_results(dataset: str, params: Params) -> str:
    """Log a run and register its rule; returns the version. What is logged and registered already is not again."""
    client = connect()
    metrics = json.loads((stage_folder(dataset, "evaluation") / "metrics.json").read_text())
    tags = {"dataset": dataset, FINGERPRINT: fingerprint(dataset), RESULTS: _digest(metrics)}
    found = find_version(client, dataset)
    if found and _find_run(client, tags):
        return _promote(client, dataset, found)
    mlflow.set_experiment(EXPERIMENT)
    with mlflow.start_run(run_name=dataset, tags=tags):
        for section in ("features", "tandem", "boundary"):
            mlflow.log_params(flat({section: getattr(params, section)[dataset].model_dump()}))
        mlflow.log_metrics(_flat_metrics(metrics))
        mlflow.log_artifacts(str(stage_folder(dataset, "report")), "report")
        version = found or _register(dataset)
    return _promote(client, dataset, version)


def ensure_registered(dataset: str, params: Params) -> str:
    """The version that holds the bundle on disk and is champion; logs and registers it only if there is none."""
    client = connect()
    version = find_version(client, dataset)
    return log_results(dataset, params) if version is None else _promote(client, dataset, version)


def find_version(client: MlflowClient, dataset: str) -> str | None:
    """The registered version that holds exactly the bundle on disk."""
    wanted = fingerprint(dataset)
    try:
        versions = client.search_model_versions(f"name = '{model_name(dataset)}'")
    except MlflowException:
        return None
    return next((str(v.version) for v in versions if v.tags.get(FINGERPRINT) == wanted), None)


def _find_run(client: MlflowClient, tags: dict[str, str]) -> bool:
    experiment = client.get_experiment_by_name(EXPERIMENT)
    wanted = " and ".join(f"tags.`{name}` = '{value}'" for name, value in tags.items())
    return bool(client.search_runs([experiment.experiment_id], f"{wanted} and attributes.status = 'FINISHED'"))


def _promote(client: MlflowClient, dataset: str, version: str) -> str:
    """Make a version the champion, unless its evidence is not calibrated: then it is not, and another stays."""
    name = model_name(dataset)
    if refusal(dataset) is None:
        client.set_registered_model_alias(name, CHAMPION, version)
    elif str(client.get_registered_model(name).aliases.get(CHAMPION)) == version:
        client.delete_registered_model_alias(name, CHAMPION)
    return version


def _digest(metrics: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(metrics, sort_keys=True).encode()).hexdigest()


def fingerprint(dataset: str) -> str:
    """What tells one fitted model from another: the checksums of its arrays."""
    return "+".join(str(read_header(bundle)["sha256"][ARRAYS]) for bundle in bundles(dataset).values())


def bundles(dataset: str) -> dict[str, Path]:
    """The folders of a model: the rule, and the network where evidence is learned."""
    found = {"rule": stage_folder(dataset, "boundary"), "network": stage_folder(dataset, "tandem") / "network"}
    return {name: folder for name, folder in found.items() if name == "rule" or folder.is_dir()}


def _register(dataset: str) -> str:
    parts = bundles(dataset)
    problem = StoppingRule.load(parts["rule"]).problem
    width = int(read_header(parts["network"])["dimension"]) if "network" in parts else problem.classes
    signature = ModelSignature(
        inputs=Schema([TensorSpec(np.dtype(np.float64), (-1, -1, width))]),
        params=ParamSchema([ParamSpec("cost", "double", float(problem.costs[0]))]),
    )
    info = mlflow.pyfunc.log_model(
        name="rule",
        python_model=str(MODEL_CODE),
        artifacts={name: str(folder) for name, folder in parts.items()},
        signature=signature,
        input_example=np.zeros((1, 1, width)),
        pip_requirements=[f"firmbound=={__version__}"],
    )
    # Tags come with the version in one transaction: a kill leaves no version without its fingerprint.
    registered = mlflow.register_model(info.model_uri, model_name(dataset), tags={FINGERPRINT: fingerprint(dataset)})
    return str(registered.version)


def _flat_metrics(metrics: dict[str, dict[str, float]]) -> dict[str, float]:
    """{cost: {measure: value}} -> {"cost/measure": value}."""
    return {f"{cost}/{name}": float(value) for cost, measures in metrics.items() for name, value in measures.items()}
