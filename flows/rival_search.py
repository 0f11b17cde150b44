"""Rivals' options, searched with Optuna on a data set's first repeat before they enter; all get as many trials."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from firmbound.publishing import whole_file
from flows.outcomes import SEARCHED, read_searched
from flows.params import SPACES, Params, study_of
from flows.spaces import read_space

# Of a data set's folder: what a search goes on with.
TRIALS = "trials"


def space_file(params: Params) -> Path | None:
    """The file of params/search that the study names; None where nothing is searched."""
    name = study_of(params).search
    if name is None:
        return None
    return SPACES / f"{name}.yaml"


def search_rival(dataset: str, params: Params, folder: Path, rival: str) -> str:
    """Search the options of one rival, in a process of its own; says what was found. Trials are kept as they end."""
    import optuna

    from firmbound.study.search import search
    from flows.contests import field_options, held_contest

    file = folder / SEARCHED / f"{rival}.json"
    if file.exists():
        return f"{rival}: options were searched before"
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    contest = held_contest(dataset, params, 0, folder / "0")
    options = field_options(dataset, params, len(contest.train.labels), {})
    trials = folder / TRIALS / f"{rival}.db"
    found = search(rival, spaces_of(params), contest, options, trials, seed=study_of(params).seed)
    file.parent.mkdir(exist_ok=True)
    with whole_file(file) as writing:
        json.dump(asdict(found), writing)
    return f"{rival}: {found.options} pays {found.score}, untuned {found.untuned}, after {found.trials} trials"


def spaces_of(params: Params) -> Any:
    from firmbound.study.rival_spaces import RivalSpaces

    file = space_file(params)
    assert file is not None  # nobody asks otherwise
    return read_space(file, RivalSpaces.of)


def tuned_options(folder: Path) -> dict[str, dict[str, Any]]:
    """Of every rival that was searched, the options that were found."""
    return {rival: found["options"] for rival, found in read_searched(folder).items()}
