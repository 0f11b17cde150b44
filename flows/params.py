"""params.yaml as checked, frozen values: an unknown, missing or impossible entry is one clear error before any work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveFloat, PositiveInt, ValidationError

from firmbound.continuation.convex import ConvexOptions
from firmbound.continuation.gaussian_process import ProcessOptions, ProcessSolver
from firmbound.continuation.kernel_surface import KernelName
from firmbound.continuation.solvers import SolverName
from firmbound.continuation.surface import Statistic
from firmbound.costs import DecisionProblem
from firmbound.datasets import GeneratedProblem, gaussian, oscillating
from firmbound.devices import Device
from firmbound.errors import InvalidInput, ParameterError

SPLITS = ("train", "validation", "test")


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)


class Sequences(Section):
    train: PositiveInt
    validation: PositiveInt
    test: PositiveInt


class GeneratedFeatures(Section):
    """What every generated data set has."""

    horizon: Annotated[int, Field(ge=2)]
    sequences: Sequences
    seed: NonNegativeInt

    def split_seed(self, split: str) -> tuple[int, int]:
        """Splits of one data set draw from streams of their own."""
        return (self.seed, SPLITS.index(split))


class GaussianFeatures(GeneratedFeatures):
    kind: Literal["gaussian"]
    classes: Annotated[int, Field(ge=2)]
    prior: tuple[float, ...] | None
    dimension: PositiveInt
    separation: PositiveFloat

    def problem(self, split: str) -> GeneratedProblem:
        return gaussian(
            self.classes,
            getattr(self.sequences, split),
            self.horizon,
            self.split_seed(split),
            dimension=self.dimension,
            separation=self.separation,
            prior=self.prior,
        )


class OscillatingFeatures(GeneratedFeatures):
    kind: Literal["oscillating"]

    def problem(self, split: str) -> GeneratedProblem:
        return oscillating(getattr(self.sequences, split), self.horizon, self.split_seed(split))


Features = Annotated[GaussianFeatures | OscillatingFeatures, Field(discriminator="kind")]


class BoundarySection(Section):
    """The decision problem, whatever estimates its continuation risk."""

    penalty: float | list[float] | list[list[float]]
    costs: list[float]
    delay: list[float] | None
    device: Device
    seed: NonNegativeInt

    def decision_problem(self, *, classes: int, horizon: int) -> DecisionProblem:
        return DecisionProblem.create(
            classes=classes, horizon=horizon, penalty=self.penalty, costs=self.costs, delay=self.delay
        )


class ConvexBoundary(BoundarySection):
    method: Literal["cfl"]
    solver: SolverName
    points: PositiveInt | None
    pieces: PositiveInt | None
    compression: Literal["cells", "subsample"]
    regularisation: PositiveFloat | Literal["cv"] | None
    tolerance: PositiveFloat

    @property
    def confidence(self) -> float:
        return 0.5  # least squares do not know how sure they are

    def options(self) -> ConvexOptions:
        return ConvexOptions(
            points=self.points,
            regularisation=self.regularisation,
            tolerance=self.tolerance,
            solver=self.solver,
            pieces=self.pieces,
            compression=self.compression,
            device=self.device,
        )


class ProcessBoundary(BoundarySection):
    method: Literal["gp"]
    solver: ProcessSolver
    statistic: Statistic
    kernel: KernelName
    temperature: Annotated[float, Field(ge=1)] | None
    inducing: PositiveInt | None
    points: PositiveInt | None
    scaling: Literal["share", "risk"]
    noise: Literal["local", "uniform"]
    epochs: PositiveInt
    batch: PositiveInt
    learning_rate: PositiveFloat
    confidence: Annotated[float, Field(ge=0.5, lt=1.0)]

    def options(self) -> ProcessOptions:
        return ProcessOptions(
            solver=self.solver,
            statistic=self.statistic,
            kernel=self.kernel,
            temperature=self.temperature,
            inducing=self.inducing,
            points=self.points,
            scaling=self.scaling,
            noise=self.noise,
            epochs=self.epochs,
            batch=self.batch,
            learning_rate=self.learning_rate,
            device=self.device,
        )


Boundary = Annotated[ConvexBoundary | ProcessBoundary, Field(discriminator="method")]


class Runner(Section):
    kind: Literal["threads"]
    workers: PositiveInt


class Evaluation(Section):
    thresholds: Annotated[int, Field(ge=2)]


class Report(Section):
    trajectories: PositiveInt


class Params(Section):
    datasets: Annotated[list[str], Field(min_length=1)]
    runner: Runner
    features: dict[str, Features]
    boundary: dict[str, Boundary]
    evaluation: Evaluation
    report: Report


def read_params(path: str | Path = "params.yaml") -> Params:
    """Read, check types and keys, then check that every data set's numbers make a problem that can be solved."""
    file = Path(path)
    if not file.is_file():
        raise ParameterError(str(file), "exist", "no such file", "Run from the project's root.")
    try:
        params = Params.model_validate(yaml.safe_load(file.read_text()))
    except (yaml.YAMLError, UnicodeDecodeError) as problem:
        raise ParameterError(str(file), "be YAML", str(problem).replace("\n", " ")) from None
    except ValidationError as problem:
        raise _explain(problem) from None
    for dataset in params.datasets:
        _check_dataset(params, dataset)
    return params


def check_dataset_name(params: Params, dataset: str) -> str:
    if dataset not in params.datasets:
        raise ParameterError("dataset", f"be one of {params.datasets} (params.yaml: datasets)", repr(dataset))
    return dataset


def _check_dataset(params: Params, dataset: str) -> None:
    for name in ("features", "boundary"):
        if dataset not in getattr(params, name):
            raise ParameterError(f"{name}.{dataset}", "be given, since `datasets` names it", "nothing")
    try:
        problem = params.features[dataset].problem("train")
        boundary = params.boundary[dataset]
        options = boundary.options()
        if isinstance(options, ConvexOptions):
            options.check_classes(problem.classes)
        boundary.decision_problem(classes=problem.classes, horizon=problem.horizon)
    except InvalidInput as found:
        raise ParameterError(f"{dataset}: {found.name}", found.rule, found.got, found.advice) from None


def _explain(problem: ValidationError) -> ParameterError:
    """The first of pydantic's findings, in the house's words."""
    first = problem.errors()[0]
    # pydantic names the branch of a union in the path; a reader of params.yaml never wrote that part.
    branches = {
        "gaussian",
        "oscillating",
        "cfl",
        "gp",
        "float",
        "list[float]",
        "list[list[float]]",
        "constrained-float",
        "literal['cv']",
    }
    place = ".".join(str(part) for part in first["loc"] if part not in branches) or "params.yaml"
    more = f" ({problem.error_count() - 1} more like this)" if problem.error_count() > 1 else ""
    if first["type"] == "extra_forbidden":
        advice = f"Correct its spelling or remove it.{more}"
        return ParameterError(place, "be a known key", f"an unknown one with value {first['input']!r}", advice)
    if first["type"] in {"union_tag_invalid", "union_tag_not_found"}:
        place = f"{place}.{first['ctx']['discriminator'].strip(chr(39))}"
    if first["type"] == "union_tag_invalid":
        chosen = first["ctx"]
        return ParameterError(place, f"be one of {chosen['expected_tags']}", repr(chosen["tag"]), more.strip())
    if first["type"] in {"missing", "union_tag_not_found"}:
        return ParameterError(place, "be given", "nothing", f"See params.yaml of the release for its meaning.{more}")
    return ParameterError(place, f"be valid: {first['msg'].lower()}", repr(first["input"]), more.strip())
