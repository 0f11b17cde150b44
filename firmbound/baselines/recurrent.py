"""Recurrent classifiers that say what they believe after every observation; a threshold makes rivals of them.

PlainGru is what one tries first: cross entropy at every step, calibrated on validation sequences. MonotoneLstm is
LSTM-s and LSTM-m (Ma, Sigal and Sclaroff 2016, "Learning activity progression in LSTMs"): once sure, sure for good.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from firmbound.arrays import Floats, is_count, is_real
from firmbound.baselines.rival import features_of
from firmbound.baselines.training import (
    Lesson,
    Loss,
    RivalTraining,
    Singles,
    cross_entropy_over_time,
    mean_over_steps,
    outputs,
)
from firmbound.baselines.training import train as train_network
from firmbound.devices import Device
from firmbound.errors import InvalidInput
from firmbound.posterior import class_prior
from firmbound.temperature import at_times, helpful_temperatures
from firmbound.trajectories import Batch

Cell = Literal["gru", "lstm"]
Kind = Literal["s", "m"]


class StepClassifier(nn.Module):
    """A recurrent layer that runs forward in time and a linear head.  (m, T, d) -> scores (m, T, K)."""

    def __init__(self, cell: Cell, dimension: int, units: int, classes: int, dropout: float) -> None:
        super().__init__()
        layer = nn.GRU if cell == "gru" else nn.LSTM
        self.recurrent = layer(dimension, units, batch_first=True)
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(units, classes)

    def forward(self, features: Tensor) -> Tensor:
        states, _ = self.recurrent(features)
        scores: Tensor = self.head(self.drop(states))
        return scores


@dataclass(frozen=True)
class RecurrentModel:
    """A trained classifier. Its evidence, what it believes beyond the prior (K,), is divided by temperatures."""

    network: StepClassifier
    prior: Floats
    device: Device
    temperatures: Floats = field(default_factory=lambda: np.ones(1))

    def evidence(self, batch: Batch) -> Singles:
        """log posterior - log prior, before any temperature.  -> (n, T, K)."""
        return outputs(self._evidence, batch, self.device)

    def posteriors(self, batch: Batch) -> Singles:
        """(n, T, K); what stands after the end of a sequence means nothing."""

        def believed(features: Tensor) -> Tensor:
            evidence = self._evidence(features)
            known = at_times(self.temperatures, np.arange(1, evidence.shape[1] + 1))
            temperature = torch.as_tensor(known, dtype=evidence.dtype, device=evidence.device)[:, None]
            return (evidence / temperature + self._log_prior(evidence)).softmax(dim=-1)

        return outputs(believed, batch, self.device)

    def _evidence(self, features: Tensor) -> Tensor:
        scores: Tensor = self.network(features)
        return scores.log_softmax(dim=-1) - self._log_prior(scores)

    def _log_prior(self, like: Tensor) -> Tensor:
        return torch.as_tensor(np.log(self.prior), dtype=like.dtype, device=like.device)


@dataclass(frozen=True)
class PlainGru:
    """A causal GRU, trained with cross entropy at every step; temperatures of validation sequences calibrate it.

    units: numbers that it remembers.
    """

    units: int = 128
    training: RivalTraining = field(default_factory=RivalTraining)

    def __post_init__(self) -> None:
        _check_units(self.units)

    def fit(self, train: Batch, validation: Batch, *, seed: int) -> RecurrentModel:
        # Posteriors that are learned from these sequences hold their shares, which are no evidence: they stay as sure.
        counts = np.bincount(train.labels, minlength=train.classes)
        prior = class_prior(counts / counts.sum(), train.classes)
        network = _learn("gru", self.units, cross_entropy, train, validation, self.training, seed)
        model = RecurrentModel(network, prior, self.training.device)
        evidence = model.evidence(validation)
        return replace(model, temperatures=helpful_temperatures(evidence, validation.labels, prior, validation.lengths))


@dataclass(frozen=True)
class MonotoneLstm:
    """An LSTM that also pays for every step at which it is less sure of the true class than it was before.

    kind: "s", of the probability of the true class; "m", of its margin, that probability less the largest other one.
    units: numbers that it remembers. What it believes is its softmax as it is: nothing calibrates it.
    """

    kind: Kind = "s"
    units: int = 128
    cross_entropy_weight: float = 1.0
    ranking_weight: float = 1.0
    training: RivalTraining = field(default_factory=RivalTraining)

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise InvalidInput("kind", f"be one of {get_args(Kind)}", repr(self.kind))
        _check_units(self.units)
        for name in ("cross_entropy_weight", "ranking_weight"):
            weight = getattr(self, name)
            if not (is_real(weight) and 0 <= weight < math.inf):
                raise InvalidInput(name, "be non-negative and finite", repr(weight))
        if not self.cross_entropy_weight:
            # Nothing else tells one class from another: scores that never move have no ranking loss.
            raise InvalidInput("cross_entropy_weight", "be positive", self.cross_entropy_weight)

    def fit(self, train: Batch, validation: Batch, *, seed: int) -> RecurrentModel:
        network = _learn("lstm", self.units, self._loss, train, validation, self.training, seed)
        return RecurrentModel(network, class_prior(None, train.classes), self.training.device)

    def _loss(self, network: StepClassifier, lesson: Lesson) -> Tensor:
        scores = network(lesson.features)
        right = mean_over_steps(cross_entropy_over_time(scores, lesson.labels), lesson.there)
        falls = mean_over_steps(falls_below_best(scores.softmax(dim=-1), lesson.labels, self.kind), lesson.there)
        return self.cross_entropy_weight * right + self.ranking_weight * falls


def falls_below_best(posteriors: Tensor, labels: Tensor, kind: Kind) -> Tensor:
    """max(0, best earlier score - score now) at every step, 0 at the first.  (m, T, K), (m,) -> (m, T).

    The score is the probability of the true class ("s"), or that less the largest other one ("m").
    """
    true = labels[:, None, None].expand(-1, posteriors.shape[1], 1)
    score = posteriors.gather(2, true)[..., 0]
    if kind == "m":
        score = score - posteriors.scatter(2, true, -1.0).amax(dim=2)
    best = score.cummax(dim=1).values
    return functional.pad((best[:, :-1] - score[:, 1:]).relu(), (1, 0))


def cross_entropy(network: StepClassifier, lesson: Lesson) -> Tensor:
    """Mean over sequences of the mean over their steps."""
    return mean_over_steps(cross_entropy_over_time(network(lesson.features), lesson.labels), lesson.there)


def _learn(
    cell: Cell,
    units: int,
    loss: Loss[StepClassifier],
    train: Batch,
    validation: Batch,
    training: RivalTraining,
    seed: int,
) -> StepClassifier:
    dimension = features_of(train).shape[2]

    def make() -> StepClassifier:
        return StepClassifier(cell, dimension, units, train.classes, training.dropout)

    return train_network(make, loss, train, validation, training, seed)


def _check_units(units: int) -> None:
    if not is_count(units, 1):
        raise InvalidInput("units", "be a whole number from 1", repr(units))
