"""One repeat of the study on one data set: sequences of their own where they are generated, networks of their own."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from firmbound.arrays import Ints
from firmbound.continuation.convex import ConvexOptions
from firmbound.continuation.gaussian_process import ProcessOptions
from firmbound.costs import DecisionProblem
from firmbound.datasets import GaussianProblem
from firmbound.oracle import Oracle, solve_gaussian
from firmbound.store import TrajectoryStore
from firmbound.study.contest import Contest
from firmbound.trajectories import Batch
from flows.params import SPLITS, GeneratedFeatures, LearnedEvidence, Params, study_of
from flows.stage import stage_folder
from flows.stored_scaling import scaling_of

if TYPE_CHECKING:
    from firmbound.study.field import FieldOptions

# More than any repeat has.
GENERATED = 10**9


def contest_of(dataset: str, params: Params, repeat: int) -> Contest:
    """The sequences of a repeat, with evidence as the data set's sections have it, and a problem with all costs."""
    study = study_of(params)
    seed = study.seed + repeat
    parts = {split: sequences_of(dataset, split, params, seed) for split in SPLITS}
    prior = prior_of(dataset, params)
    section, started = params.tandem[dataset], time.perf_counter()
    learned = isinstance(section, LearnedEvidence)
    if isinstance(section, LearnedEvidence):
        parts = with_learned_evidence(parts, prior, section, seed)
    given = parts["test"].evidence if parts["test"].evidence is not None else parts["test"].features
    assert given is not None  # a Batch has one of the two
    problem = problem_of(params, dataset, classes=parts["train"].classes, horizon=given.shape[1])
    return Contest(
        **parts,
        prior=prior,
        problem=problem,
        seed=seed,
        rows=rows_of(dataset, params, seed, len(parts["test"].labels)),
        fit_on=params.boundary[dataset].fit_on,
        learned=learned,
        evidence_seconds=time.perf_counter() - started if learned else 0.0,
    )


def rows_of(dataset: str, params: Params, seed: int, count: int) -> Ints:
    """Names of the test sequences: those of generated data are other ones in every repeat."""
    if isinstance(params.features[dataset], GeneratedFeatures):
        return seed * GENERATED + np.arange(count)
    whole = TrajectoryStore(stage_folder(dataset, "features") / "test.zarr").description.sequences
    return np.arange(whole) if count == whole else drawn_rows(whole, count, seed)


def problem_of(params: Params, dataset: str, *, classes: int, horizon: int) -> DecisionProblem:
    """The data set's penalties and delays, with the study's costs."""
    section = params.boundary[dataset]
    plain = section.decision_problem(classes=classes, horizon=horizon)
    costs = [cost * plain.scale / horizon for cost in study_of(params).costs]
    return DecisionProblem.create(
        classes=classes, horizon=horizon, penalty=section.penalty, costs=costs, delay=section.delay
    )


def sequences_of(dataset: str, split: str, params: Params, seed: int) -> Batch:
    """Generated data are drawn anew in every repeat; of recorded ones, networks and draws by lot alone differ."""
    most, section = getattr(study_of(params).sequences, split), params.features[dataset]
    if isinstance(section, GeneratedFeatures):
        # Far from the seeds of the pipeline's own sequences.
        drawn = section.model_copy(update={"seed": section.seed + 1_000 * (seed + 1)})
        problem = drawn.problem(split)
        return problem.rows(slice(0, min(problem.sequences, most or problem.sequences)))
    store = TrajectoryStore(stage_folder(dataset, "features") / f"{split}.zarr")
    about, every = store.description, slice(0, store.description.sequences)
    scaling = scaling_of(dataset)
    features = store.read("features", every) if about.dimension else None
    if features is not None and scaling is not None:
        features = scaling(features)
    evidence = store.evidence() if about.evidence else None
    whole = Batch(store.labels, about.classes, features, evidence, store.lengths if about.unequal else None)
    return whole if most is None or most >= len(whole.labels) else some_of(whole, most, seed)


def some_of(batch: Batch, most: int, seed: int) -> Batch:
    """So many sequences by lot; one of the longest is among them, for the horizon is its."""
    rows = drawn_rows(len(batch.labels), most, seed)
    if batch.lengths is not None and batch.lengths[rows].max() < batch.lengths.max():
        rows[0] = int(batch.lengths.argmax())
    parts = (None if part is None else part[rows] for part in (batch.features, batch.evidence, batch.lengths))
    return Batch(batch.labels[rows], batch.classes, *parts)


def drawn_rows(count: int, most: int, seed: int) -> Ints:
    return np.asarray(np.sort(np.random.default_rng(seed).permutation(count)[:most]))


def prior_of(dataset: str, params: Params) -> Any:
    store = TrajectoryStore(stage_folder(dataset, "features") / "train.zarr")
    return np.array(store.description.prior)


def with_learned_evidence(parts: dict[str, Batch], prior: Any, section: LearnedEvidence, seed: int) -> dict[str, Batch]:
    """Evidence of a network that is trained for this repeat."""
    from firmbound.tandem.data import ArraySource
    from firmbound.tandem.model import fit_tandem_from

    network, training = section.options()
    sources = {
        split: ArraySource.of(parts[split].features, parts[split].labels, parts[split].classes, parts[split].lengths)  # type: ignore[arg-type]
        for split in ("train", "validation")
    }
    batch = min(training.batch, len(parts["train"].labels))
    model = fit_tandem_from(
        sources["train"],
        sources["validation"],
        prior,
        network,
        replace(training, seed=seed, batch=batch),
        oblivious=section.oblivious,
        calibrate=section.calibrate,
    )
    return {split: replace(part, evidence=model.evidence(part.features)) for split, part in parts.items()}  # type: ignore[arg-type]


def oracle_of(dataset: str, params: Params, problem: DecisionProblem) -> Oracle | None:
    """The exact optimum, for Gaussian problems of two or three classes whose evidence is exact."""
    section = params.features[dataset]
    drawn = section.problem("train") if isinstance(section, GeneratedFeatures) else None
    learned = isinstance(params.tandem[dataset], LearnedEvidence)
    if learned or not isinstance(drawn, GaussianProblem) or drawn.classes > 3:
        return None
    return solve_gaussian(drawn, costs=problem.costs, penalty=problem.penalty, delay=problem.delay)


def field_options(dataset: str, params: Params, sequences: int) -> FieldOptions:
    """Options of all methods, to learn from so many sequences."""
    from firmbound.baselines.training import RivalTraining
    from firmbound.study.field import FieldOptions

    study, networks = study_of(params), study_of(params).networks
    named = ("optimizer", "learning_rate", "weight_decay", "dropout", "device")
    batch = min(networks.batch, sequences)
    epochs = -(-networks.updates * batch // sequences)
    own = params.boundary[dataset].options()
    return FieldOptions(
        training=RivalTraining(batch=batch, epochs=epochs, **{name: getattr(networks, name) for name in named}),
        thresholds=study.thresholds,
        units=networks.units,
        hidden=networks.hidden,
        channels=networks.channels,
        kernels=study.kernels,
        convex=own if isinstance(own, ConvexOptions) else None,
        process=own if isinstance(own, ProcessOptions) else None,
    )
