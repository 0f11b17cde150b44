"""Stage `baselines` of the study: every method on every repeat of a data set; each decision on test data is kept.

A group of methods that has finished is on disk as a whole; after a kill, the same work goes on with the others.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger
from prefect.futures import PrefectFuture

import firmbound
from firmbound.errors import TrainingDiverged
from firmbound.publishing import publish, whole_file
from firmbound.study.contest import Contest
from flows.contests import contest_of, field_options, learn_evidence, optimum_of
from flows.outcomes import DONE, EVIDENCE, baselines_folder, save_outcome, save_truth
from flows.params import Params, study_of
from flows.processes import in_process, processes
from flows.progress import progress
from flows.runners import work_task
from flows.stage import main, reports_failure, stage_folder
from flows.study_section import GROUPS, ON_EVIDENCE

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
    "tandem_section",
)
Mark = dict[str, Any]


@flow(name="baselines", flow_run_name="baselines {dataset}")
@reports_failure
def baselines_flow(dataset: str, params: Params) -> None:
    """Write data/baselines/<dataset>: a folder a repeat, in it truth.zarr and a Zarr group a method."""
    repeats = range(study_of(params).repeats)
    with publish(baselines_folder(dataset), resume=identity(dataset, params)) as folder:
        with processes(params.runner.workers) as pool:
            run = Entry(dataset, params, folder, pool)
            named = [work_task(in_process, f"{dataset} repeat {one} sequences and evidence") for one in repeats]
            ready = [task.submit(pool, prepare, *run.of(repeat)) for repeat, task in enumerate(named)]
            entered = {repeat: run.enter(repeat, ready[repeat].result()) for repeat in repeats}
            run.wait(entered)
        for repeat, marks in entered.items():
            if not (folder / str(repeat) / DONE).exists():
                finish(folder / str(repeat), [read_mark(folder / str(repeat), group) for group in marks])


class Entry:
    """The groups of a data set's repeats as tasks, each in a process of its own."""

    def __init__(self, dataset: str, params: Params, folder: Path, pool: ProcessPoolExecutor) -> None:
        self.dataset, self.params, self.folder, self.pool = dataset, params, folder, pool

    def of(self, repeat: int) -> tuple[str, Params, int, Path]:
        return self.dataset, self.params, repeat, self.folder / str(repeat)

    def enter(self, repeat: int, groups: list[str]) -> dict[str, PrefectFuture[list[str]]]:
        """A task a group; those that train networks of their own enter the first repeats alone."""
        study = study_of(self.params)
        chosen = [group for group in groups if group not in study.leave_out]
        if repeat >= study.rival_repeats:
            chosen = [group for group in chosen if group in ON_EVIDENCE]
        return {group: self._submit(repeat, group) for group in chosen}

    def _submit(self, repeat: int, group: str) -> PrefectFuture[list[str]]:
        task = work_task(in_process, f"{self.dataset} repeat {repeat} {group}")
        return task.submit(self.pool, run_group, *self.of(repeat), group)

    def wait(self, entered: Mapping[int, Mapping[str, PrefectFuture[list[str]]]]) -> None:
        futures = [future for groups in entered.values() for future in groups.values()]
        with progress(f"{self.dataset}: {len(futures)} groups of methods in {len(entered)} repeats") as advance:
            for place, future in enumerate(futures, start=1):
                for said in future.result():
                    get_run_logger().info("%s %s", self.dataset, said)
                advance(place, len(futures))


def identity(dataset: str, params: Params) -> str:
    """Names the work: its settings, the sequences that the pipeline made, and all code of the library but the pages."""
    library = Path(firmbound.__file__).parent
    sections = [getattr(params, name)[dataset].model_dump() for name in ("features", "tandem", "boundary")]
    study = study_of(params).model_dump(exclude={"datasets", "experiments"})
    stores = sorted((stage_folder(dataset, "features")).glob("*.zarr/zarr.json"))
    ours = [Path(__file__).with_name(f"{name}.py") for name in FILES]
    theirs = [file for file in sorted(library.rglob("*.py")) if file.parent.name != "report"]
    parts = [sections, study, [store.read_text() for store in stores], [file.read_text() for file in [*theirs, *ours]]]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def prepare(dataset: str, params: Params, repeat: int, folder: Path) -> list[str]:
    """Learn the repeat's evidence, write down the truth, and say which groups of methods have yet to enter."""
    from firmbound.study.field import groups

    folder.mkdir(exist_ok=True)
    if (folder / DONE).exists():
        return []
    learn_evidence(dataset, params, repeat, folder)
    contest = held_contest(dataset, params, repeat, folder)
    save_truth(folder, contest)
    options = field_options(dataset, params, len(contest.train.labels))
    return list(groups(contest, options, optimum_of(dataset, params, contest.problem)))


def run_group(dataset: str, params: Params, repeat: int, folder: Path, group: str) -> list[str]:
    """Let a group of methods learn and decide; says how long they took, or why they could not."""
    from firmbound.study.field import groups

    if mark_of(folder, group).exists():
        return []
    contest = held_contest(dataset, params, repeat, folder)
    options = field_options(dataset, params, len(contest.train.labels))
    try:
        made = groups(contest, options, optimum_of(dataset, params, contest.problem))[group](contest)
    except TrainingDiverged as problem:
        # A rival that cannot learn here says so in the report; all others go on.
        write_mark(mark_of(folder, group), {"methods": [], "failed": {group: str(problem)}})
        return [f"repeat {repeat}: {group} failed: {problem}"]
    for method, outcome in made.items():
        save_outcome(folder / f"{method}.zarr", outcome)
    write_mark(mark_of(folder, group), {"methods": list(made), "failed": {}})
    return [f"repeat {repeat}: {method} in {outcome.seconds:.1f} s" for method, outcome in made.items()]


HELD: dict[Path, Contest] = {}


def held_contest(dataset: str, params: Params, repeat: int, folder: Path) -> Contest:
    """A process keeps the last repeat that it worked on: the next group is mostly of the same."""
    if folder not in HELD:
        HELD.clear()
        HELD[folder] = contest_of(dataset, params, repeat, folder)
    return HELD[folder]


def mark_of(folder: Path, group: str) -> Path:
    return folder / f"{group}.json"


def write_mark(file: Path, said: Mark) -> None:
    """Says what is whole; it is there as a whole itself, or not at all."""
    with whole_file(file) as writing:
        json.dump(said, writing)


def read_mark(folder: Path, group: str) -> Mark:
    found: Mark = json.loads(mark_of(folder, group).read_text())
    return found


def finish(folder: Path, marks: list[Mark]) -> None:
    """One mark for the whole repeat; what was there to go on with goes."""
    methods = [method for mark in marks for method in mark["methods"]]
    failed = {group: why for mark in marks for group, why in mark["failed"].items()}
    write_mark(folder / DONE, {"methods": methods, "failed": failed})
    shutil.rmtree(folder / EVIDENCE, ignore_errors=True)
    for file in folder.glob("*.json"):
        if file.stem in GROUPS:
            file.unlink()


if __name__ == "__main__":
    main("baselines")
