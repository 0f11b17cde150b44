"""Searching the rivals' options with Optuna.

A trial learns from training sequences and is scored on validation sequences, by what chooses between a rival's ways
later. Nothing here looks at test sequences.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna

from firmbound.baselines.rival import FittedRival, features_of
from firmbound.baselines.training import AfterEpoch
from firmbound.costs import DecisionProblem
from firmbound.errors import TrainingDiverged
from firmbound.search_space import DONE, Choice, close_left_open, finished, holds, kept_study, suggest
from firmbound.study.contest import Contest, paid_at_costs
from firmbound.study.rival_spaces import RivalSpaces, UntunedOptions, learner_of, make_rival, values_of
from firmbound.tandem.data import ArraySource
from firmbound.trajectories import Batch

# Options that are part of a loss: with other weights, the same network has another loss.
LOSS = {"cross_entropy_weight", "ranking_weight", "waiting", "every_step"}
# Of a study, by Optuna's user attributes: what the best options and the study's own pay when they are trained in full.
IN_FULL = "in full"
# Of a trial, by Optuna's user attributes: the study's own options that lie outside what is searched.
UNTUNED = "untuned"
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Found:
    """options: of all that was searched, those of the least score. trials: how many came to an end, pruned ones too.

    untuned: the score of the study's own options, which are the first trial; None if they diverge. score: None if all
    diverge; options are the study's own then. Both are of rivals that train as long as the study has them train.
    """

    options: dict[str, Any]
    score: float | None
    untuned: float | None
    trials: int
    pruned: int


def score_of(fitted: FittedRival, validation: Batch, problem: DecisionProblem) -> float:
    """Mean over costs of what the cheapest way pays on validation sequences, in units of the largest penalty."""
    ways = [point.decisions for point in fitted.points(validation)]
    paid = [paid_at_costs(way, validation, problem) for way in ways]
    return float(np.min(paid, axis=0).mean() / problem.scale)


def search(
    name: str,
    spaces: RivalSpaces,
    contest: Contest,
    options: UntunedOptions,
    file: Path,
    seed: int,
    progress: Progress | None = None,
) -> Found:
    """Run trials of a rival until there are enough; what `file` (SQLite) holds of the same search counts.

    The study's own options are the first trial, and every trial learns with the contest's seed, as the rival will that
    enters: on validation sequences no search makes it worse. One process at a time may search in a file.
    """
    plain = learner_of(name, {}, options)  # says which names are rivals, if this is none
    searched = spaces.searched[name]
    untuned = values_of(plain, searched)
    epochs = spaces.epochs(options.training, len(contest.train.labels))
    pruner = spaces.pruner.of(spaces.trials, epochs)
    study = kept_study(file, _identity(name, spaces, contest, options, seed), pruner, seed)
    close_left_open(study)
    _enqueue(study, searched, untuned)

    def pays(chosen: Mapping[str, Any]) -> float:
        fitted = make_rival(name, chosen, options).fit(contest.train, contest.validation, seed=contest.seed)
        return score_of(fitted, contest.validation, contest.problem)

    def objective(trial: optuna.Trial) -> float:
        chosen = _chosen(trial, searched)
        try:
            return pays(chosen | {"epochs": epochs, "after_epoch": _watch(trial, searched)})
        except TrainingDiverged as problem:
            raise optuna.TrialPruned(str(problem)) from None

    while (done := finished(study)) < spaces.trials:
        # Draws depend on the seed and the trials before alone: a search that was killed goes on as if it had not been.
        study.sampler = optuna.samplers.TPESampler(seed=int(np.random.SeedSequence([seed, done]).generate_state(1)[0]))
        study.optimize(objective, n_trials=1)
        if progress is not None:
            progress(done + 1, spaces.trials)
    found = _best(study, name, options, untuned)
    return found if epochs == options.training.epochs else _confirmed(study, found, untuned, pays)


def _identity(name: str, spaces: RivalSpaces, contest: Contest, options: UntunedOptions, seed: int) -> str:
    """Tells this search from others of other spaces, options or sequences, whatever the number of trials."""
    problem = contest.problem
    sequences = [
        ArraySource.of(features_of(part), part.labels, part.classes, part.lengths).fingerprint()
        for part in (contest.train, contest.validation)
    ]
    numbers = [part.tolist() for part in (problem.penalty, problem.costs, problem.delay)]
    plain = make_rival(name, {}, options)
    parts = (spaces.searched[name], spaces.pruner, spaces.updates, plain, numbers, sequences, contest.seed, seed)
    return f"{name} {hashlib.sha256(repr(parts).encode()).hexdigest()[:24]}"


def _enqueue(study: optuna.Study, searched: Mapping[str, Choice], untuned: Mapping[str, Any]) -> None:
    """The study's own options come first, and again if a kill ended their trial."""
    alive = study.get_trials(deepcopy=False, states=[*DONE, optuna.trial.TrialState.WAITING])
    if not any(UNTUNED in trial.user_attrs for trial in alive):
        inside = {key: value for key, value in untuned.items() if holds(searched[key], value)}
        outside = {key: value for key, value in untuned.items() if key not in inside}
        study.enqueue_trial(inside, user_attrs={UNTUNED: outside})


def _chosen(trial: optuna.Trial, searched: Mapping[str, Choice]) -> dict[str, Any]:
    outside: dict[str, Any] = trial.user_attrs.get(UNTUNED, {})
    inside = {key: suggest(trial, key, choice) for key, choice in searched.items() if key not in outside}
    return {**outside, **inside}


def _watch(trial: optuna.Trial, searched: Mapping[str, Choice]) -> AfterEpoch | None:
    """Ends a trial whose validation loss is hopeless; None where losses of trials cannot be compared."""
    if LOSS & set(searched):
        return None
    told: set[int] = set()

    def after_epoch(epoch: int, loss: float) -> None:
        # EARLIEST and the TCN-Transformer train a network a setting, each with a loss of its own: the first is judged.
        if epoch in told:
            return
        told.add(epoch)
        trial.report(loss, epoch)
        if UNTUNED not in trial.user_attrs and trial.should_prune():
            raise optuna.TrialPruned(f"hopeless after epoch {epoch}")

    return after_epoch


def _best(study: optuna.Study, name: str, options: UntunedOptions, untuned: dict[str, Any]) -> Found:
    scored = study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.COMPLETE])
    plain = next((trial.value for trial in scored if UNTUNED in trial.user_attrs), None)
    done = finished(study)
    if not scored:
        return Found(untuned, None, None, done, done)
    best = min(scored, key=lambda trial: math.inf if trial.value is None else trial.value)
    learner = learner_of(name, best.params | best.user_attrs.get(UNTUNED, {}), options)
    return Found(values_of(learner, untuned), best.value, plain, done, done - len(scored))


def _confirmed(
    study: optuna.Study, found: Found, untuned: dict[str, Any], pays: Callable[[Mapping[str, Any]], float]
) -> Found:
    """Trials did not train as long as the study does: the best options and the study's own do now, the better are kept.

    Options that are best after a few steps, a high learning rate for one, need not be best after many.
    """

    def in_full(options: Mapping[str, Any]) -> float:
        try:
            return pays(options)
        except TrainingDiverged:
            return math.inf

    known = study.user_attrs.get(IN_FULL, {})
    if known.get("options") != found.options:
        tuned = in_full(found.options)
        known = {"options": found.options, "paid": [tuned, tuned if found.options == untuned else in_full(untuned)]}
        study.set_user_attr(IN_FULL, known)
    tuned, plain = known["paid"]
    better = found.options if tuned < plain else untuned
    score, plain = (value if math.isfinite(value) else None for value in (min(tuned, plain), plain))
    return replace(found, options=better, score=score, untuned=plain)
