"""Stage `refinement`: evidence that remembers its past and means what it says, where that makes decisions cheaper."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from prefect import flow, get_run_logger

from firmbound.arrays import Ints
from firmbound.fitting import fit_from_slices, make_fitter
from firmbound.publishing import publish
from firmbound.refinement.choice import Choice, Contestant, compare, too_few
from firmbound.refinement.cross_fitting import fit_refiner
from firmbound.refinement.refiner import Refiner
from firmbound.stopping_rule import StoppingRule
from firmbound.store import StoreDescription, StoreWriter, TrajectoryStore, create_store
from firmbound.trajectories import Batch
from flows.evidence import CHOICE, REFINER
from flows.params import SPLITS, LearnedEvidence, Params
from flows.progress import progress
from flows.runners import work_task
from flows.stage import main, reports_failure, stage_folder

# Sequences that the two rules are fitted on to be compared; the boundary stage uses all.
ENOUGH = 5_000


@flow(name="refinement", flow_run_name="refinement {dataset}")
@reports_failure
def refinement_flow(dataset: str, params: Params) -> None:
    """Write data/<dataset>/refinement: choice.json and, where it was chosen, refined stores and the refiner."""
    section, fit_on = params.refinement[dataset], params.boundary[dataset].fit_on
    stores = {split: TrajectoryStore(stage_folder(dataset, "tandem") / f"{split}.zarr") for split in SPLITS}
    source = stores[fit_on]
    few = too_few(source.labels, source.description.classes, section.options())
    refiner, honest = None, None
    if section.refine == "never" or (section.refine == "auto" and few):
        choice = Choice(False, "asked for" if section.refine == "never" else few)
    else:
        work = work_task(learn, f"{dataset} readouts of {section.units} units")
        refiner, honest = work.submit(dataset, params, source).result()
        choice = judge(dataset, params, stores, refiner, honest)
    with publish(stage_folder(dataset, "refinement")) as folder:
        (folder / CHOICE).write_text(json.dumps(choice.as_dict(), indent=2) + "\n")
        if choice.refined and refiner is not None and honest is not None:
            refiner, honest = refiner.cooled(choice.temperature), honest / np.float32(choice.temperature)
            refiner.save(folder / REFINER)
            for split, store in stores.items():
                write_refined(folder / f"{split}.zarr", dataset, store, refiner, honest if split == fit_on else None)
    get_run_logger().info("%s: evidence is %srefined; %s", dataset, "" if choice.refined else "not ", choice.why)


def learn(dataset: str, params: Params, store: TrajectoryStore) -> tuple[Refiner, NDArray[np.float32]]:
    """The refiner, and refined evidence of the sequences that rules are fitted on, each by what others taught."""
    options = params.refinement[dataset].options()
    rows = slice(0, store.description.sequences)
    what = f"{dataset}: refining by {store.description.sequences:,} sequences"
    with progress(what) as advance:
        return fit_refiner(
            store.evidence(),
            store.labels,
            lengths=store.lengths,
            features=heard(dataset, store.description.split, rows) if options.inputs == "features" else None,
            options=options,
            progress=advance,
        )


def heard(dataset: str, split: str, rows: slice) -> NDArray[Any]:
    """Features of some sequences, for a refiner that hears them."""
    return TrajectoryStore(stage_folder(dataset, "features") / f"{split}.zarr").read("features", rows)


def judge(
    dataset: str, params: Params, stores: dict[str, TrajectoryStore], refiner: Refiner, honest: NDArray[np.float32]
) -> Choice:
    """By what decisions cost: on validation sequences if a network knows the training ones, else on all of the fit's,
    whose refined evidence never saw their own labels."""
    section = params.boundary[dataset]
    source = stores[section.fit_on]
    plain = source.evidence()
    known = section.fit_on == "train" and isinstance(params.tandem[dataset], LearnedEvidence)
    by = stores["validation"] if known else source
    evidence, refined = plain, honest
    if known:
        rows = slice(0, by.description.sequences)
        evidence = by.evidence()
        refined = refiner.refine(evidence, heard(dataset, "validation", rows) if refiner.hears_features else None)
    before, after = (
        work_task(fit_rule, f"{dataset} rule {word} refinement").submit(dataset, params, source, some)
        for word, some in (("without", plain), ("with", honest))
    )
    return compare(
        Contestant(before.result(), evidence),
        Contestant(after.result(), refined),
        by.labels,
        by.lengths,
        params.refinement[dataset].refine,
    )


def fit_rule(dataset: str, params: Params, store: TrajectoryStore, evidence: NDArray[Any]) -> StoppingRule:
    """The rule of the boundary section, on some of the sequences."""
    section, about = params.boundary[dataset], store.description
    prior, some = np.array(about.prior), _some(store.lengths)
    problem = section.decision_problem(classes=about.classes, horizon=about.horizon)
    fitter = make_fitter(section.method, problem, prior, section.options(), seed=section.seed)
    part, ends = evidence[some], store.lengths[some]
    rule = fit_from_slices(lambda t: part[:, t - 1], prior, problem, fitter, lengths=ends if about.unequal else None)
    return rule.with_confidence(section.confidence)


def _some(lengths: Ints) -> Ints:
    """The first sequences, and one of the longest, which the horizon needs."""
    first = np.arange(min(ENOUGH, len(lengths)))
    return first if lengths[first].max() == lengths.max() else np.append(first, lengths.argmax())


def write_refined(
    path: Path, dataset: str, store: TrajectoryStore, refiner: Refiner, honest: NDArray[np.float32] | None
) -> None:
    """A store like the one given, with refined evidence; `honest`: of the sequences that the refiner learned from."""
    about = replace(store.description, dimension=0, evidence=True)
    name = f"{dataset} {about.split}"
    with create_store(path, about) as writer, progress(f"{name}: refined evidence") as advance:
        futures = [
            work_task(refined_shard, f"{name} refined evidence {shard}").submit(
                writer.folder, about, store, refiner, None if honest is None else honest[about.rows(shard)], shard
            )
            for shard in range(about.shards)
        ]
        for done, future in enumerate(futures, start=1):
            future.result()
            advance(done, about.shards)


def refined_shard(
    folder: Path,
    about: StoreDescription,
    store: TrajectoryStore,
    refiner: Refiner,
    honest: NDArray[np.float32] | None,
    shard: int,
) -> None:
    rows = about.rows(shard)
    if honest is None:
        beside = heard(about.dataset, about.split, rows) if refiner.hears_features else None
        honest = refiner.refine(store.read("evidence", rows), beside)
    ends = store.read("lengths", rows) if about.unequal else None
    batch = Batch(labels=store.read("labels", rows), classes=about.classes, evidence=honest, lengths=ends)
    StoreWriter(folder, about).write(shard, batch)


if __name__ == "__main__":
    main("refinement")
