"""What may be searched of the rivals: the paper's spaces as data, the same number of trials for every rival.

    trials: 200                                              of each rival
    pruner: {percentile: 40, startup: 0.5, warmup: 0.5}      shares of all trials, and of a trial's epochs
    updates: null                                            steps of training of a trial; null: those of the study
    gru: {units: {low: 32, high: 512}, ...}                  one mapping a rival, of ranges and choices
    lstm-s: ..., lstm-m: ..., earliest: ..., tcn-transformer: ...

Names are those of the rival's own options and of RivalTraining.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, Protocol

from firmbound.arrays import is_count
from firmbound.baselines.earliest import Earliest
from firmbound.baselines.probability_threshold import ThresholdOn
from firmbound.baselines.recurrent import MonotoneLstm, PlainGru
from firmbound.baselines.rival import Rival
from firmbound.baselines.tcn_transformer import TcnTransformer
from firmbound.baselines.training import RivalTraining
from firmbound.errors import InvalidInput
from firmbound.search_space import Choice, Pruning, choices_of, ends

TRAINING = {field.name for field in fields(RivalTraining)}
# What rivals are asked for, how long they learn and on what, is the same for all of them.
NOT_SEARCHED = {"training", "kind", "penalty", "alpha", "batch", "epochs", "device", "after_epoch"}


class _Kind(NamedTuple):
    """learner: the class of a rival. size: its option that the study has a number for. given: what the study fixes."""

    learner: type[Any]
    size: str
    given: Mapping[str, Any]


RIVALS = {
    "gru": _Kind(PlainGru, "units", {}),
    "lstm-s": _Kind(MonotoneLstm, "units", {"kind": "s"}),
    "lstm-m": _Kind(MonotoneLstm, "units", {"kind": "m"}),
    "earliest": _Kind(Earliest, "hidden", {"waiting": "sum"}),
    "tcn-transformer": _Kind(TcnTransformer, "channels", {}),
}


class UntunedOptions(Protocol):
    """What the study gives rivals whose options are not searched; FieldOptions is one."""

    @property
    def training(self) -> RivalTraining: ...

    @property
    def thresholds(self) -> int: ...

    @property
    def units(self) -> int: ...

    @property
    def hidden(self) -> int: ...

    @property
    def channels(self) -> int: ...


@dataclass(frozen=True)
class RivalSpaces:
    """searched: ranges and choices of each rival. updates: steps of training of a trial, None for the study's own."""

    trials: int
    pruner: Pruning
    updates: int | None
    searched: Mapping[str, Mapping[str, Choice]]

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> RivalSpaces:
        """From plain data, as a YAML file gives it."""
        wanted = {"trials", "pruner", "updates", *RIVALS}
        if not isinstance(data, Mapping) or set(data) != wanted:
            got = sorted(map(str, data)) if isinstance(data, Mapping) else type(data).__name__
            raise InvalidInput("search space of the rivals", f"have the keys {sorted(wanted)}", got)
        for name in ("pruner", *RIVALS):
            if not isinstance(data[name], Mapping) or not data[name]:
                raise InvalidInput(name, "be a mapping, and not an empty one", repr(data[name]))
        for name, count in (("trials", data["trials"]), ("updates", data["updates"])):
            if not (is_count(count, 1) or (name == "updates" and count is None)):
                raise InvalidInput(name, "be a whole number from 1", repr(count))
        try:
            pruner = Pruning(**data["pruner"])
        except TypeError as problem:
            raise InvalidInput("pruner", "have the numbers percentile, startup and warmup", str(problem)) from None
        searched = {name: choices_of(name, data[name]) for name in RIVALS}
        for name, choices in searched.items():
            for option, choice in choices.items():
                _try_ends(name, option, choice)
        return cls(data["trials"], pruner, data["updates"], searched)

    def epochs(self, training: RivalTraining, sequences: int) -> int:
        """Of a trial that learns from so many sequences."""
        return training.epochs if self.updates is None else -(-self.updates * training.batch // sequences)


def _try_ends(name: str, option: str, choice: Choice) -> None:
    """Make the rival with every choice or both ends of a range, so that a slip is found before any trial."""
    kind = RIVALS[name]
    known = ({field.name for field in fields(kind.learner)} | TRAINING) - NOT_SEARCHED
    if option not in known:
        raise InvalidInput(f"{name}.{option}", f"be one of {sorted(known)}", "a name that is not searched")
    for value in ends(choice):
        try:
            _build(name, {option: value}, RivalTraining(), getattr(kind.learner, kind.size))
        except InvalidInput as problem:
            raise InvalidInput(f"{name}.{option}", problem.rule, problem.got, problem.advice) from None
        except TypeError:
            raise InvalidInput(f"{name}.{option}", "be a number", repr(value)) from None


def make_rival(name: str, chosen: Mapping[str, Any], options: UntunedOptions) -> Rival:
    """The rival with what was chosen, the study's options for the rest; classifiers come with their thresholds."""
    learner = learner_of(name, chosen, options)
    # EARLIEST and the TCN-Transformer say themselves when they halt.
    halts = RIVALS[name].learner in (Earliest, TcnTransformer)
    rival: Rival = learner if halts else ThresholdOn(learner, options.thresholds)
    return rival


def make_gru(chosen: Mapping[str, Any], options: UntunedOptions) -> PlainGru:
    """The GRU alone, whose posteriors more than one method of the study stops by."""
    gru: PlainGru = learner_of("gru", chosen, options)
    return gru


def learner_of(name: str, chosen: Mapping[str, Any], options: UntunedOptions) -> Any:
    """The rival's own class, without thresholds."""
    if name not in RIVALS:
        raise InvalidInput("rival", f"be one of {list(RIVALS)}", repr(name))
    return _build(name, chosen, options.training, getattr(options, RIVALS[name].size))


def _build(name: str, chosen: Mapping[str, Any], training: RivalTraining, size: int) -> Any:
    kind = RIVALS[name]
    own = {kind.size: size, **kind.given, **{key: value for key, value in chosen.items() if key not in TRAINING}}
    if kind.learner is TcnTransformer:
        heads = own.setdefault("heads", TcnTransformer.heads)
        if is_count(heads, 1) and is_count(own["channels"], 1):
            # Every head has as many channels as any other: a range of channels is one of what they are rounded up from.
            own["channels"] = -(-own["channels"] // heads) * heads
    taught = replace(training, **{key: value for key, value in chosen.items() if key in TRAINING})
    return kind.learner(**own, training=taught)


def values_of(learner: Any, named: Iterable[str]) -> dict[str, Any]:
    """Options of a rival, or of its training, by name."""
    return {key: getattr(learner.training if key in TRAINING else learner, key) for key in named}
