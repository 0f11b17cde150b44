"""Searching network and training options: the space is data, the search is Optuna's.

A search space, as read from a file:

    trials: 200
    pruner: {percentile: 40, startup: 0.5, warmup: 0.5}      shares of all trials, and of a trial's steps
    fixed: {batch: 200, epochs: 15, projection: 96}
    searched:
      learning_rate: {low: 1.0e-6, high: 1.0e-3, log: true}  a range; of whole numbers if both ends are
      optimizer: [adam, rmsprop, lion]                       a choice
    lstm: {hidden: {low: 32, high: 256}}                     searched for this integrator alone
    transformer: {blocks: {low: 1, high: 3}}

Names are those of NetworkOptions and TrainingOptions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import optuna

from firmbound.errors import InvalidInput, TrainingDiverged
from firmbound.search_space import (
    Choice,
    Pruning,
    choices_of,
    close_left_open,
    ends,
    finished,
    kept_study,
    suggest,
)
from firmbound.tandem.data import SequenceSource
from firmbound.tandem.options import NetworkOptions, TrainingOptions
from firmbound.tandem.training import Progress, Trainer

__all__ = ["SearchSpace", "close_left_open", "finished", "open_study", "score_trial"]

NETWORK = {field.name for field in fields(NetworkOptions)}
TRAINING = {field.name for field in fields(TrainingOptions)}
INTEGRATORS = ("lstm", "transformer")


@dataclass(frozen=True)
class SearchSpace:
    trials: int
    pruner: Pruning
    fixed: Mapping[str, Any]
    searched: Mapping[str, Choice]
    by_integrator: Mapping[str, Mapping[str, Choice]]

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> SearchSpace:
        """From plain data, as a YAML file gives it."""
        wanted = {"trials", "pruner", "fixed", "searched", *INTEGRATORS}
        if not isinstance(data, Mapping) or set(data) != wanted:
            got = sorted(data) if isinstance(data, Mapping) else type(data).__name__
            raise InvalidInput("search space", f"have the keys {sorted(wanted)}", got)
        for name in wanted - {"trials"}:
            if not isinstance(data[name], Mapping):
                raise InvalidInput(f"search space: {name}", "be a mapping, {} if empty", repr(data[name]))
        try:
            space = cls(
                int(data["trials"]),
                Pruning(**data["pruner"]),
                dict(data["fixed"]),
                choices_of("searched", data["searched"]),
                {name: choices_of(name, data[name]) for name in INTEGRATORS},
            )
        except (TypeError, ValueError) as problem:
            raise InvalidInput("search space", "be readable", str(problem)) from None
        space._check()
        return space

    def _check(self) -> None:
        if self.trials < 1:
            raise InvalidInput("trials", "be at least 1", self.trials)
        given = [*self.fixed, *self.searched, *(name for part in self.by_integrator.values() for name in part)]
        for name in given:
            if name not in NETWORK | TRAINING:
                raise InvalidInput(f"search space: {name}", "be an option of network or training", "an unknown name")
            if given.count(name) > 1:
                raise InvalidInput(f"search space: {name}", "be given once", f"{given.count(name)} times")
        integrators = ends(self.searched.get("integrator", (self.fixed.get("integrator"),)))
        if not set(integrators) <= set(INTEGRATORS):
            raise InvalidInput("search space: integrator", f"be fixed or searched among {INTEGRATORS}", integrators)
        for integrator in integrators:
            self._try_ends(integrator)

    def _try_ends(self, integrator: str) -> None:
        """Make options of every choice and both ends of every range, so that a slip is found before any trial."""
        choices = {**self.searched, **self.by_integrator[integrator]}
        first = {
            **self.fixed,
            **{name: ends(choice)[-1] for name, choice in choices.items()},
            "integrator": integrator,
        }
        for name, choice in choices.items():
            for value in ends(choice) if name != "integrator" else [integrator]:
                self._options(first | {name: value})
        self._options(first)

    def _options(self, chosen: Mapping[str, Any]) -> tuple[NetworkOptions, TrainingOptions]:
        network = NetworkOptions(**{name: value for name, value in chosen.items() if name in NETWORK})
        return network, TrainingOptions(**{name: value for name, value in chosen.items() if name in TRAINING})

    def suggest(self, trial: optuna.trial.BaseTrial, horizon: int) -> tuple[NetworkOptions, TrainingOptions]:
        """The options of one trial; orders that sequences of `horizon` observations cannot have are left out."""
        most = {"order": horizon - 1}
        chosen = {**self.fixed, **{name: suggest(trial, name, c, most.get(name)) for name, c in self.searched.items()}}
        own = self.by_integrator[chosen["integrator"]]
        chosen |= {name: suggest(trial, name, choice, most.get(name)) for name, choice in own.items()}
        return self._options(chosen)

    def identity(self) -> str:
        """Tells this space from others, whatever the number of trials."""
        return hashlib.sha256(repr(replace(self, trials=1)).encode()).hexdigest()[:12]


def open_study(path: Path, space: SearchSpace, source: SequenceSource, *, seed: int = 0) -> optuna.Study:
    """The study of this space on these sequences that a SQLite file keeps, begun if there is none.

    Pruning counts in training steps, as the paper does: epochs times batches.
    """
    batch, epochs = (int(space.fixed.get(name, getattr(TrainingOptions, name))) for name in ("batch", "epochs"))
    an_epoch = -(-len(source.labels) // batch)
    pruner = space.pruner.of(space.trials, epochs * an_epoch, interval=an_epoch)
    return kept_study(path, f"tandem {space.identity()} {source.fingerprint()[:12]}", pruner, seed)


def score_trial(
    trial: optuna.Trial,
    source: SequenceSource,
    validation: SequenceSource,
    classes: int,
    network: NetworkOptions,
    training: TrainingOptions,
    progress: Progress | None = None,
) -> float:
    """Train, and hand back the macro-averaged error on validation data; hopeless and diverging trials are pruned."""
    trainer = Trainer(source, validation, classes, network, training)

    def after_epoch(epoch: int, epochs: int, train_loss: float, loss: float) -> None:
        if progress is not None:
            progress(epoch, epochs, train_loss, loss)
        trial.report(trainer.macro_error(), epoch * trainer.steps)
        if trial.should_prune():
            raise optuna.TrialPruned

    try:
        trainer.run(progress=after_epoch)
    except TrainingDiverged as problem:
        raise optuna.TrialPruned(str(problem)) from None
    return trainer.macro_error()
