"""Where evidence comes from: given with the features, or learned by a SPRT-TANDEM network with these options."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from firmbound.devices import Device
from firmbound.tandem.options import (
    Activation,
    Integrator,
    NetworkOptions,
    Optimizer,
    RatioLoss,
    Schedule,
    TrainingOptions,
)
from flows.recorded_sections import Section


class Network(Section):
    """The keys of NetworkOptions, all of them."""

    integrator: Integrator
    order: NonNegativeInt
    projection: PositiveInt
    activation: Activation
    hidden: PositiveInt
    output_activation: Activation
    blocks: PositiveInt
    heads: PositiveInt
    feed_forward: PositiveInt
    units: PositiveInt
    dropout: Annotated[float, Field(ge=0, lt=1)]


class Training(Section):
    """The keys of TrainingOptions, all of them."""

    optimizer: Optimizer
    learning_rate: PositiveFloat
    weight_decay: NonNegativeFloat
    batch: PositiveInt
    epochs: PositiveInt
    ratio_loss: RatioLoss
    ratio_weight: NonNegativeFloat
    multiplet_weight: NonNegativeFloat
    schedule: Schedule
    clip: PositiveFloat | None
    patience: PositiveInt | None
    shift: NonNegativeInt
    noise: NonNegativeFloat
    offset: NonNegativeFloat
    mask: NonNegativeInt
    device: Device
    seed: NonNegativeInt


class GivenEvidence(Section):
    """The features' store holds evidence already."""

    evidence: Literal["given"]


class LearnedEvidence(Section):
    evidence: Literal["learned"]
    network: Network
    training: Training
    oblivious: bool
    calibrate: bool
    folds: Annotated[int, Field(ge=2, le=20)] | None

    @property
    def knows_training(self) -> bool:
        """Whether evidence of training sequences comes from a network that has seen them."""
        return self.folds is None

    def options(self) -> tuple[NetworkOptions, TrainingOptions]:
        return NetworkOptions(**self.network.model_dump()), TrainingOptions(**self.training.model_dump())


Tandem = Annotated[GivenEvidence | LearnedEvidence, Field(discriminator="evidence")]
