"""Tuning: search network and training options of a data set, and write the best into params.yaml. Not a DVC stage.

python -m flows.tuning <dataset> [trials]     goes on where the last search of this data set ended
"""

import sys
from dataclasses import asdict, replace
from pathlib import Path

import optuna
from prefect import flow, get_run_logger

from firmbound.errors import FirmboundError, ParameterError
from firmbound.store import TrajectoryStore
from firmbound.tandem.data import StoreSource
from firmbound.tandem.options import NetworkOptions, TrainingOptions
from firmbound.tandem.training import check_sources
from firmbound.tandem.tuning import SearchSpace, close_left_open, finished, open_study, score_trial
from flows.observability import observed
from flows.params import SPACES, GivenEvidence, LearnedEvidence, Params, check_dataset_name, is_space
from flows.params_file import replace_section
from flows.progress import progress
from flows.runners import one_core_tasks
from flows.spaces import read_space
from flows.stage import begin, keep_quiet_about_known_errors, reports_failure, run_flow, stage_folder
from flows.stored_scaling import scaling_of
from flows.tracking import TrainingRun, connect, unfinished_runs


class TuningError(FirmboundError):
    """The search could not go on."""


@flow(name="tuning", flow_run_name="tuning {dataset}")
@reports_failure
def tuning_flow(dataset: str, params: Params, trials: int | None = None) -> None:
    """Run trials until there are enough, then write the best options into params.yaml."""
    space = space_of(dataset, params)
    space = space if trials is None else replace(space, trials=trials)
    train, validation = open_sources(dataset)
    check_sources(train, validation, train.store.description.classes, NetworkOptions(), TrainingOptions(batch=1))
    study = join_study(dataset, space, train, params.tuning.seed)
    close_left_open(study)
    close_runs(dataset)
    before, drawn = finished(study), len(study.get_trials(deepcopy=False))
    what = f"{dataset}: {space.trials} trials, {before} of them done before"
    # A process for each worker: torch draws initial weights and dropout from one stream a process.
    with one_core_tasks(params.runner) as submit, progress(what) as advance:
        seeds = [params.tuning.seed + drawn + number for number in range(space.trials - before)]
        futures = [submit(f"{dataset} trial", run_trial, dataset, space, seed) for seed in seeds]
        for done, future in enumerate(futures, start=before + 1):
            future.result()
            advance(done, space.trials)
    write_best(dataset, study, space, train.horizon, params.tandem[dataset])


def space_of(dataset: str, params: Params) -> SearchSpace:
    if dataset not in params.tuning.space:
        raise ParameterError(f"tuning.space.{dataset}", "name a file of params/search", "nothing")
    file = SPACES / f"{params.tuning.space[dataset]}.yaml"
    if not is_space(params.tuning.space[dataset]):
        raise ParameterError(f"tuning.space.{dataset}", "name a file of params/search", f"{file}, which is not there")
    return read_space(file, SearchSpace.of)


def open_sources(dataset: str) -> tuple[StoreSource, StoreSource]:
    folder = stage_folder(dataset, "features")
    scaling = scaling_of(dataset)
    train, validation = (
        StoreSource(TrajectoryStore(folder / f"{split}.zarr"), scaling) for split in ("train", "validation")
    )
    return train, validation


def join_study(dataset: str, space: SearchSpace, train: StoreSource, seed: int) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return open_study(stage_folder(dataset, "tuning") / "optuna.db", space, train, seed=seed)


def close_runs(dataset: str) -> None:
    """MLflow's runs of trials that a kill left open."""
    client = connect()
    for run in unfinished_runs(client, {"dataset": dataset, "stage": "tuning"}):
        client.set_terminated(run.info.run_id, "KILLED")


def run_trial(dataset: str, space: SearchSpace, seed: int) -> None:
    """One trial, in a process of its own; each draws from another seed, also after a restart."""
    train, validation = open_sources(dataset)
    study = join_study(dataset, space, train, seed)

    def objective(trial: optuna.Trial) -> float:
        network, training = space.suggest(trial, train.horizon)
        settings = {"network": asdict(network), "training": asdict(training)}
        name = f"{study.study_name} trial {trial.number}"
        pruned: optuna.TrialPruned | None = None
        error = 1.0
        with TrainingRun(dataset, settings, name, stage="tuning") as run:
            try:
                classes = train.store.description.classes
                error = score_trial(trial, train, validation, classes, network, training, run.epoch)
                run.metric("macro_error", error)
            except optuna.TrialPruned as reason:  # an end like any other, not a failed run
                run.tag("pruned", str(reason) or "hopeless")
                pruned = reason
        if pruned is not None:
            raise pruned
        return error

    study.optimize(objective, n_trials=1)


def write_best(
    dataset: str, study: optuna.Study, space: SearchSpace, horizon: int, former: GivenEvidence | LearnedEvidence
) -> None:
    if not study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.COMPLETE]):
        raise TuningError("No trial came to its end: all were pruned. Ask for more trials.")
    network, training = space.suggest(optuna.trial.FixedTrial(study.best_params), horizon)
    section = {
        "evidence": "learned",
        "network": asdict(network),
        "training": asdict(training) | {"device": "auto"},
        "oblivious": False,
        "calibrate": True,
        "folds": former.folds if isinstance(former, LearnedEvidence) else None,
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
    with observed("tuning", arguments[0]):
        tune(arguments)


def tune(arguments: list[str]) -> None:
    keep_quiet_about_known_errors()
    params, dataset, runner = begin(lambda params: check_dataset_name(params, arguments[0]))
    trials = int(arguments[1]) if len(arguments) == 2 else None
    run_flow(tuning_flow.with_options(task_runner=runner), dataset, params, trials)


if __name__ == "__main__":
    main()
