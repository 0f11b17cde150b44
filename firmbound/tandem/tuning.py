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
from firmbound.tandem.data import SequenceSource
from firmbound.tandem.options import NetworkOptions, TrainingOptions
from firmbound.tandem.training import Progress, Trainer

NETWORK = {field.name for field in fields(NetworkOptions)}
TRAINING = {field.name for field in fields(TrainingOptions)}
INTEGRATORS = ("lstm", "transformer")
DONE = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED)


@dataclass(frozen=True)
class Range:
    low: float
    high: float
    log: bool = False


Choice = Range | tuple[Any, ...]


@dataclass(frozen=True)
class Pruning:
    """Of the trials that reached a step, the best `percentile` per cent go on.

    startup: share of all trials before any is pruned. warmup: share of a trial's steps before it may be.
    """

    percentile: float
    startup: float
    warmup: float

    def __post_init__(self) -> None:
        for name, most in (("percentile", 100), ("startup", 1), ("warmup", 1)):
            if not 0 <= getattr(self, name) <= most:
                raise InvalidInput(f"pruner.{name}", f"lie in 0..{most}", getattr(self, name))


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
                _choices("searched", data["searched"]),
                {name: _choices(name, data[name]) for name in INTEGRATORS},
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
        integrators = _ends(self.searched.get("integrator", (self.fixed.get("integrator"),)))
        if not set(integrators) <= set(INTEGRATORS):
            raise InvalidInput("search space: integrator", f"be fixed or searched among {INTEGRATORS}", integrators)
        for integrator in integrators:
            self._try_ends(integrator)

    def _try_ends(self, integrator: str) -> None:
        """Make options of every choice and both ends of every range, so that a slip is found before any trial."""
        choices = {**self.searched, **self.by_integrator[integrator]}
        first = {
            **self.fixed,
            **{name: _ends(choice)[-1] for name, choice in choices.items()},
            "integrator": integrator,
        }
        for name, choice in choices.items():
            for value in _ends(choice) if name != "integrator" else [integrator]:
                self._options(first | {name: value})
        self._options(first)

    def _options(self, chosen: Mapping[str, Any]) -> tuple[NetworkOptions, TrainingOptions]:
        network = NetworkOptions(**{name: value for name, value in chosen.items() if name in NETWORK})
        return network, TrainingOptions(**{name: value for name, value in chosen.items() if name in TRAINING})

    def suggest(self, trial: optuna.trial.BaseTrial, horizon: int) -> tuple[NetworkOptions, TrainingOptions]:
        """The options of one trial; orders that sequences of `horizon` observations cannot have are left out."""
        chosen = {**self.fixed, **{name: _suggest(trial, name, c, horizon) for name, c in self.searched.items()}}
        own = self.by_integrator[chosen["integrator"]]
        chosen |= {name: _suggest(trial, name, choice, horizon) for name, choice in own.items()}
        return self._options(chosen)

    def identity(self) -> str:
        """Tells this space from others, whatever the number of trials."""
        return hashlib.sha256(repr(replace(self, trials=1)).encode()).hexdigest()[:12]


def _choices(where: str, data: Mapping[str, Any]) -> dict[str, Choice]:
    return {name: _choice(f"{where}.{name}", value) for name, value in data.items()}


def _choice(name: str, value: Any) -> Choice:
    if isinstance(value, list) and value:
        return tuple(value)
    if isinstance(value, Mapping) and {"low", "high"} <= set(value) <= {"low", "high", "log"}:
        found = Range(**value)
        numbers = all(isinstance(end, int | float) for end in (found.low, found.high))
        if numbers and found.low <= found.high and (found.low > 0 or not found.log):
            return found
    raise InvalidInput(name, "be a list of choices, or {low, high, log} with low <= high", repr(value))


def _ends(choice: Choice) -> tuple[Any, ...]:
    return choice if isinstance(choice, tuple) else (choice.low, choice.high)


def _suggest(trial: optuna.trial.BaseTrial, name: str, choice: Choice, horizon: int) -> Any:
    if isinstance(choice, tuple):
        return trial.suggest_categorical(name, choice)
    low, high = (min(end, horizon - 1) if name == "order" else end for end in (choice.low, choice.high))
    if isinstance(low, int) and isinstance(high, int):
        return trial.suggest_int(name, low, high, log=choice.log)
    return trial.suggest_float(name, low, high, log=choice.log)


def open_study(path: Path, space: SearchSpace, source: SequenceSource, *, seed: int = 0) -> optuna.Study:
    """The study of this space on these sequences that a SQLite file keeps, begun if there is none.

    Pruning counts in training steps, as the paper does: epochs times batches.
    """
    batch, epochs = (int(space.fixed.get(name, getattr(TrainingOptions, name))) for name in ("batch", "epochs"))
    an_epoch = -(-len(source.labels) // batch)
    path.parent.mkdir(parents=True, exist_ok=True)
    storage = optuna.storages.RDBStorage(f"sqlite:///{path}")
    pruner = optuna.pruners.PercentilePruner(
        space.pruner.percentile,
        n_startup_trials=int(space.trials * space.pruner.startup),
        n_warmup_steps=int(epochs * an_epoch * space.pruner.warmup),
        interval_steps=an_epoch,
    )
    return optuna.create_study(
        storage=storage,
        study_name=f"tandem {space.identity()} {source.fingerprint()[:12]}",
        direction="minimize",
        pruner=pruner,
        sampler=optuna.samplers.TPESampler(seed=seed),
        load_if_exists=True,
    )


def close_left_open(study: optuna.Study) -> None:
    """Trials that a kill left open have failed."""
    for trial in study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.RUNNING]):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)


def finished(study: optuna.Study) -> int:
    return len(study.get_trials(deepcopy=False, states=DONE))


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
