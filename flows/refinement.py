"""Stage `refinement`: evidence that remembers its past and means what it says, where that makes decisions cheaper."""

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from prefect import flow, get_run_logger

from firmbound.arrays import Ints
from firmbound.fitting import fit_from_slices, make_fitter
from firmbound.publishing import publish, whole_array
from firmbound.refinement.choice import Choice, Contestant, compare, too_few
from firmbound.refinement.cross_fitting import fit_refiner
from firmbound.refinement.refiner import Refiner
from firmbound.steps_on_disk import File
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
    with publish(stage_folder(dataset, "refinement")) as folder:
        learned = Learned.in_folder(folder)
        if section.refine == "never" or (section.refine == "auto" and few):
            choice = Choice(False, "asked for" if section.refine == "never" else few)
        else:
            work = work_task(learn, f"{dataset} readouts of {section.units} units", heavy=True)
            work.submit(dataset, params, source, learned).result()
            choice = judge(dataset, params, stores, learned)
        (folder / CHOICE).write_text(json.dumps(choice.as_dict(), indent=2) + "\n")
        if choice.refined:
            learned.cool(choice.temperature)
            for split, store in stores.items():
                write_refined(folder / f"{split}.zarr", dataset, store, learned, split == fit_on)
        else:
            shutil.rmtree(learned.refiner, ignore_errors=True)
        learned.honest.path.unlink(missing_ok=True)
    get_run_logger().info("%s: evidence is %srefined; %s", dataset, "" if choice.refined else "not ", choice.why)


@dataclass(frozen=True)
class Learned:
    """Where the refiner lies, and refined evidence (n, T, K) of those that it learned from, each by what others taught.

    Tasks hand on this, and read what they need.
    """

    refiner: Path
    honest: File

    @classmethod
    def in_folder(cls, folder: Path) -> "Learned":
        return cls(folder / REFINER, File(folder / "honest.npy"))

    def cool(self, temperature: float) -> None:
        """As sure as decisions let it be."""
        Refiner.load(self.refiner).cooled(temperature).save(self.refiner)
        whole_array(self.honest.path, self.honest.read() / np.float32(temperature))


def learn(dataset: str, params: Params, store: TrajectoryStore, target: Learned) -> None:
    options = params.refinement[dataset].options()
    rows = slice(0, store.description.sequences)
    what = f"{dataset}: refining by {store.description.sequences:,} sequences"
    with progress(what) as advance:
        refiner, honest = fit_refiner(
            store.evidence(),
            store.labels,
            lengths=store.lengths,
            features=heard(dataset, store.description.split, rows) if options.inputs == "features" else None,
            options=options,
            progress=advance,
        )
    refiner.save(target.refiner)
    whole_array(target.honest.path, honest)


def heard(dataset: str, split: str, rows: slice) -> NDArray[Any]:
    """Features of some sequences, for a refiner that hears them."""
    return TrajectoryStore(stage_folder(dataset, "features") / f"{split}.zarr").read("features", rows)


def judge(dataset: str, params: Params, stores: dict[str, TrajectoryStore], learned: Learned) -> Choice:
    """By what decisions cost: on validation sequences if a network knows the training ones, else on all of the fit's,
    whose refined evidence never saw their own labels."""
    section = params.boundary[dataset]
    source = stores[section.fit_on]
    before, after = (
        work_task(fit_rule, f"{dataset} rule {word} refinement", heavy=True).submit(dataset, params, source, honest)
        for word, honest in (("without", None), ("with", learned.honest))
    )
    evidence_from = params.tandem[dataset]
    known = section.fit_on == "train" and isinstance(evidence_from, LearnedEvidence) and evidence_from.knows_training
    by = stores["validation"] if known else source
    evidence = by.evidence()
    if known:
        refiner, rows = Refiner.load(learned.refiner), slice(0, by.description.sequences)
        refined = refiner.refine(evidence, heard(dataset, "validation", rows) if refiner.hears_features else None)
    else:
        refined = learned.honest.read()
    return compare(
        Contestant(before.result(), evidence),
        Contestant(after.result(), refined),
        by.labels,
        by.lengths,
        params.refinement[dataset].refine,
    )


def fit_rule(dataset: str, params: Params, store: TrajectoryStore, honest: File | None) -> StoppingRule:
    """The rule of the boundary section, on some of the sequences, with evidence as it is or refined."""
    section, about = params.boundary[dataset], store.description
    prior, some = np.array(about.prior), _some(store.lengths)
    problem = section.decision_problem(classes=about.classes, horizon=about.horizon)
    fitter = make_fitter(section.method, problem, prior, section.options(), seed=section.seed)
    evidence = store.evidence() if honest is None else honest.read()
    part, ends = evidence[some], store.lengths[some]
    rule = fit_from_slices(lambda t: part[:, t - 1], prior, problem, fitter, lengths=ends if about.unequal else None)
    return rule.with_confidence(section.confidence)


def _some(lengths: Ints) -> Ints:
    """The first sequences, and one of the longest, which the horizon needs."""
    first = np.arange(min(ENOUGH, len(lengths)))
    return first if lengths[first].max() == lengths.max() else np.append(first, lengths.argmax())


def write_refined(path: Path, dataset: str, store: TrajectoryStore, learned: Learned, taught: bool) -> None:
    """A store like the one given, with refined evidence. taught: the refiner learned from these sequences."""
    about = replace(store.description, dimension=0, evidence=True)
    name = f"{dataset} {about.split}"
    with create_store(path, about) as writer, progress(f"{name}: refined evidence") as advance:
        futures = [
            work_task(refined_shard, f"{name} refined evidence {shard}").submit(
                writer.folder, about, store, learned, taught, shard
            )
            for shard in range(about.shards)
        ]
        for done, future in enumerate(futures, start=1):
            future.result()
            advance(done, about.shards)


def refined_shard(
    folder: Path, about: StoreDescription, store: TrajectoryStore, learned: Learned, taught: bool, shard: int
) -> None:
    rows = about.rows(shard)
    if taught:
        evidence = learned.honest.read()[rows]
    else:
        refiner = Refiner.load(learned.refiner)
        beside = heard(about.dataset, about.split, rows) if refiner.hears_features else None
        evidence = refiner.refine(store.read("evidence", rows), beside)
    ends = store.read("lengths", rows) if about.unequal else None
    batch = Batch(labels=store.read("labels", rows), classes=about.classes, evidence=evidence, lengths=ends)
    StoreWriter(folder, about).write(shard, batch)


if __name__ == "__main__":
    main("refinement")
