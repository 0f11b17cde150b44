"""EARLIEST (Hartvigsen, Sen, Kong and Rundensteiner 2019): a network that learns by reward when to halt.

An LSTM reads; after every observation a controller says how likely it halts; at the halt a discriminator names the
class. A right name is worth 1, a wrong one -1, and REINFORCE teaches the controller what a halt is worth. For each
penalty of waiting (lambda) a network is trained, so a penalty is one operating point.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from firmbound.arrays import is_count
from firmbound.baselines.halting import HaltingNetworks, check_settings, halting_law, last_step
from firmbound.baselines.rival import features_of
from firmbound.baselines.training import (
    Lesson,
    RivalTraining,
    cross_entropy_over_time,
    mean_over_steps,
)
from firmbound.baselines.training import train as train_network
from firmbound.errors import InvalidInput
from firmbound.trajectories import Batch

Waiting = Literal["mean", "sum"]
# The share of exploration is exp(-FALL * progress): all in the first epoch, next to nothing in the last.
FALL = 5.0
# Probabilities of halting are kept so far from 0 and 1 that their logarithms are numbers in single precision.
LEAST = 1e-6


class Reading(NamedTuple):
    """At every step: scores (m, T, K) of the classes, halting (m, T), the logit of halting, worth (m, T): the reward
    that the baseline expects."""

    scores: Tensor
    halting: Tensor
    worth: Tensor


class EarliestNetwork(nn.Module):
    """LSTM, discriminator, controller and baseline."""

    def __init__(self, dimension: int, hidden: int, classes: int, horizon: int, dropout: float) -> None:
        super().__init__()
        self.horizon = horizon
        self.recurrent = nn.LSTM(dimension, hidden, batch_first=True)
        self.drop = nn.Dropout(dropout)
        self.discriminator = nn.Linear(hidden, classes)
        self.controller = nn.Linear(hidden + 1, 1)
        self.baseline = nn.Linear(hidden + 1, 1)

    def read(self, features: Tensor) -> Reading:
        """(m, T, d) features."""
        states, _ = self.recurrent(features)
        states = self.drop(states)
        time = torch.arange(1, features.shape[1] + 1, device=features.device, dtype=features.dtype) / self.horizon
        seen = torch.cat([states, time[None, :, None].expand(len(states), -1, 1)], dim=2)
        # What the baseline learns must not bend the states: it only makes the reward's noise smaller.
        return Reading(self.discriminator(states), self.controller(seen)[..., 0], self.baseline(seen.detach())[..., 0])

    def forward(self, features: Tensor) -> Tensor:
        """Scores of the classes and, last, the logit of halting.  (m, T, d) -> (m, T, K + 1)."""
        reading = self.read(features)
        return torch.cat([reading.scores, reading.halting.unsqueeze(-1)], dim=2)


@dataclass(frozen=True)
class Earliest:
    """penalty: lambdas, the larger the earlier a network halts; one network each. hidden: numbers the LSTM remembers.

    waiting: what a lambda multiplies, the mean or the sum of -log P(halt) over the steps before the halt. The authors'
    public code sums, so the same lambda halts earlier there, all the more in long sequences.
    """

    penalty: tuple[float, ...] = (1e-1, 1e-10)
    hidden: int = 64
    waiting: Waiting = "mean"
    training: RivalTraining = field(default_factory=RivalTraining)

    def __post_init__(self) -> None:
        check_settings("penalty", self.penalty, math.inf, "non-negative and finite numbers")
        if not is_count(self.hidden, 1):
            raise InvalidInput("hidden", "be a whole number from 1", repr(self.hidden))
        if self.waiting not in get_args(Waiting):
            raise InvalidInput("waiting", f"be one of {get_args(Waiting)}", repr(self.waiting))

    def fit(self, train: Batch, validation: Batch, *, seed: int) -> HaltingNetworks:
        """Every network starts from the same weights and sees batches in the same order."""
        _, horizon, dimension = features_of(train).shape

        def make() -> EarliestNetwork:
            return EarliestNetwork(dimension, self.hidden, train.classes, horizon, self.training.dropout)

        networks = [
            train_network(make, EarliestLoss(penalty, self.waiting), train, validation, self.training, seed)
            for penalty in self.penalty
        ]
        return HaltingNetworks(tuple(networks), self.penalty, self.training.device)


@dataclass(frozen=True)
class EarliestLoss:
    """What a network pays: with halts that are drawn while it is trained, over all halts when it is validated."""

    penalty: float
    waiting: Waiting = "mean"

    def __call__(self, network: EarliestNetwork, lesson: Lesson) -> Tensor:
        reading = network.read(lesson.features)
        if not network.training:
            return self.expected(reading, lesson)
        chance = chance_of_halting(reading.halting, lesson.there, math.exp(-FALL * lesson.progress))
        return self.drawn(reading, lesson, chance, first_halt(torch.bernoulli(chance.detach()) > 0, lesson.there))

    def drawn(self, reading: Reading, lesson: Lesson, chance: Tensor, halt: Tensor) -> Tensor:
        """Cross entropy at the halt + REINFORCE + the baseline's error + the penalty of waiting.  -> ().

        chance (m, T): with which halts were drawn. halt (m,): the step, from 0, at which each sequence was halted.
        """
        steps = torch.arange(reading.halting.shape[1], device=halt.device)
        waited, asked, forced = steps < halt[:, None], steps <= halt[:, None], last_step(lesson.there)
        scores = reading.scores[torch.arange(len(halt), device=halt.device), halt]
        reward = rewards(scores, lesson.labels)[:, None]
        gain = reward - reading.worth.detach()
        log_chance = chance.log().where(~waited, torch.log1p(-chance))
        # Nobody chose to halt where a sequence ends, so nobody learns from it.
        reinforce = -(log_chance * gain).where(asked & ~forced, 0.0).sum(dim=1).mean()
        error = mean_over_steps((reading.worth - reward).square(), asked)
        waited_for = self.price(chance).gather(1, halt[:, None]).mean()
        return functional.cross_entropy(scores, lesson.labels) + reinforce + error + self.penalty * waited_for

    def price(self, chance: Tensor) -> Tensor:
        """Of a halt at each step: mean or sum of -log P(halt) over the steps before it, 0 at the first.

        (m, T) -> (m, T).
        """
        total = functional.pad(-chance.log().cumsum(dim=1)[:, :-1], (1, 0))
        before = torch.arange(chance.shape[1], device=chance.device).clamp_min(1)
        return total / before if self.waiting == "mean" else total

    def expected(self, reading: Reading, lesson: Lesson) -> Tensor:
        """The mean over all halts, each as likely as the controller makes it without exploration.  -> ().

        This is what training lowers, without the noise of draws and without the baseline, which changes no mean. The
        halts of the rule that is used in the end would do too, but a controller that has learned nothing yet is
        everywhere close to one half, and by chance just below it: the rule would wait for the end, name most classes
        rightly there, and the first epoch would be kept.
        """
        law = halting_law(reading.halting, lesson.there)
        crossed = cross_entropy_over_time(reading.scores, lesson.labels)
        reward = rewards(reading.scores, lesson.labels[:, None])
        chance = chance_of_halting(reading.halting, lesson.there, exploration=0.0)
        paid = crossed - reward + self.penalty * self.price(chance)
        return (law * paid).sum(dim=1).mean()


def rewards(scores: Tensor, labels: Tensor) -> Tensor:
    """1 for the right class, -1 for another.  (.., K), (..) -> (..)."""
    return torch.where(scores.argmax(dim=-1) == labels, 1.0, -1.0)


def chance_of_halting(halting: Tensor, there: Tensor, exploration: float) -> Tensor:
    """The controller's probability of halting at each step, mixed with that of an explorer.  (m, T) -> (m, T).

    An explorer halts at a time that is drawn evenly from the sequence, so that the discriminator gets to know all of
    them; a coin at every step would hardly ever get beyond the tenth.
    """
    left = there.flip(1).cumsum(dim=1).flip(1)  # steps to the end, this one included
    mixed = (1.0 - exploration) * halting.sigmoid() + exploration / left.clamp_min(1)
    return mixed.clamp(LEAST, 1.0 - LEAST)


def first_halt(halting: Tensor, there: Tensor) -> Tensor:
    """The first step, from 0, where a sequence is halted, its end at the latest.  (m, T) -> (m,)."""
    return (halting | last_step(there)).int().argmax(dim=1)
