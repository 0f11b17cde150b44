"""Stage `tandem`: evidence of every sequence as Zarr stores; given with the features, or learned from them.

With `folds`, evidence of the training sequences comes from networks that have not seen them.
"""

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from prefect import flow, get_run_logger

from firmbound.arrays import Floats
from firmbound.devices import Device
from firmbound.publishing import publish, whole_array
from firmbound.store import StoreDescription, StoreWriter, TrajectoryStore, create_store
from firmbound.tandem.data import StoreSource
from firmbound.temperature import in_words
from firmbound.trajectories import Batch
from flows.held import held, stamp
from flows.params import SPLITS, LearnedEvidence, Params
from flows.progress import progress
from flows.runners import Submit, one_core_tasks, work_task
from flows.stage import main, reports_failure, stage_folder
from flows.stored_scaling import scaling_of

if TYPE_CHECKING:
    from firmbound.tandem.model import TandemModel

NETWORK = "network"
Network = tuple[Path, Device, str]  # where it lies, where it computes, and its stamp
# Of evidence: a network that reads features, a file that has it, or the features' own store.
Origin = Network | Path | None
Stores = dict[str, TrajectoryStore]


@flow(name="tandem", flow_run_name="tandem {dataset}")
@reports_failure
def tandem_flow(dataset: str, params: Params) -> None:
    """Write data/<dataset>/tandem: {train,validation,test}.zarr with evidence, and the network where it is learned."""
    section = params.tandem[dataset]
    stores = {split: TrajectoryStore(stage_folder(dataset, "features") / f"{split}.zarr") for split in SPLITS}
    scratch = stage_folder(dataset, ".training")
    with publish(stage_folder(dataset, "tandem")) as folder:
        network: Network | None = None
        unseen = scratch / "unseen.npy"
        if isinstance(section, LearnedEvidence):
            work = scratch / identity(dataset, section, stores)
            with one_core_tasks(params.runner) as apart:
                temperatures = learn(dataset, section, stores, work, folder / NETWORK, unseen, apart)
            network = (folder / NETWORK, section.training.device, stamp(folder / NETWORK))
            get_run_logger().info("%s: evidence is divided by %s", dataset, in_words(temperatures))
        in_folds = isinstance(section, LearnedEvidence) and section.folds is not None
        for split, store in stores.items():
            write_evidence(folder / f"{split}.zarr", store, unseen if in_folds and split == "train" else network)
    shutil.rmtree(scratch, ignore_errors=True)  # checkpoints have done their work


def identity(dataset: str, section: LearnedEvidence, stores: Stores) -> str:
    """Names the folder of checkpoints: training with other settings, data or scale starts anew."""
    scaling = scaling_of(dataset)
    data = [StoreSource(stores[split], scaling).fingerprint() for split in ("train", "validation")]
    return hashlib.sha256(json.dumps([section.model_dump(), data], sort_keys=True).encode()).hexdigest()[:16]


def learn(
    dataset: str, section: LearnedEvidence, stores: Stores, work: Path, target: Path, unseen: Path, apart: Submit
) -> Floats:
    """Save the network of all training sequences, and, with folds, what those of the folds say of them as `unseen`.

    Returns the network's temperatures. work: of checkpoints. apart: submits to a process of its own, as networks that
    are trained side by side need: torch draws dropout from one stream a process.
    """
    name = f"{dataset} network of order {section.network.order}"
    folds = [
        apart(f"{name} without fold {number}", read_fold, dataset, section, stores, work, number)
        for number in range(section.folds or 0)
    ]
    parts = list[Path]()
    if folds:
        with progress(f"{dataset}: networks without one of {len(folds)} folds") as advance:
            for fold in folds:
                parts.append(fold.result())
                advance(len(parts), len(folds))
    network = work_task(train_network, name, heavy=True)
    return network.submit(dataset, section, stores, work, target, parts, unseen).result()


def read_fold(dataset: str, section: LearnedEvidence, stores: Stores, work: Path, number: int) -> Path:
    """Evidence of a fold's sequences by a network that learned from all others; kept until the stage has published."""
    from firmbound.tandem.cross_fitting import Fold, evidence_of_fold

    assert section.folds is not None  # nobody asks otherwise
    checkpoint = work.with_name(f"{work.name}-fold-{number}")
    found = checkpoint.with_suffix(".npy")
    if not found.exists():
        evidence = evidence_of_fold(
            Fold(number, section.folds),
            *sources_of(dataset, stores),
            np.array(stores["train"].description.prior),
            *section.options(),
            oblivious=section.oblivious,
            checkpoint=checkpoint,
        )
        whole_array(found, evidence)
    return found


def train_network(
    dataset: str,
    section: LearnedEvidence,
    stores: Stores,
    checkpoint: Path,
    target: Path,
    parts: list[Path],
    unseen: Path,
) -> Floats:
    """Train from the checkpoint, if there is one; each epoch is in MLflow. Saves the network, returns its temperatures.

    parts: evidence of folds, which then calibrates, and is kept as `unseen`. Networks do not travel between processes:
    who needs one loads it.
    """
    from firmbound.tandem.cross_fitting import agreeing, in_one_piece
    from firmbound.tandem.model import fit_tandem_from  # torch and MLflow, which given evidence does not wait for
    from flows.tracking import TrainingRun

    train, validation = sources_of(dataset, stores)
    what = f"{dataset}: training on {len(train.labels):,} sequences"
    with TrainingRun(dataset, section.model_dump(), checkpoint.name) as run, progress(what) as advance:
        model = fit_tandem_from(
            train,
            validation,
            np.array(stores["train"].description.prior),
            *section.options(),
            oblivious=section.oblivious,
            calibrate=section.calibrate and not parts,
            checkpoint=checkpoint,
            progress=run.epoch,
            advance=advance,
        )
        if parts:
            said = in_one_piece(train, [np.load(part, allow_pickle=False) for part in parts])
            model, said = agreeing(model, train, said, calibrate=section.calibrate)
            whole_array(unseen, said)
        run.finish(model)
    scaling = scaling_of(dataset)
    if scaling is not None:  # the network that comes out reads features as they are
        model = model.reading(scaling.mean, scaling.scale)
    model.save(target)
    return model.temperatures


def sources_of(dataset: str, stores: Stores) -> tuple[StoreSource, StoreSource]:
    scaling = scaling_of(dataset)
    return StoreSource(stores["train"], scaling), StoreSource(stores["validation"], scaling)


@held
def network_in(folder: Path, device: Device, _: str) -> "TandemModel":
    from firmbound.tandem.model import TandemModel

    return TandemModel.load(folder).on(device)


def write_evidence(path: Path, store: TrajectoryStore, origin: Origin) -> None:
    about = replace(store.description, dimension=0, evidence=True)
    name = f"{about.dataset} {about.split}"
    with create_store(path, about) as writer, progress(f"{name}: evidence") as advance:
        futures = [
            work_task(evidence_shard, f"{name} evidence {shard}").submit(writer.folder, about, store, origin, shard)
            for shard in range(about.shards)
        ]
        for done, future in enumerate(futures, start=1):
            future.result()
            advance(done, about.shards)


def evidence_shard(folder: Path, about: StoreDescription, store: TrajectoryStore, origin: Origin, shard: int) -> None:
    rows = about.rows(shard)
    if isinstance(origin, Path):
        evidence = np.load(origin, mmap_mode="r", allow_pickle=False)[rows]
    else:
        evidence = store.read("evidence", rows) if origin is None else _learned(network_in(*origin), store, rows)
    ends = store.read("lengths", rows) if about.unequal else None
    batch = Batch(labels=store.read("labels", rows), classes=about.classes, evidence=evidence, lengths=ends)
    StoreWriter(folder, about).write(shard, batch)


def _learned(model: "TandemModel", store: TrajectoryStore, rows: slice) -> NDArray[Any]:
    """Evidence is small, features may be wide: so many at a time as a shard of theirs has."""
    together = store.description.shard_rows
    parts = [slice(start, min(start + together, rows.stop)) for start in range(rows.start, rows.stop, together)]
    return np.concatenate([model.evidence(store.read("features", part)) for part in parts])


if __name__ == "__main__":
    main("tandem")
