"""The model registry: saved classifiers as versions of models, and which of them is champion."""

from __future__ import annotations

import fcntl
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import mlflow
import numpy as np
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.models import Model, ModelSignature
from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema, TensorSpec
from mlflow.types.schema import Array

from firmbound.bundle import HEADER, read_header
from firmbound.early_classifier import EarlyClassifier
from firmbound.errors import FirmboundError, InvalidInput
from firmbound.version import __version__
from flows.promotion import Parts, Verdict, judge
from flows.tracking import EXPERIMENT, connect, database, registry_exists

CHAMPION, CHALLENGER = "champion", "challenger"
FINGERPRINT = "firmbound.bundle_sha256"
REASON = "firmbound.promotion"
ARTIFACT = "classifier"
MODEL_CODE = Path(__file__).with_name("served_classifier.py")
LOCK = ".mlflow.lock"


@dataclass(frozen=True)
class Standing:
    """Where a version stands: its aliases, and the reason in words."""

    name: str
    version: str
    aliases: list[str]
    reason: str


def model_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise InvalidInput("name", "hold letters, digits, dots, dashes and underscores", repr(name))
    return f"firmbound-{name}"


def register_classifier(
    folder: Path, name: str, *, parts: Parts | None = None, refused: str | None = None, in_run: bool = False
) -> str:
    """Register a saved classifier, once, as `firmbound-<name>`, and let it challenge the champion; returns the version.

    parts: test data for both. Without them it becomes champion only if there is none. refused: why it may not.
    in_run: an MLflow run is open, which the model belongs to. Callers hold `one_at_a_time`.
    """
    client = connect()
    version = find_version(client, name, folder)
    if version is None:
        if not in_run:
            mlflow.set_experiment(EXPERIMENT)
        version = _register(folder, model_name(name))
    _promote(client, folder, model_name(name), version, parts, refused)
    return version


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Processes wait for each other: looking up, registering and promoting belong together.

    The lock lies beside the SQLite file of the registry. For a server of MLflow it holds for one folder alone.
    """
    file = database()
    with (file.with_name(LOCK) if file else Path(LOCK)).open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def find_version(client: MlflowClient, name: str, folder: Path) -> str | None:
    """The registered version that holds exactly the classifier on disk."""
    wanted = fingerprint(folder)
    try:
        versions = client.search_model_versions(f"name = '{model_name(name)}'")
    except MlflowException:
        return None
    return next((str(v.version) for v in versions if v.tags.get(FINGERPRINT) == wanted), None)


def fingerprint(folder: Path) -> str:
    """What tells one saved model from another: the checksums of its headers, which hold those of its arrays."""
    parts = sorted(file.parent for file in folder.rglob(HEADER))
    return "+".join(str(read_header(part)["sha256"][HEADER]) for part in parts)


def standings(name: str | None = None) -> list[Standing]:
    """All versions of a registered model, the newest first; without a name, of all models of ours."""
    if not registry_exists():
        return []
    client = connect()
    found = []
    for model in client.search_registered_models(f"name = '{name}'" if name else "name LIKE 'firmbound-%'"):
        aliases = {alias: str(version) for alias, version in model.aliases.items()}
        for version in client.search_model_versions(f"name = '{model.name}'"):
            own = [alias for alias, of in aliases.items() if of == str(version.version)]
            found.append(Standing(model.name, str(version.version), own, version.tags.get(REASON, "")))
    return sorted(found, key=lambda one: (one.name, -int(one.version)))


def load_classifier(uri: str) -> EarlyClassifier:
    """The classifier of a registered model, by a name such as models:/firmbound-gauss2@champion."""
    if not registry_exists():
        raise FirmboundError(f"{uri} cannot be fetched: there is no registry at {database()} yet.")
    connect()
    try:
        folder = Path(mlflow.artifacts.download_artifacts(uri))
        place = Model.load(str(folder)).flavors["python_function"]["artifacts"][ARTIFACT]["path"]
    except (MlflowException, OSError, KeyError, TypeError) as problem:
        reason = (str(problem).splitlines() or [repr(problem)])[0]
        raise FirmboundError(f"{uri} cannot be fetched from the registry: {reason}") from None
    if not (folder / place).resolve().is_relative_to(folder.resolve()):
        raise FirmboundError(f"{uri} names a classifier outside of its own folder, {place}. Do not use it.")
    return EarlyClassifier.load(folder / place)


def promote_by_hand(name: str, version: str, reason: str) -> None:
    """Make a version the champion because a person says so."""
    client, full = connect(), model_name(name)
    if version not in {one.version for one in standings(full)}:
        raise InvalidInput("version", f"be one of {[one.version for one in standings(full)]} of {full}", version)
    client.set_model_version_tag(full, version, REASON, f"promoted by hand: {reason}")
    client.set_registered_model_alias(full, CHAMPION, version)
    if str(client.get_registered_model(full).aliases.get(CHALLENGER)) == version:
        client.delete_registered_model_alias(full, CHALLENGER)


def _promote(
    client: MlflowClient, folder: Path, name: str, version: str, parts: Parts | None, refused: str | None
) -> None:
    """Champion, challenger or neither: the aliases say which, and a tag of the version says why."""
    aliases = {alias: str(of) for alias, of in client.get_registered_model(name).aliases.items()}
    champion = aliases.get(CHAMPION)
    if refused is not None:
        verdict, wanted = Verdict(False, refused), None
    elif champion == version:
        return
    else:
        verdict = _verdict(folder, name, champion, parts)
        wanted = CHAMPION if verdict.promote else CHALLENGER
    # The reason first: a kill in between leaves no champion without one.
    reason = f"{'promoted' if verdict.promote else 'not promoted'}: {verdict.reason}"
    client.set_model_version_tag(name, version, REASON, reason)
    for alias in (CHAMPION, CHALLENGER):
        if alias == wanted and aliases.get(alias) != version:
            client.set_registered_model_alias(name, alias, version)
        elif alias != wanted and aliases.get(alias) == version:
            client.delete_registered_model_alias(name, alias)


def _verdict(folder: Path, name: str, champion: str | None, parts: Parts | None) -> Verdict:
    if champion is None:
        return Verdict(True, "there was no champion")
    if parts is None:
        return Verdict(False, f"no test data to judge it against version {champion} by")
    try:
        reigning = load_classifier(f"models:/{name}/{champion}")
    except FirmboundError as problem:
        return Verdict(False, f"version {champion} cannot be loaded to compare with ({problem})")
    return judge(EarlyClassifier.load(folder), reigning, f"version {champion}", parts)


def _register(folder: Path, name: str) -> str:
    classifier = EarlyClassifier.load(folder)
    info = mlflow.pyfunc.log_model(
        name=ARTIFACT,
        python_model=str(MODEL_CODE),
        artifacts={ARTIFACT: str(folder)},
        signature=_signature(classifier),
        input_example=np.full((1, 1, classifier.reader_.dimension), 1 / classifier.reader_.dimension),
        pip_requirements=[f"firmbound=={__version__}"],
    )
    # Tags come with the version in one transaction: a kill leaves no version without its fingerprint.
    registered = mlflow.register_model(info.model_uri, name, tags={FINGERPRINT: fingerprint(folder)})
    return str(registered.version)


def _signature(classifier: EarlyClassifier) -> ModelSignature:
    width = classifier.reader_.dimension
    kinds = {"i": DataType.long, "u": DataType.long, "f": DataType.double, "b": DataType.boolean}
    label = kinds.get(classifier.classes_.dtype.kind, DataType.string)
    risks = [ColSpec(DataType.double, name, False) for name in ("stopping_risk", "continuation_risk", "deviation")]
    return ModelSignature(
        inputs=Schema([TensorSpec(np.dtype(np.float64), (-1, -1, width))]),
        outputs=Schema(
            [
                ColSpec(DataType.boolean, "decided"),
                ColSpec(label, "label"),
                ColSpec(DataType.long, "time"),
                ColSpec(Array(DataType.double), "posterior"),
                *risks,
            ]
        ),
        params=ParamSchema(
            [ParamSpec("cost", DataType.double, float(classifier.cost)), ParamSpec("ended", DataType.boolean, False)]
        ),
    )
