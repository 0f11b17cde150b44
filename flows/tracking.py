"""MLflow: where runs are kept, and the run of a training."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import mlflow
from mlflow import MlflowClient
from mlflow.entities import Run
from mlflow.exceptions import MlflowException

if TYPE_CHECKING:  # a stage that trains nothing needs no torch
    from firmbound.tandem.model import TandemModel

EXPERIMENT = "firmbound"
IDENTITY = "firmbound.training"
# So long a database that another program has locked is waited for.
LOCK_SECONDS = 60


def database() -> Path | None:
    """The SQLite file of runs and registry; None if they are kept by a server."""
    given = os.environ.get("MLFLOW_TRACKING_URI")
    if given is None:
        return Path.cwd() / "mlflow.db"
    if not given.startswith("sqlite:///"):
        return None
    return Path(given.removeprefix("sqlite:///").partition("?")[0]).absolute()


def registry_exists() -> bool:
    """Whether there is something to look up; looking must not make a database."""
    file = database()
    return file is None or file.is_file()


def connect() -> MlflowClient:
    """The store that MLFLOW_TRACKING_URI names, or a SQLite file with artifacts beside it in the project."""
    logging.getLogger("mlflow").setLevel(logging.WARNING)  # it tells of every table it makes
    local = "MLFLOW_TRACKING_URI" not in os.environ
    if local:
        mlflow.set_tracking_uri(f"sqlite:///{database()}?timeout={LOCK_SECONDS}")
    client = MlflowClient()
    if client.get_experiment_by_name(EXPERIMENT) is None:
        try:
            client.create_experiment(EXPERIMENT, (Path.cwd() / "mlartifacts").as_uri() if local else None)
        except MlflowException:  # another process was quicker
            if client.get_experiment_by_name(EXPERIMENT) is None:
                raise
    return client


class TrainingRun:
    """The MLflow run of one training: params, losses of every epoch, the network at the end.

    A training that was killed goes on in the run it began, which its checkpoint's name finds again.
    """

    def __init__(self, dataset: str, settings: dict[str, Any], identity: str, *, stage: str = "tandem") -> None:
        self.client = connect()
        self.settings, self.tags = settings, {"dataset": dataset, "stage": stage, IDENTITY: identity}

    def __enter__(self) -> TrainingRun:
        experiment = self.client.get_experiment_by_name(EXPERIMENT).experiment_id
        self.logged = 0
        begun = unfinished_runs(self.client, self.tags)
        if begun:
            self.id = begun[0].info.run_id
            self.client.update_run(self.id, status="RUNNING")
            past = self.client.get_metric_history(self.id, "validation_loss")
            self.logged = max([0, *(point.step for point in past)])
            return self
        name = f"{self.tags['dataset']} {'network' if self.tags['stage'] == 'tandem' else self.tags[IDENTITY]}"
        self.id = self.client.create_run(experiment, tags=self.tags, run_name=name).info.run_id
        for key, value in flat(self.settings).items():
            self.client.log_param(self.id, key, value)
        return self

    def epoch(self, epoch: int, _: int, train_loss: float, validation_loss: float) -> None:
        if epoch > self.logged:  # a training that goes on tells again what lies behind it
            self.metric("train_loss", train_loss, epoch)
            self.metric("validation_loss", validation_loss, epoch)

    def metric(self, name: str, value: float, step: int = 0) -> None:
        self.client.log_metric(self.id, name, value, step=step)

    def finish(self, model: TandemModel) -> None:
        for t, temperature in enumerate(model.temperatures.tolist(), start=1):
            self.metric("temperature", temperature, t)
        with TemporaryDirectory() as folder:
            model.save(Path(folder) / "network")
            self.client.log_artifacts(self.id, str(Path(folder) / "network"), "network")

    def tag(self, name: str, value: str) -> None:
        self.client.set_tag(self.id, name, value)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        failed = "FAILED" if kind is not None and issubclass(kind, Exception) else "KILLED"  # by Ctrl-C
        self.client.set_terminated(self.id, "FINISHED" if kind is None else failed)


def unfinished_runs(client: MlflowClient, tags: dict[str, str]) -> list[Run]:
    """Runs with these tags that were killed, whether they could still say so or not; the newest first."""
    experiment = client.get_experiment_by_name(EXPERIMENT).experiment_id
    wanted = " and ".join(f"tags.`{name}` = '{value}'" for name, value in tags.items())
    found = client.search_runs([experiment], wanted)
    return [run for run in found if run.info.status in ("RUNNING", "KILLED")]


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """{a: {b: 1}} -> {"a.b": 1}."""
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        leaves |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return leaves
