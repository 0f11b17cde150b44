"""Stage `baselines` of the study: every method on every repeat of a data set; each decision on test data is kept.

A group of methods that has finished is on disk as a whole; after a kill, the same work goes on with the others.
"""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from prefect import flow, get_run_logger
from prefect.futures import PrefectFuture

from firmbound.errors import TrainingDiverged
from firmbound.publishing import publish, whole_file
from flows.contests import field_options, held_contest, how_to_find_optimum, learn_evidence
from flows.library_code import library_code
from flows.outcomes import DONE, EVIDENCE, baselines_folder, save_outcome, save_truth
from flows.params import Params, study_of
from flows.progress import progress
from flows.rival_search import TRIALS, search_rival, space_file, tuned_options
from flows.runners import Submit, one_core_tasks
from flows.stage import main, reports_failure, stage_folder
from flows.study_section import GROUPS, ON_EVIDENCE, SEARCHED_RIVALS

# Of this folder, what results depend on.
FILES = (
    "baselines",
    "contests",
    "held",
    "library_code",
    "optimum",
    "outcomes",
    "params",
    "recorded_sections",
    "rival_search",
    "sections",
    "spaces",
    "stored_scaling",
    "study_section",
    "tandem_section",
)
Mark = dict[str, Any]
R = TypeVar("R")


@flow(name="baselines", flow_run_name="baselines {dataset}")
@reports_failure
def baselines_flow(dataset: str, params: Params) -> None:
    """Write data/baselines/<dataset>: a folder a repeat, in it truth.zarr and a Zarr group a method."""
    with publish(baselines_folder(dataset), resume=identity(dataset, params)) as folder:
        with one_core_tasks(params.runner) as submit:
            groups = Entry(dataset, params, folder, submit).run()
        for repeat, entered in groups.items():
            own = folder / str(repeat)
            if not (own / DONE).exists():
                finish(own, [read_mark(own, group) for group in entered])
        shutil.rmtree(folder / TRIALS, ignore_errors=True)


class Entry:
    """The groups of a data set's repeats as tasks, each in a process of its own."""

    def __init__(self, dataset: str, params: Params, folder: Path, submit: Submit) -> None:
        self.dataset, self.params, self.folder, self.submit = dataset, params, folder, submit

    def run(self) -> dict[int, list[str]]:
        """Returns the groups that entered each repeat."""
        repeats = range(study_of(self.params).repeats)
        ready = [self._submit(f"repeat {one} sequences and evidence", prepare, *self._of(one)) for one in repeats]
        groups = {repeat: self._wanted(repeat, ready[repeat].result()) for repeat in repeats}
        pairs = [(repeat, group) for repeat, own in groups.items() for group in own]
        # Searches take longest, so they begin; what needs none keeps processes busy until rivals know their options.
        searches = self._search({group for _, group in pairs})
        entered = [self._enter(*pair) for pair in pairs if pair[1] not in searches]
        for rival, search in searches.items():
            get_run_logger().info("%s %s", self.dataset, search.result())
            entered += [self._enter(*pair) for pair in pairs if pair[1] == rival]
        self._wait(entered)
        return groups

    def _of(self, repeat: int) -> tuple[str, Params, int, Path]:
        return self.dataset, self.params, repeat, self.folder / str(repeat)

    def _submit(self, name: str, work: Callable[..., R], *arguments: Any) -> PrefectFuture[R]:
        return self.submit(f"{self.dataset} {name}", work, *arguments)

    def _wanted(self, repeat: int, groups: list[str]) -> list[str]:
        """All of them in the first repeats of data sets that have rivals, else the plain rules."""
        study = study_of(self.params)
        all_meet = self.dataset in study.rivals and repeat < study.rival_repeats
        return [group for group in groups if group not in study.leave_out and (all_meet or group in ON_EVIDENCE)]

    def _enter(self, repeat: int, group: str) -> PrefectFuture[list[str]]:
        return self._submit(f"repeat {repeat} {group}", run_group, *self._of(repeat), group)

    def _search(self, groups: set[str]) -> dict[str, PrefectFuture[str]]:
        """A task for each rival whose options are to be searched; the TCN-Transformer, the slowest, comes first."""
        rivals = sorted(groups & set(SEARCHED_RIVALS), reverse=True) if space_file(self.params) is not None else []
        arguments = (self.dataset, self.params, self.folder)
        return {rival: self._submit(f"{rival} options", search_rival, *arguments, rival) for rival in rivals}

    def _wait(self, futures: list[PrefectFuture[list[str]]]) -> None:
        with progress(f"{self.dataset}: {len(futures)} groups of methods, over all repeats") as advance:
            for place, future in enumerate(futures, start=1):
                for said in future.result():
                    get_run_logger().info("%s %s", self.dataset, said)
                advance(place, len(futures))


def identity(dataset: str, params: Params) -> str:
    """Names the work: its settings, the sequences that the pipeline made, and all code of the library but the pages."""
    sections = [
        getattr(params, name)[dataset].model_dump() for name in ("features", "tandem", "boundary", "refinement")
    ]
    study = study_of(params).model_dump(exclude={"datasets", "experiments", "rivals"}) | {
        "rivals": dataset in study_of(params).rivals
    }
    stores = sorted((stage_folder(dataset, "features")).glob("*.zarr/zarr.json"))
    ours = [Path(__file__).with_name(f"{name}.py") for name in FILES]
    space = space_file(params)
    searched = None if space is None else space.read_text()
    parts = [
        sections,
        study,
        searched,
        [store.read_text() for store in stores],
        [*library_code(), *(file.read_text() for file in ours)],
    ]
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
    options = field_options(dataset, params, len(contest.train.labels), {})
    return list(groups(contest, options, how_to_find_optimum(dataset, params, contest.problem)))


def run_group(dataset: str, params: Params, repeat: int, folder: Path, group: str) -> list[str]:
    """Let a group of methods learn and decide; says how long they took, or why they could not."""
    from firmbound.study.field import groups

    if mark_of(folder, group).exists():
        return []
    contest = held_contest(dataset, params, repeat, folder)
    options = field_options(dataset, params, len(contest.train.labels), tuned_options(folder.parent))
    try:
        made = groups(contest, options, how_to_find_optimum(dataset, params, contest.problem))[group](contest)
    except TrainingDiverged as problem:
        # A rival that cannot learn here says so in the report; all others go on.
        write_mark(mark_of(folder, group), {"methods": [], "failed": {group: str(problem)}})
        return [f"repeat {repeat}: {group} failed: {problem}"]
    for method, outcome in made.items():
        save_outcome(folder / f"{method}.zarr", outcome)
    write_mark(mark_of(folder, group), {"methods": list(made), "failed": {}})
    return [f"repeat {repeat}: {method} in {outcome.seconds:.1f} s" for method, outcome in made.items()]


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
