"""Stage `features`: labelled sequences as Zarr stores, one a split; shards are made and written in parallel."""

from pathlib import Path

from prefect import flow

from firmbound.datasets import FeatureProblem, GeneratedProblem
from firmbound.publishing import publish
from firmbound.store import StoreDescription, StoreWriter, create_store
from flows.params import SPLITS, Params
from flows.progress import progress
from flows.runners import work_task
from flows.stage import main, reports_failure, stage_folder


@flow(name="features", flow_run_name="features {dataset}")
@reports_failure
def features_flow(dataset: str, params: Params) -> None:
    """Write data/<dataset>/features/{train,validation,test}.zarr, all or none."""
    section = params.features[dataset]
    with publish(stage_folder(dataset, "features")) as folder:
        for split in SPLITS:
            problem = section.problem(split)
            description = describe(dataset, split, section.split_seed(split), problem)
            with create_store(folder / f"{split}.zarr", description) as writer:
                write_split(writer, problem)


def describe(dataset: str, split: str, seed: tuple[int, ...], problem: GeneratedProblem) -> StoreDescription:
    return StoreDescription(
        dataset=dataset,
        split=split,
        seed=seed,
        sequences=problem.sequences,
        horizon=problem.horizon,
        classes=problem.classes,
        dimension=problem.dimension if isinstance(problem, FeatureProblem) else 0,
        prior=problem.prior,
        evidence=True,
    )


def write_split(writer: StoreWriter, problem: GeneratedProblem) -> None:
    about = writer.description
    name = f"{about.dataset} {about.split}"
    with progress(f"{name}: {about.sequences:,} sequences") as advance:
        futures = [
            work_task(write_shard, f"{name} shard {shard}").submit(writer.folder, about, problem, shard)
            for shard in range(about.shards)
        ]
        for done, future in enumerate(futures, start=1):
            future.result()
            advance(done, about.shards)


def write_shard(folder: Path, description: StoreDescription, problem: GeneratedProblem, shard: int) -> None:
    """One shard, made and written by one task: no two writers share a file, and memory holds a shard a worker."""
    StoreWriter(folder, description).write(shard, problem.rows(description.rows(shard)))


if __name__ == "__main__":
    main("features")
