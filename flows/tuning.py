"""Tuning: search network and training options of a data set, and write the best into params.yaml. Not a DVC stage.

python -m flows.tuning <dataset> [trials]     goes on where the last search of this data set ended
"""

import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import yaml
from prefect import flow, get_run_logger

from firmbound.devices import one_thread
from firmbound.errors import FirmboundError, InvalidInput, ParameterError
from firmbound.store import TrajectoryStore
from firmbound.tandem.data import StoreSource
from firmbound.tandem.network import NetworkOptions
from firmbound.tandem.training import TrainingOptions, check_sources
from firmbound.tandem.tuning import SearchSpace, finished, open_study, score_trial
from flows.params import Params, check_dataset_name, read_params
from flows.params_file import replace_section
from flows.progress import progress
from flows.runners import make_task_runner, work_task
from flows.stage import reports_failure, run_flow, stage_folder
from flows.tracking import TrainingRun

SPACES = Path("params/search")
Sources = tuple[StoreSource, StoreSource, Any]


@flow(name="tuning", flow_run_name="tuning {dataset}")
@reports_failure
def tuning_flow(dataset: str, params: Params, trials: int | None = None) -> None:
    """Run trials until there are enough, then write the best options into params.yaml."""
    space = read_space(dataset, params)
    wanted = space.trials if trials is None else trials
    train, validation = (open_source(dataset, split) for split in ("train", "validation"))
    sources = (train, validation, np.array(train.store.description.prior))
    check_sources(train, validation, len(sources[2]), NetworkOptions(), TrainingOptions(batch=1))
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = open_study(
        stage_folder(dataset, "tuning") / "optuna.db", space, sequences=len(train.labels), seed=params.tuning.seed
    )
    before = finished(study)
    # Trials run side by side, so each keeps to one core.
    with one_thread(), progress(f"{dataset}: {wanted} trials, {before} of them done before") as advance:
        futures = [
            work_task(run_trial, f"{dataset} trial").submit(study, dataset, space, sources)
            for _ in range(before, wanted)
        ]
        for done, future in enumerate(futures, start=before + 1):
            future.result()
            advance(done, wanted)
    write_best(dataset, study, space, train.horizon)


def read_space(dataset: str, params: Params) -> SearchSpace:
    if dataset not in params.tuning.space:
        raise ParameterError(f"tuning.space.{dataset}", "name a file of params/search", "nothing")
    file = SPACES / f"{params.tuning.space[dataset]}.yaml"
    if not file.is_file():
        raise ParameterError(f"tuning.space.{dataset}", "name a file of params/search", f"{file}, which is not there")
    try:
        return SearchSpace.of(yaml.safe_load(file.read_text()))
    except (yaml.YAMLError, InvalidInput) as problem:
        raise ParameterError(str(file), "be a search space", str(problem).replace("\n", " ")) from None


def open_source(dataset: str, split: str) -> StoreSource:
    return StoreSource(TrajectoryStore(stage_folder(dataset, "features") / f"{split}.zarr"))


def run_trial(study: optuna.Study, dataset: str, space: SearchSpace, sources: Sources) -> None:
    study.optimize(partial(objective, dataset=dataset, space=space, sources=sources), n_trials=1)


def objective(trial: optuna.Trial, *, dataset: str, space: SearchSpace, sources: Sources) -> float:
    """One trial, with an MLflow run of its own."""
    network, training = space.suggest(trial, sources[0].horizon)
    settings = {"network": asdict(network), "training": asdict(training)}
    with TrainingRun(dataset, settings, f"trial {trial.number}", stage="tuning") as run:
        error = score_trial(trial, *sources, network, training, run.epoch)
        run.metric("macro_error", error)
    return error


def write_best(dataset: str, study: optuna.Study, space: SearchSpace, horizon: int) -> None:
    complete = study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.COMPLETE])
    if not complete:
        raise ParameterError("trials", "leave one that ended", "none", "Ask for more trials.")
    network, training = space.suggest(optuna.trial.FixedTrial(study.best_params), horizon)
    section = {
        "evidence": "learned",
        "network": asdict(network),
        "training": asdict(training) | {"device": "auto"},
        "oblivious": False,
        "calibrate": True,
    }
    replace_section(Path("params.yaml"), "tandem", dataset, section)
    get_run_logger().info(
        "%s: error %.4f in trial %d of %d; its options are in params.yaml, `make run` uses them",
        dataset,
        study.best_value,
        study.best_trial.number,
        finished(study),
    )


def main() -> None:
    arguments = sys.argv[1:]
    if not 1 <= len(arguments) <= 2 or not all(number.isdecimal() for number in arguments[1:]):
        sys.exit("usage: python -m flows.tuning <dataset> [trials]")
    try:
        params = read_params()
        dataset = check_dataset_name(params, arguments[0])
    except FirmboundError as problem:
        sys.exit(f"firmbound: {problem}")
    trials = int(arguments[1]) if len(arguments) == 2 else None
    run_flow(tuning_flow.with_options(task_runner=make_task_runner(params.runner)), dataset, params, trials)


if __name__ == "__main__":
    main()
