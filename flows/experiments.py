"""Stage `experiments` of the study: what rules are worth on the paper's Gaussian problems, whose optimum is known."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from prefect import flow

from firmbound.publishing import publish, whole_file
from firmbound.study import experiments
from firmbound.study.experiments import Row
from flows.library_code import library_code
from flows.observability import observed
from flows.params import Params, study_of
from flows.progress import progress
from flows.runners import one_core_tasks
from flows.stage import DATA, begin, keep_quiet_about_known_errors, reports_failure, run_flow
from flows.study_section import Experiments

FOLDER, TABLE = DATA / "experiments", "table.parquet"
WORK: dict[str, Callable[[Experiments], list[Row]]] = {
    "small data": lambda one: experiments.small_data(one.sizes, one.fresh, one.repeats, one.horizon),
    "statistic": lambda one: experiments.statistics_of_processes(one.sequences, one.fresh, one.repeats, one.horizon),
    "process options": lambda one: experiments.options_of_processes(one.sequences, one.fresh, one.repeats, one.horizon),
    "convex options": lambda one: experiments.options_of_convex_learning(
        one.sequences, one.fresh, one.repeats, one.horizon
    ),
    "one look": lambda one: experiments.seconds_of_a_look(one.sizes, one.repeats, one.horizon),
}


@flow(name="experiments", flow_run_name="experiments on Gaussian problems")
@reports_failure
def experiments_flow(params: Params) -> None:
    """Write data/experiments/table.parquet. After a kill, experiments that had finished are not made again."""
    section = study_of(params).experiments
    with publish(FOLDER, resume=identity(section)) as folder:
        with one_core_tasks(params.runner) as submit, progress(f"{len(WORK)} experiments") as advance:
            made = [submit(name, run_one, name, section, folder) for name in WORK]
            for place, future in enumerate(made, start=1):
                future.result()
                advance(place, len(made))
        files = [rows_file(folder, name) for name in WORK]
        rows = [row for file in files for row in json.loads(file.read_text())]
        pq.write_table(pa.Table.from_pylist(with_all_columns(rows)), folder / TABLE)
        for file in files:
            file.unlink()


def identity(section: Experiments) -> str:
    return hashlib.sha256(json.dumps([section.model_dump(), library_code()]).encode()).hexdigest()


def run_one(name: str, section: Experiments, folder: Path) -> None:
    file = rows_file(folder, name)
    if not file.exists():
        rows = WORK[name](section)
        with whole_file(file) as writing:
            json.dump(rows, writing)


def rows_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.json"


def with_all_columns(rows: list[Row]) -> list[dict[str, Any]]:
    """Experiments measure different things: what one does not is None."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return [{name: row.get(name) for name in columns} for row in rows]


def run_whole(flow: Any) -> None:
    """Start a stage that is of all data sets together."""
    with observed(flow.name):
        _start(flow)


def _start(flow: Any) -> None:
    keep_quiet_about_known_errors()
    params, _, runner = begin(study_of)
    run_flow(flow.with_options(task_runner=runner), params)


if __name__ == "__main__":
    run_whole(experiments_flow)
