"""What a person may choose about a network and its training; known without torch, so params.yaml is read quickly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from firmbound.arrays import is_count
from firmbound.devices import Device
from firmbound.errors import InvalidInput

Activation = Literal["b2bsqrt", "tanh", "relu", "gelu"]
Integrator = Literal["lstm", "transformer"]
Optimizer = Literal["adam", "rmsprop", "lion"]
RatioLoss = Literal["lsel", "lllr"]
Schedule = Literal["constant", "cosine"]


@dataclass(frozen=True)
class NetworkOptions:
    """Shape of a network. order: observations remembered. projection: numbers an observation is projected to.

    hidden and output_activation are the LSTM's; blocks, heads, feed_forward and units the Transformer's. dropout: share
    of numbers left out in training, around the LSTM or within the Transformer.
    """

    integrator: Integrator = "lstm"
    order: int = 0
    projection: int = 64
    activation: Activation = "relu"
    hidden: int = 64
    output_activation: Activation = "b2bsqrt"
    blocks: int = 1
    heads: int = 4
    feed_forward: int = 64
    units: int = 64
    dropout: float = 0.0

    def __post_init__(self) -> None:
        for name, holds, rule in (
            ("integrator", self.integrator in get_args(Integrator), f"be one of {get_args(Integrator)}"),
            ("order", is_count(self.order, 0), "be a whole number from 0"),
            ("activation", self.activation in get_args(Activation), f"be one of {get_args(Activation)}"),
            ("output_activation", self.output_activation in get_args(Activation), f"be one of {get_args(Activation)}"),
            ("dropout", 0 <= self.dropout < 1, "lie in [0, 1)"),
            *((name, is_count(getattr(self, name), 1), "be a whole number from 1") for name in COUNTS),
        ):
            if not holds:
                raise InvalidInput(name, rule, repr(getattr(self, name)))
        if self.integrator == "transformer" and self.projection % self.heads:
            raise InvalidInput("projection", f"be a multiple of heads ({self.heads})", self.projection)


COUNTS = ("projection", "hidden", "blocks", "heads", "feed_forward", "units")


@dataclass(frozen=True)
class TrainingOptions:
    """How a network is trained.

    ratio_weight and multiplet_weight weigh the loss of the ratios (LSEL or LLLR) and that of all windows' posteriors.
    schedule: the learning rate stays or falls as a cosine to 0. clip: longest gradient. patience: epochs without a
    better validation loss after which training ends (None: never before the last).

    Augmentation, drawn anew each time a sequence is seen: shift, steps earlier or later at most; noise and offset,
    deviations of what is added to every number, or to a feature for all of a sequence; mask, neighbouring steps set to
    0 at most. Their unit is that of the features as they are trained on.
    """

    optimizer: Optimizer = "adam"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    batch: int = 200
    epochs: int = 15
    ratio_loss: RatioLoss = "lsel"
    ratio_weight: float = 1.0
    multiplet_weight: float = 1.0
    schedule: Schedule = "cosine"
    clip: float | None = 1.0
    patience: int | None = 5
    shift: int = 0
    noise: float = 0.0
    offset: float = 0.0
    mask: int = 0
    seed: int = 0
    device: Device = "cpu"

    def __post_init__(self) -> None:
        for name, holds, rule in (
            ("optimizer", self.optimizer in get_args(Optimizer), f"be one of {get_args(Optimizer)}"),
            ("learning_rate", is_number(self.learning_rate) and self.learning_rate > 0, "be a positive number"),
            ("weight_decay", is_number(self.weight_decay) and self.weight_decay >= 0, "be 0 or a positive number"),
            ("batch", is_count(self.batch, 1), "be a whole number from 1"),
            ("epochs", is_count(self.epochs, 1), "be a whole number from 1"),
            ("ratio_loss", self.ratio_loss in get_args(RatioLoss), f"be one of {get_args(RatioLoss)}"),
            ("ratio_weight", is_number(self.ratio_weight) and self.ratio_weight >= 0, "be 0 or a positive number"),
            ("multiplet_weight", is_number(self.multiplet_weight) and self.multiplet_weight >= 0, "be 0 or positive"),
            ("schedule", self.schedule in get_args(Schedule), f"be one of {get_args(Schedule)}"),
            ("clip", self.clip is None or (is_number(self.clip) and self.clip > 0), "be a positive number, or None"),
            ("patience", self.patience is None or is_count(self.patience, 1), "be a whole number from 1, or None"),
            ("shift", is_count(self.shift, 0), "be a whole number from 0"),
            ("noise", is_number(self.noise) and self.noise >= 0, "be 0 or a positive number"),
            ("offset", is_number(self.offset) and self.offset >= 0, "be 0 or a positive number"),
            ("mask", is_count(self.mask, 0), "be a whole number from 0"),
            ("seed", is_count(self.seed, 0), "be a whole number from 0"),
            ("device", self.device in get_args(Device), "be cpu, cuda or auto"),
        ):
            if not holds:
                raise InvalidInput(name, rule, repr(getattr(self, name)))
        if self.ratio_weight + self.multiplet_weight == 0:
            raise InvalidInput("ratio_weight", "be positive where multiplet_weight is 0", 0.0, "Nothing is learned.")

    def rate(self, step: int, steps: int) -> float:
        """Learning rate of a step, 0 .. steps - 1."""
        fall = 0.5 * (1 + math.cos(math.pi * step / steps)) if self.schedule == "cosine" else 1.0
        return self.learning_rate * fall


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def check_sizes(network: NetworkOptions, training: TrainingOptions, *, sequences: int, horizon: int) -> None:
    if network.order >= horizon:
        raise InvalidInput("order", f"be below the {horizon} observations of a sequence", network.order)
    for name in ("shift", "mask"):
        if getattr(training, name) >= horizon:
            raise InvalidInput(name, f"be below the {horizon} observations of a sequence", getattr(training, name))
    if training.batch > sequences:
        raise InvalidInput("batch", f"be at most the {sequences} sequences there are", training.batch)
