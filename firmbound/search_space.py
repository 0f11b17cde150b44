"""What searches of options share: ranges and choices as plain data, and an Optuna study that a SQLite file keeps.

learning_rate: {low: 1.0e-6, high: 1.0e-3, log: true}      a range; of whole numbers if both ends are
optimizer: [adam, rmsprop, lion]                           a choice
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna

from firmbound.errors import InvalidInput

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

    def of(self, trials: int, steps: int, interval: int = 1) -> optuna.pruners.BasePruner:
        """The pruner of so many trials of so many steps, which looks every `interval` steps."""
        return optuna.pruners.PercentilePruner(
            self.percentile,
            n_startup_trials=int(trials * self.startup),
            n_warmup_steps=int(steps * self.warmup),
            interval_steps=interval,
        )


def choices_of(where: str, data: Mapping[str, Any]) -> dict[str, Choice]:
    """What is searched, by name."""
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


def ends(choice: Choice) -> tuple[Any, ...]:
    """Every choice of a list, both ends of a range."""
    return choice if isinstance(choice, tuple) else (choice.low, choice.high)


def holds(choice: Choice, value: Any) -> bool:
    """Whether a trial may be given this value."""
    if isinstance(choice, tuple):
        return value in choice
    whole = all(isinstance(end, int) for end in ends(choice))
    return bool(choice.low <= value <= choice.high) and (isinstance(value, int) or not whole)


def suggest(trial: optuna.trial.BaseTrial, name: str, choice: Choice, most: float | None = None) -> Any:
    """A trial's value; no end of a range lies above `most`."""
    if isinstance(choice, tuple):
        return trial.suggest_categorical(name, choice)
    low, high = (end if most is None else min(end, most) for end in (choice.low, choice.high))
    if isinstance(low, int) and isinstance(high, int):
        return trial.suggest_int(name, low, high, log=choice.log)
    return trial.suggest_float(name, low, high, log=choice.log)


def kept_study(path: Path, name: str, pruner: optuna.pruners.BasePruner, seed: int) -> optuna.Study:
    """The study of this name in a SQLite file, begun if there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return optuna.create_study(
        storage=optuna.storages.RDBStorage(f"sqlite:///{path}"),
        study_name=name,
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
