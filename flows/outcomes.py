"""What the study keeps of each method, on disk: data/baselines/<data set>/<repeat>/<method>.zarr."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from firmbound.baselines.rival import evidence_of
from firmbound.costs import DecisionProblem
from firmbound.publishing import publish
from firmbound.study.contest import Contest, Outcome
from firmbound.study.repeats import Repeat
from firmbound.trajectories import Batch
from flows.stage import DATA

PROBLEM, TRUTH, DONE, EVIDENCE = "problem.json", "truth.zarr", "done.json", "evidence.zarr"
# Of a data set's folder: what the search of options found for each rival.
SEARCHED = "searched"


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


def save_evidence(folder: Path, parts: Mapping[str, Batch], seconds: float) -> None:
    """Learned evidence of all splits, as a whole or not at all; kept until the repeat is finished."""
    arrays = {split: evidence_of(part) for split, part in parts.items()}
    with publish(folder / EVIDENCE) as store:
        _save(store, {**arrays, "seconds": np.array([seconds])})


def has_evidence(folder: Path) -> bool:
    return (folder / EVIDENCE).exists()


def load_evidence(folder: Path, parts: Mapping[str, Batch]) -> tuple[dict[str, Batch], float]:
    """The same splits with the evidence that was learned, and the seconds that it took."""
    group = zarr.open_group(str(folder / EVIDENCE), mode="r")
    found = {split: replace(part, evidence=np.asarray(group[split])) for split, part in parts.items()}
    return found, float(np.asarray(group["seconds"])[0])


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
    repeats = [folder for folder in baselines_folder(dataset).iterdir() if folder.name.isdecimal()]
    for folder in sorted(repeats, key=lambda one: int(one.name)):
        about = json.loads((folder / PROBLEM).read_text())
        named = ("classes", "horizon", "penalty", "costs", "delay")
        problem = DecisionProblem.create(**{name: about[name] for name in named})
        truth = zarr.open_group(str(folder / TRUTH), mode="r")
        labels, rows = (np.asarray(truth[name]).astype(np.int64) for name in ("labels", "rows"))
        done = json.loads((folder / DONE).read_text())
        outcomes = {method: load_outcome(folder / f"{method}.zarr") for method in done["methods"]}
        found.append(Repeat(dataset, int(folder.name), labels, rows, problem, outcomes, done["failed"]))
    return found


def searched_options(dataset: str) -> dict[str, dict[str, Any]]:
    """Of every rival whose options were searched: those, what they paid on validation sequences, how many trials."""
    return read_searched(baselines_folder(dataset))


def read_searched(folder: Path) -> dict[str, dict[str, Any]]:
    return {file.stem: json.loads(file.read_text()) for file in sorted((folder / SEARCHED).glob("*.json"))}
