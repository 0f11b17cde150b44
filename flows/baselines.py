"""Stage `baselines` of the study: every method on every repeat of a data set; each decision on test data is kept.

A group of methods that has finished is on disk as a whole; after a kill, the same work goes on with the others.
"""

import hashlib
import json
from pathlib import Path

from prefect import flow, get_run_logger

import firmbound
from firmbound.publishing import publish, whole_file
from flows.contests import contest_of, field_options, oracle_of
from flows.outcomes import DONE, baselines_folder, save_outcome, save_truth
from flows.params import Params, study_of
from flows.progress import progress
from flows.runners import work_task
from flows.stage import main, reports_failure, stage_folder

# Of this folder, what results depend on.
FILES = (
    "baselines",
    "contests",
    "outcomes",
    "params",
    "recorded_sections",
    "sections",
    "stored_scaling",
    "study_section",
)


@flow(name="baselines", flow_run_name="baselines {dataset}")
@reports_failure
def baselines_flow(dataset: str, params: Params) -> None:
    """Write data/baselines/<dataset>: a folder a repeat, in it truth.zarr and a Zarr group a method."""
    study = study_of(params)
    with publish(baselines_folder(dataset), resume=identity(dataset, params)) as folder:
        for repeat in range(study.repeats):
            run_repeat(dataset, params, repeat, folder / str(repeat))


def identity(dataset: str, params: Params) -> str:
    """Names the work: its settings, the sequences that the pipeline made, and all code of the library."""
    library = Path(firmbound.__file__).parent
    sections = [getattr(params, name)[dataset].model_dump() for name in ("features", "tandem", "boundary")]
    stores = sorted((stage_folder(dataset, "features")).glob("*.zarr/zarr.json"))
    ours = [Path(__file__).with_name(f"{name}.py") for name in FILES]
    code = [file.read_text() for file in [*sorted(library.rglob("*.py")), *ours]]
    parts = [sections, study_of(params).model_dump(), [store.read_text() for store in stores], code]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def run_repeat(dataset: str, params: Params, repeat: int, folder: Path) -> None:
    """All groups of one repeat, one after the other: each learns on all cores."""
    done = folder / DONE
    if done.exists():
        return
    from firmbound.study.field import groups  # torch and aeon, which a finished repeat does not wait for

    folder.mkdir(exist_ok=True)
    name = f"{dataset} repeat {repeat}"
    contest = work_task(contest_of, f"{name} sequences and evidence").submit(dataset, params, repeat).result()
    save_truth(folder, contest)
    oracle = oracle_of(dataset, params, contest.problem)
    found = groups(contest, field_options(dataset, params, len(contest.train.labels)), oracle)
    chosen = [one for one in found if one not in study_of(params).leave_out]
    with progress(f"{name}: {len(chosen)} groups of methods") as advance:
        for place, group in enumerate(chosen, start=1):
            mark = folder / f"{group}.json"
            if not mark.exists():
                made = work_task(found[group], f"{name} {group}").submit(contest).result()
                for method, outcome in made.items():
                    save_outcome(folder / f"{method}.zarr", outcome)
                    get_run_logger().info("%s: %s in %.1f s", name, method, outcome.seconds)
                write_mark(mark, list(made))
            advance(place, len(chosen))
    methods = [method for group in chosen for method in json.loads((folder / f"{group}.json").read_text())]
    write_mark(done, methods)
    for group in chosen:
        (folder / f"{group}.json").unlink()


def write_mark(file: Path, methods: list[str]) -> None:
    """Says what is whole; it is there as a whole itself, or not at all."""
    with whole_file(file) as writing:
        json.dump(methods, writing)


if __name__ == "__main__":
    main("baselines")
