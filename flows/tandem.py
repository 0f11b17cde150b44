"""Stage `tandem`: evidence of every sequence as Zarr stores; given with the features, or learned from them."""

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
from firmbound.publishing import publish
from firmbound.store import StoreDescription, StoreWriter, TrajectoryStore, create_store
from firmbound.tandem.data import StoreSource
from firmbound.temperature import in_words
from firmbound.trajectories import Batch
from flows.held import held, stamp
from flows.params import SPLITS, LearnedEvidence, Params
from flows.progress import progress
from flows.runners import work_task
from flows.stage import main, reports_failure, stage_folder
from flows.stored_scaling import scaling_of

if TYPE_CHECKING:
    from firmbound.tandem.model import TandemModel

NETWORK = "network"
Network = tuple[Path, Device, str]  # where it lies, where it computes, and its stamp


@flow(name="tandem", flow_run_name="tandem {dataset}")
@reports_failure
def tandem_flow(dataset: str, params: Params) -> None:
    """Write data/<dataset>/tandem: {train,validation,test}.zarr with evidence, and the network where it is learned."""
    section = params.tandem[dataset]
    stores = {split: TrajectoryStore(stage_folder(dataset, "features") / f"{split}.zarr") for split in SPLITS}
    scratch = stage_folder(dataset, ".training")
    with publish(stage_folder(dataset, "tandem")) as folder:
        network: Network | None = None
        if isinstance(section, LearnedEvidence):
            checkpoint = scratch / identity(dataset, section, stores)
            work = work_task(learn, f"{dataset} network of order {section.network.order}", heavy=True)
            temperatures = work.submit(dataset, section, stores, checkpoint, folder / NETWORK).result()
            network = (folder / NETWORK, section.training.device, stamp(folder / NETWORK))
            get_run_logger().info("%s: evidence is divided by %s", dataset, in_words(temperatures))
        for split, store in stores.items():
            write_evidence(folder / f"{split}.zarr", store, network)
    shutil.rmtree(scratch, ignore_errors=True)  # checkpoints have done their work


def identity(dataset: str, section: LearnedEvidence, stores: dict[str, TrajectoryStore]) -> str:
    """Names the folder of checkpoints: training with other settings, data or scale starts anew."""
    scaling = scaling_of(dataset)
    data = [StoreSource(stores[split], scaling).fingerprint() for split in ("train", "validation")]
    return hashlib.sha256(json.dumps([section.model_dump(), data], sort_keys=True).encode()).hexdigest()[:16]


def learn(
    dataset: str, section: LearnedEvidence, stores: dict[str, TrajectoryStore], checkpoint: Path, target: Path
) -> Floats:
    """Train from the checkpoint, if there is one; each epoch is in MLflow. Saves the network, returns its temperatures.

    Networks do not travel between processes: who needs one loads it.
    """
    from firmbound.tandem.model import fit_tandem_from  # torch and MLflow, which given evidence does not wait for
    from flows.tracking import TrainingRun

    network, training = section.options()
    scaling = scaling_of(dataset)
    train, validation = (StoreSource(stores[split], scaling) for split in ("train", "validation"))
    what = f"{dataset}: training on {len(train.labels):,} sequences"
    with TrainingRun(dataset, section.model_dump(), checkpoint.name) as run, progress(what) as advance:
        model = fit_tandem_from(
            train,
            validation,
            np.array(stores["train"].description.prior),
            network,
            training,
            oblivious=section.oblivious,
            calibrate=section.calibrate,
            checkpoint=checkpoint,
            progress=run.epoch,
            advance=advance,
        )
        run.finish(model)
    if scaling is not None:  # the network that comes out reads features as they are
        model = model.reading(scaling.mean, scaling.scale)
    model.save(target)
    return model.temperatures


@held
def network_in(folder: Path, device: Device, _: str) -> "TandemModel":
    from firmbound.tandem.model import TandemModel

    return TandemModel.load(folder).on(device)


def write_evidence(path: Path, store: TrajectoryStore, network: Network | None) -> None:
    about = replace(store.description, dimension=0, evidence=True)
    name = f"{about.dataset} {about.split}"
    with create_store(path, about) as writer, progress(f"{name}: evidence") as advance:
        futures = [
            work_task(evidence_shard, f"{name} evidence {shard}").submit(writer.folder, about, store, network, shard)
            for shard in range(about.shards)
        ]
        for done, future in enumerate(futures, start=1):
            future.result()
            advance(done, about.shards)


def evidence_shard(
    folder: Path, about: StoreDescription, store: TrajectoryStore, network: Network | None, shard: int
) -> None:
    rows = about.rows(shard)
    evidence = store.read("evidence", rows) if network is None else _learned(network_in(*network), store, rows)
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
