"""The section `study` of params.yaml: which methods meet on which data sets, how often, and with what means."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from firmbound.devices import Device
from firmbound.tandem.options import Optimizer
from flows.recorded_sections import Section
from flows.tandem_section import LearnedEvidence

# What may be left out: names of firmbound.study.field, which needs torch to be asked.
GROUPS = (
    "thresholds",
    "cfl",
    "gp",
    "refined",
    "tandem",
    "gru",
    "minirocket",
    "lstm-s",
    "lstm-m",
    "earliest",
    "tcn-transformer",
    "calimera",
    "optimum",
)
# Plain rules on the data set's own evidence: quick enough to take part in every repeat.
ON_EVIDENCE = ("thresholds", "cfl", "gp", "optimum")
# Those whose options can be searched.
SEARCHED_RIVALS = ("gru", "lstm-s", "lstm-m", "earliest", "tcn-transformer")
# Of the TCN-Transformer.
HEADS = 4


class StudySequences(Section):
    """How many of each split take part at most, drawn by lot; null: all."""

    train: PositiveInt | None
    validation: PositiveInt | None
    test: PositiveInt | None


class StudyNetworks(Section):
    """Of the rivals' networks. updates: steps of training, so that small data sets are seen more often; or as many as
    the network has that learns the evidence, if those are more."""

    optimizer: Optimizer
    learning_rate: PositiveFloat
    weight_decay: Annotated[float, Field(ge=0)]
    batch: PositiveInt
    updates: PositiveInt
    dropout: Annotated[float, Field(ge=0, lt=1)]
    units: PositiveInt
    hidden: PositiveInt
    channels: PositiveInt
    device: Device


class Experiments(Section):
    """What rules are worth on the paper's Gaussian problems, whose optimum is known: by sequences and by options.

    sizes: numbers of training sequences; sequences: of the other experiments; fresh: that rules are judged on. horizon:
    observations of all of them.
    """

    sizes: Annotated[list[Annotated[int, Field(ge=100)]], Field(min_length=1)]
    sequences: Annotated[int, Field(ge=100)]
    fresh: PositiveInt
    horizon: Annotated[int, Field(ge=4)]
    repeats: PositiveInt


class Study(Section):
    """costs: in units of penalty / horizon, at most twice that. kernels: of MiniRocket.

    rivals: data sets on which all methods meet, not the plain rules alone; rival_repeats: in how many repeats. tandem:
    the network that learns evidence where it is given, beside it. search: the file of params/search in which options of
    rivals are searched.
    """

    datasets: Annotated[list[str], Field(min_length=1)]
    repeats: PositiveInt
    rivals: list[str]
    rival_repeats: PositiveInt
    seed: NonNegativeInt
    sequences: StudySequences
    costs: Annotated[list[PositiveFloat], Field(min_length=1)]
    thresholds: Annotated[int, Field(ge=2)]
    kernels: Annotated[int, Field(ge=84)]
    leave_out: list[str]
    networks: StudyNetworks
    search: str | None
    tandem: LearnedEvidence | None
    experiments: Experiments
