"""The sections of params.yaml as types: keys, ranges, and the objects of the library that they describe."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from firmbound.continuation.convex import ConvexOptions, ConvexStatistic
from firmbound.continuation.gaussian_process import ProcessOptions, ProcessSolver
from firmbound.continuation.kernel_surface import KernelName
from firmbound.continuation.solvers import SolverName
from firmbound.continuation.surface import Statistic
from firmbound.costs import DecisionProblem
from firmbound.datasets import GeneratedProblem, autoregressive, gaussian, oscillating
from firmbound.devices import Device
from firmbound.refinement.options import Inputs, Refine, RefinementOptions
from flows.recorded_sections import ArchiveFeatures, ArrayFeatures, DigitsFeatures, Section, VideoFeatures
from flows.schedule_section import Schedule
from flows.study_section import Study
from flows.tandem_section import Tandem

SPLITS = ("train", "validation", "test")


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


class AutoregressiveFeatures(GeneratedFeatures):
    kind: Literal["autoregressive"]
    coefficients: tuple[float, ...]
    prior: tuple[float, ...] | None
    dimension: PositiveInt

    def problem(self, split: str) -> GeneratedProblem:
        return autoregressive(
            self.coefficients,
            getattr(self.sequences, split),
            self.horizon,
            self.split_seed(split),
            dimension=self.dimension,
            prior=self.prior,
        )


Features = Annotated[
    GaussianFeatures
    | AutoregressiveFeatures
    | OscillatingFeatures
    | DigitsFeatures
    | ArchiveFeatures
    | ArrayFeatures
    | VideoFeatures,
    Field(discriminator="kind"),
]


class Refinement(Section):
    """The keys of RefinementOptions, and whether they are used."""

    refine: Refine
    inputs: Inputs
    units: PositiveInt
    folds: Annotated[int, Field(ge=2)] | None
    ridge: PositiveFloat | None
    seed: NonNegativeInt

    def options(self) -> RefinementOptions:
        return RefinementOptions(**self.model_dump(exclude={"refine"}))


class BoundarySection(Section):
    """The decision problem, whatever estimates its continuation risk."""

    penalty: float | list[float] | list[list[float]]
    costs: list[float]
    delay: list[float] | None
    fit_on: Literal["train", "validation"]
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
    statistic: ConvexStatistic | None
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
            statistic=self.statistic,
            device=self.device,
        )


class ProcessBoundary(BoundarySection):
    method: Literal["gp"]
    solver: ProcessSolver
    statistic: Statistic | None
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
    """address: of a Dask scheduler that is there already. gpus: of the workers that are started here, who have one."""

    kind: Literal["threads", "processes", "dask"]
    workers: PositiveInt
    address: str | None
    gpus: NonNegativeInt

    @model_validator(mode="after")
    def _of_dask(self) -> Runner:
        if self.kind != "dask" and (self.address is not None or self.gpus):
            raise ValueError("address and gpus are for kind: dask")
        if self.address is not None and not re.fullmatch(r"(tcp|tls|ucx|ws|wss)://\S+:\d+", self.address):
            raise ValueError(f"address must look like tcp://host:port, got {self.address!r}")
        if self.gpus > self.workers:
            raise ValueError(f"gpus must be at most workers, {self.workers}, got {self.gpus}")
        return self


class Evaluation(Section):
    thresholds: Annotated[int, Field(ge=2)]
    calibration_limit: Annotated[float, Field(gt=0, le=1)]
    risk_gap_limit: Annotated[float, Field(gt=0, le=1)]


class Tuning(Section):
    """space: for each data set, the file of params/search that says what is searched."""

    seed: NonNegativeInt
    space: dict[str, str]


class Report(Section):
    trajectories: PositiveInt


class Params(Section):
    datasets: Annotated[list[str], Field(min_length=1)]
    runner: Runner
    schedule: Schedule
    features: dict[str, Features]
    tandem: dict[str, Tandem]
    refinement: dict[str, Refinement]
    boundary: dict[str, Boundary]
    evaluation: Evaluation
    tuning: Tuning
    report: Report
    study: Study
