"""What the study keeps of each method, on disk: data/baselines/<data set>/<repeat>/<method>.zarr."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from firmbound.costs import DecisionProblem
from firmbound.study.contest import Contest, Outcome
from firmbound.study.findings import Repeat
from flows.stage import DATA

PROBLEM, TRUTH, DONE = "problem.json", "truth.zarr", "done.json"


def baselines_folder(dataset: str) -> Path:
    """All data sets side by side: the last stage depends on the folder, whichever they are."""
    return DATA / "baselines" / dataset


def save_truth(folder: Path, contest: Contest) -> None:
    """Labels of the test sequences, and the decision problem."""
    lengths = np.full(len(contest.test.labels), contest.problem.horizon)
    ends = lengths if contest.test.lengths is None else contest.test.lengths
    known: dict[str, NDArray[Any]] = {"labels": contest.test.labels, "lengths": ends, "rows": contest.rows}
    _save(folder / TRUTH, known)
    problem = contest.problem
    about = {
        "classes": problem.classes,
        "horizon": problem.horizon,
        "penalty": problem.penalty.tolist(),
        "costs": problem.costs.tolist(),
        "delay": problem.delay.tolist(),
        "prior": contest.prior.tolist(),
        "sequences": {split: len(getattr(contest, split).labels) for split in ("train", "validation", "test")},
    }
    (folder / PROBLEM).write_text(json.dumps(about) + "\n")


def save_outcome(path: Path, outcome: Outcome) -> None:
    _save(path, outcome.arrays())


def _save(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    group = zarr.open_group(str(path), mode="w")
    for name, values in arrays.items():
        group.create_array(name, data=values)


def load_outcome(path: Path) -> Outcome:
    group = zarr.open_group(str(path), mode="r")
    return Outcome.from_arrays({name: np.asarray(group[name]) for name in group.array_keys()})


def load_repeats(dataset: str) -> list[Repeat]:
    """All repeats of a data set that has been studied."""
    found = []
    for folder in sorted(baselines_folder(dataset).iterdir(), key=lambda one: int(one.name)):
        about = json.loads((folder / PROBLEM).read_text())
        named = ("classes", "horizon", "penalty", "costs", "delay")
        problem = DecisionProblem.create(**{name: about[name] for name in named})
        truth = zarr.open_group(str(folder / TRUTH), mode="r")
        labels, rows = (np.asarray(truth[name]).astype(np.int64) for name in ("labels", "rows"))
        methods = json.loads((folder / DONE).read_text())
        outcomes = {method: load_outcome(folder / f"{method}.zarr") for method in methods}
        found.append(Repeat(dataset, int(folder.name), labels, rows, problem, outcomes))
    return found
