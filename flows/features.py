"""Stage `features`: labelled sequences as Zarr stores, one a split; shards are made and written in parallel.

A shard that is written is marked; after a kill, the same work goes on with those that are not.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from prefect import flow

import firmbound.datasets
from firmbound.datasets import FeatureProblem, GeneratedProblem
from firmbound.datasets.recorded import RecordedSplit, recorded_splits
from firmbound.datasets.recordings import Recordings
from firmbound.publishing import publish, whole_file
from firmbound.scaling import Moments
from firmbound.store import StoreDescription, StoreWriter
from flows.clip_features import clip_recordings, extract_clips, forget_clips
from flows.held import held
from flows.params import SPLITS, GeneratedFeatures, Params, VideoFeatures
from flows.progress import progress
from flows.runners import work_task
from flows.sources import source_of
from flows.stage import main, reports_failure, stage_folder

Sequences = GeneratedProblem | RecordedSplit
MARKS = ".written"  # what is whole already, until all is
SCALING = "scaling"


@flow(name="features", flow_run_name="features {dataset}")
@reports_failure
def features_flow(dataset: str, params: Params) -> None:
    """Write data/<dataset>/features: {train,validation,test}.zarr and, for recorded data, scaling and splits.json."""
    section = params.features[dataset]
    work = identity(dataset, params)
    if isinstance(section, VideoFeatures):
        extract_clips(dataset, section, work, params.runner.workers)
    splits = splits_of(dataset, params, work)
    scaled = getattr(section, "scaling", "none") == "standard"
    with publish(stage_folder(dataset, "features"), resume=work) as folder:
        for split, sequences in splits.items():
            about = describe(dataset, split, section.split_seed(split), sequences)
            moments = write_split(folder, about, params, work, learn_scale=scaled and split == "train")
            if moments is not None:
                moments.scaling().save(folder / SCALING)
        write_places(folder, splits)
        shutil.rmtree(folder / MARKS)
    forget_clips(dataset)


def identity(dataset: str, params: Params) -> str:
    """Names the work: its settings, its files and the code that makes sequences and stores of them."""
    chosen = params.features[dataset].model_dump()
    library = Path(firmbound.datasets.__file__).parents[1]
    modules = [library / f"{name}.py" for name in ("posterior", "scaling", "series", "store", "trajectories")]
    code = [*sorted((library / "datasets").glob("*.py")), *modules, *sorted(Path(__file__).parent.glob("*features.py"))]
    # Workers share the cores, and how many threads a backbone has may change its last bits.
    parts = [chosen, params.runner.workers, source_of(dataset, chosen), [file.read_text() for file in code]]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@held
def splits_of(dataset: str, params: Params, work: str) -> dict[str, Sequences]:
    """What each split holds; recorded data are opened and checked here, before anything is written.

    Every process that writes shards opens them for itself: recordings do not travel.
    """
    section = params.features[dataset]
    if isinstance(section, GeneratedFeatures):
        return {split: section.problem(split) for split in SPLITS}
    parts: Mapping[str, Recordings]
    parts = clip_recordings(dataset, section, work) if isinstance(section, VideoFeatures) else section.parts()
    return dict(recorded_splits(parts, section.sequence_options()))


def describe(dataset: str, split: str, seed: tuple[int, ...], sequences: Sequences) -> StoreDescription:
    if isinstance(sequences, RecordedSplit):
        shape: dict[str, Any] = {"dimension": sequences.dimension, "evidence": sequences.content != "features"}
        shape |= {"unequal": sequences.unequal, "names": sequences.names}
    else:
        shape = {"dimension": sequences.dimension if isinstance(sequences, FeatureProblem) else 0, "evidence": True}
    return StoreDescription(
        dataset=dataset,
        split=split,
        seed=seed,
        sequences=sequences.sequences,
        horizon=sequences.horizon,
        classes=sequences.classes,
        prior=sequences.prior,
        **shape,
    )


def write_split(
    folder: Path, about: StoreDescription, params: Params, work: str, *, learn_scale: bool
) -> Moments | None:
    """Write what is missing of a store; hand back the moments of its features, if they are wanted."""
    writer = StoreWriter(folder / f"{about.split}.zarr", about)
    name = f"{about.dataset} {about.split}"
    begun = folder / MARKS / about.split
    if not begun.exists():
        shutil.rmtree(writer.folder, ignore_errors=True)
        writer.create_arrays()
        begun.mkdir(parents=True)
    writer.remove_unfinished()
    found: list[Moments | None] = []
    with progress(f"{name}: {about.sequences:,} sequences") as advance:
        futures = [
            work_task(write_shard, f"{name} shard {shard}").submit(writer, params, work, shard, begun, learn_scale)
            for shard in range(about.shards)
        ]
        for done, future in enumerate(futures, start=1):
            found.append(future.result())
            advance(done, about.shards)
    writer.finish()
    known = [moments for moments in found if moments is not None]
    return sum(known[1:], start=known[0]) if known else None


def write_shard(
    writer: StoreWriter, params: Params, work: str, shard: int, marks: Path, learn_scale: bool
) -> Moments | None:
    """One shard, made and written by one task: no two writers share a file, and memory holds a shard a worker."""
    mark = marks / f"{shard}.json"
    if mark.exists():
        stood = json.loads(mark.read_text())
        return Moments(stood["count"], np.array(stood["mean"]), np.array(stood["squares"])) if stood else None
    about = writer.description
    return write_rows(writer, splits_of(about.dataset, params, work)[about.split], shard, mark, learn_scale)


def write_rows(writer: StoreWriter, sequences: Sequences, shard: int, mark: Path, learn_scale: bool) -> Moments | None:
    """Write the shard, then its mark, which says that it is whole."""
    batch = sequences.rows(writer.description.rows(shard))
    writer.write(shard, batch)
    moments = Moments.of(batch.features, batch.lengths) if learn_scale and batch.features is not None else None
    stands = {}
    if moments is not None:
        stands = {"count": moments.count, "mean": moments.mean.tolist(), "squares": moments.squares.tolist()}
    with whole_file(mark) as file:
        json.dump(stands, file)
    return moments


def write_places(folder: Path, splits: dict[str, Sequences]) -> None:
    """splits.json: which series of the recorded data, and from which sample, each sequence is."""
    places = {
        split: {
            "origin": found.recordings.origin,
            "series": found.series.tolist(),
            "first_sample": found.first.tolist() if found.first.any() else 0,
        }
        for split, found in splits.items()
        if isinstance(found, RecordedSplit)
    }
    if places:
        (folder / "splits.json").write_text(json.dumps(places) + "\n")


if __name__ == "__main__":
    main("features")
