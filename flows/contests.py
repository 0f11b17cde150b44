"""One repeat of the study on one data set: sequences of their own where they are generated, networks of their own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from firmbound.arrays import Floats, Ints
from firmbound.continuation.convex import ConvexOptions
from firmbound.continuation.gaussian_process import ProcessOptions
from firmbound.costs import DecisionProblem
from firmbound.oracle import Oracle
from firmbound.publishing import WORK
from firmbound.store import TrajectoryStore
from firmbound.study.contest import Contest
from firmbound.trajectories import Batch
from flows.held import held
from flows.optimum import gaussian_behind, optimum_of
from flows.outcomes import has_evidence, load_evidence, save_evidence
from flows.params import SPLITS, GeneratedFeatures, LearnedEvidence, Params, study_of
from flows.stage import stage_folder
from flows.stored_scaling import scaling_of

if TYPE_CHECKING:
    from firmbound.study.field import FieldOptions
    from firmbound.study.learned_evidence import TandemOptions
    from firmbound.tandem.options import TrainingOptions

# More than any repeat has.
GENERATED = 10**9


def contest_of(dataset: str, params: Params, repeat: int, folder: Path) -> Contest:
    """The sequences of a repeat, with evidence as the data set's sections have it, and a problem with all costs.

    Learned evidence is read from the repeat's folder, where `learn_evidence` has put it.
    """
    seed = study_of(params).seed + repeat
    parts = parts_of(dataset, params, seed)
    section, seconds = params.tandem[dataset], 0.0
    learned = isinstance(section, LearnedEvidence)
    if learned:
        parts, seconds = load_evidence(folder, parts)
    given = parts["test"].evidence if parts["test"].evidence is not None else parts["test"].features
    assert given is not None  # a Batch has one of the two
    problem = problem_of(params, dataset, classes=parts["train"].classes, horizon=given.shape[1])
    return Contest(
        **parts,
        prior=prior_of(dataset),
        problem=problem,
        seed=seed,
        rows=rows_of(dataset, params, seed, len(parts["test"].labels)),
        fit_on=params.boundary[dataset].fit_on,
        learned=learned,
        known=isinstance(section, LearnedEvidence) and section.knows_training,
        evidence_seconds=seconds,
    )


def learn_evidence(dataset: str, params: Params, repeat: int, folder: Path) -> None:
    """Train the repeat's network, where evidence is learned, and keep what it says of all sequences."""
    section, seed = params.tandem[dataset], study_of(params).seed + repeat
    if isinstance(section, LearnedEvidence) and not has_evidence(folder):
        from firmbound.study.learned_evidence import with_learned_evidence

        started = time.perf_counter()
        parts, options = parts_of(dataset, params, seed), tandem_options(section)
        training = long_enough(options.training, len(parts["train"].labels), study_of(params).networks.updates)
        learned = with_learned_evidence(parts, prior_of(dataset), replace(options, training=training), seed)
        save_evidence(folder, learned, time.perf_counter() - started)


def tandem_options(section: LearnedEvidence) -> TandemOptions:
    from firmbound.study.learned_evidence import TandemOptions

    network, training = section.options()
    return TandemOptions(network, training, section.oblivious, section.calibrate, section.folds)


def long_enough(training: TrainingOptions, sequences: int, updates: int) -> TrainingOptions:
    """With as many updates as rivals make: a study may have fewer sequences than the pipeline, and epochs of fewer."""
    an_epoch = -(-sequences // training.batch)
    return replace(training, epochs=max(training.epochs, -(-updates // an_epoch)))


def parts_of(dataset: str, params: Params, seed: int) -> dict[str, Batch]:
    return {split: sequences_of(dataset, split, params, seed) for split in SPLITS}


def rows_of(dataset: str, params: Params, seed: int, count: int) -> Ints:
    """Names of the test sequences: those of generated data are other ones in every repeat."""
    if isinstance(params.features[dataset], GeneratedFeatures):
        return seed * GENERATED + np.arange(count)
    store = TrajectoryStore(stage_folder(dataset, "features") / "test.zarr")
    whole, lengths = store.description.sequences, store.lengths if store.description.unequal else None
    return np.arange(whole) if count == whole else drawn_rows(store.labels, lengths, count, seed)


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
    rows = drawn_rows(batch.labels, batch.lengths, most, seed)
    parts = (None if part is None else part[rows] for part in (batch.features, batch.evidence, batch.lengths))
    return Batch(batch.labels[rows], batch.classes, *parts)


def drawn_rows(labels: Ints, lengths: Ints | None, most: int, seed: int) -> Ints:
    """So many rows by lot, in order. Classes keep their shares, so that none is lost; one of the longest is among them,
    for the horizon is its."""
    order = np.random.default_rng(seed).permutation(len(labels))
    if lengths is not None:
        longest = int(lengths.argmax())
        order = np.concatenate([[longest], order[order != longest]])
    # The n-th row of a class that has m gets the place n / m: the first places hold even shares of all classes.
    by_class = order[np.argsort(labels[order], kind="stable")]
    places = np.concatenate([np.arange(count) / count for count in np.bincount(labels) if count])
    return np.asarray(np.sort(by_class[np.argsort(places, kind="stable")[:most]]))


def prior_of(dataset: str) -> Floats:
    return np.array(TrajectoryStore(stage_folder(dataset, "features") / "train.zarr").description.prior)


def how_to_find_optimum(dataset: str, params: Params, problem: DecisionProblem) -> Callable[[], Oracle] | None:
    """None where there is no exact optimum, or evidence is not exact."""
    drawn = gaussian_behind(params.features[dataset])
    if drawn is None or isinstance(params.tandem[dataset], LearnedEvidence):
        return None
    return lambda: optimum_of(drawn, problem)


def held_contest(dataset: str, params: Params, repeat: int, folder: Path) -> Contest:
    """A process keeps the last repeat that it worked on: the next group is mostly of the same."""
    work = folder.parent / WORK
    return _held_contest(dataset, params, repeat, folder, work.read_text() if work.is_file() else "")


@held
def _held_contest(dataset: str, params: Params, repeat: int, folder: Path, work: str) -> Contest:
    """work: names sequences, settings and code, so that a process which outlives a study knows the next one's."""
    return contest_of(dataset, params, repeat, folder)


def field_options(dataset: str, params: Params, sequences: int, tuned: Mapping[str, Mapping[str, Any]]) -> FieldOptions:
    """Options of all methods, to learn from so many sequences. tuned: of rivals, what a search found."""
    from firmbound.baselines.training import RivalTraining
    from firmbound.study.field import FieldOptions

    study, networks = study_of(params), study_of(params).networks
    named = ("optimizer", "learning_rate", "weight_decay", "dropout", "device")
    given = {name: getattr(networks, name) for name in named}
    batch, updates, evidence = min(networks.batch, sequences), networks.updates, params.tandem[dataset]
    if isinstance(evidence, LearnedEvidence):
        # Rivals make no fewer updates than the network behind our rules and see no fewer sequences, changed as its are.
        training = long_enough(evidence.options()[1], sequences, updates)
        updates = max(updates, training.epochs * -(-sequences // min(training.batch, batch)))
        given |= {name: getattr(training, name) for name in ("shift", "noise", "offset", "mask")}
    boundary = params.boundary[dataset]
    own = boundary.options()
    return FieldOptions(
        training=RivalTraining(batch=batch, epochs=-(-updates * batch // sequences), **given),
        thresholds=study.thresholds,
        units=networks.units,
        hidden=networks.hidden,
        channels=networks.channels,
        kernels=study.kernels,
        convex=own if isinstance(own, ConvexOptions) else None,
        process=own if isinstance(own, ProcessOptions) else None,
        method=boundary.method,
        tandem=tandem_options(study.tandem) if study.tandem is not None else None,
        refinement=params.refinement[dataset].options(),
        tuned=tuned,
    )
