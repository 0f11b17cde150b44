"""TCN-Transformer (Chen et al. 2022): causal convolutions, then causal attention; two heads, the class and the halt.

Its loss weighs being right by alpha and being early by 1 - alpha. How, is our reading: no code of it is public. With
P_t the probability of halting exactly at t, CE_t the cross entropy and p_t the probability of the true class there,

    loss = sum_t P_t [ alpha CE_t - (1 - alpha) p_t (1 - t / T) ]  +  every_step * mean of CE_t.

All of it can be differentiated: nothing is drawn. The last term is small, and there because a network that has learned
to halt early would otherwise learn nothing of later steps, which sequences that are hard to tell still come to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

from firmbound.arrays import is_count, is_real
from firmbound.baselines.halting import HaltingNetworks, check_settings, halting_law
from firmbound.baselines.rival import features_of
from firmbound.baselines.training import Lesson, RivalTraining, cross_entropy_over_time, mean_over_steps
from firmbound.baselines.training import train as train_network
from firmbound.errors import InvalidInput
from firmbound.trajectories import Batch

# Observations that a convolution sees, and levels of two of them; dilation doubles from one level to the next.
KERNEL = 3
MOST_LEVELS = 4


def receptive_field(levels: int) -> int:
    """Observations that the output of so many levels depends on."""
    return int(1 + 2 * (KERNEL - 1) * (2**levels - 1))


def levels_for(horizon: int) -> int:
    """The fewest levels that see a whole sequence, MOST_LEVELS at most: attention reaches what they do not."""
    enough = (levels for levels in range(1, MOST_LEVELS) if receptive_field(levels) >= horizon)
    return next(enough, MOST_LEVELS)


class CausalLevel(nn.Module):
    """Two dilated convolutions that look back only, added to what they were given.  (m, c, T) -> (m, channels, T)."""

    def __init__(self, inputs: int, channels: int, dilation: int, dropout: float) -> None:
        super().__init__()
        self.back = (KERNEL - 1) * dilation
        self.first = nn.Conv1d(inputs, channels, KERNEL, dilation=dilation)
        self.second = nn.Conv1d(channels, channels, KERNEL, dilation=dilation)
        self.given = nn.Identity() if inputs == channels else nn.Conv1d(inputs, channels, 1)
        self.drop = nn.Dropout(dropout)

    def forward(self, values: Tensor) -> Tensor:
        found = values
        for convolution in (self.first, self.second):
            found = self.drop(convolution(functional.pad(found, (self.back, 0))).relu())
        result: Tensor = (found + self.given(values)).relu()
        return result


class TcnTransformerNetwork(nn.Module):
    """Scores of the classes and, last, the logit of halting.  (m, T, d) -> (m, T, K + 1)."""

    def __init__(
        self, dimension: int, classes: int, horizon: int, *, channels: int, blocks: int, heads: int, dropout: float
    ) -> None:
        super().__init__()
        sizes = [dimension] + [channels] * levels_for(horizon)
        self.levels = nn.Sequential(*(CausalLevel(sizes[i], channels, 2**i, dropout) for i in range(len(sizes) - 1)))
        block = nn.TransformerEncoderLayer(
            channels, heads, dim_feedforward=2 * channels, dropout=dropout, batch_first=True, norm_first=True
        )
        # Nested tensors are for padding masks, which causal attention can do without: padding comes last.
        self.blocks = nn.TransformerEncoder(block, blocks, norm=nn.LayerNorm(channels), enable_nested_tensor=False)
        self.to_class, self.to_halt = nn.Linear(channels, classes), nn.Linear(channels, 1)

    def forward(self, features: Tensor) -> Tensor:
        local = self.levels(features.transpose(1, 2)).transpose(1, 2)
        steps = torch.arange(local.shape[1], device=local.device)
        later = steps > steps[:, None]
        seen = self.blocks(local + _places(steps, local.shape[2]), mask=later)
        return torch.cat([self.to_class(seen), self.to_halt(seen)], dim=2)


def _places(steps: Tensor, channels: int) -> Tensor:
    """Waves of many lengths that tell steps apart.  (T,) -> (T, channels)."""
    pairs = torch.arange(-(-channels // 2), device=steps.device)
    angles = steps[:, None] * torch.exp(pairs * (-2.0 * math.log(10_000.0) / channels))
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)[:, :channels]


@dataclass(frozen=True)
class TcnTransformer:
    """alpha: weights of being right in 0..1, the smaller the earlier a network halts; one network each.

    channels: numbers a step is described by. blocks, heads: of attention. every_step: weight of the cross entropy that
    is paid at every step, wherever a network halts.
    """

    alpha: tuple[float, ...] = (0.3, 0.5)
    channels: int = 64
    blocks: int = 1
    heads: int = 4
    every_step: float = 0.1
    training: RivalTraining = field(default_factory=RivalTraining)

    def __post_init__(self) -> None:
        check_settings("alpha", self.alpha, 1.0, "numbers in [0, 1]")
        for name in ("channels", "blocks", "heads"):
            if not is_count(getattr(self, name), 1):
                raise InvalidInput(name, "be a whole number from 1", repr(getattr(self, name)))
        if self.channels % self.heads:
            raise InvalidInput("channels", f"be a multiple of heads ({self.heads})", self.channels)
        if not (is_real(self.every_step) and 0 <= self.every_step < math.inf):
            raise InvalidInput("every_step", "be non-negative and finite", repr(self.every_step))

    def fit(self, train: Batch, validation: Batch, *, seed: int) -> HaltingNetworks:
        """Every network starts from the same weights and sees batches in the same order."""
        _, horizon, dimension = features_of(train).shape

        def make() -> TcnTransformerNetwork:
            return TcnTransformerNetwork(
                dimension,
                train.classes,
                horizon,
                channels=self.channels,
                blocks=self.blocks,
                heads=self.heads,
                dropout=self.training.dropout,
            )

        networks = [
            train_network(make, HaltingLoss(alpha, self.every_step), train, validation, self.training, seed)
            for alpha in self.alpha
        ]
        return HaltingNetworks(tuple(networks), self.alpha, self.training.device)


@dataclass(frozen=True)
class HaltingLoss:
    """The loss at the head of this file. T is the horizon of all sequences: a step costs the same in each of them."""

    alpha: float
    every_step: float

    def __call__(self, network: nn.Module, lesson: Lesson) -> Tensor:
        return self.of(network(lesson.features), lesson)

    def of(self, said: Tensor, lesson: Lesson) -> Tensor:
        """(m, T, K + 1) -> ()."""
        crossed = cross_entropy_over_time(said[..., :-1], lesson.labels)
        horizon = said.shape[1]
        early = 1.0 - torch.arange(1, horizon + 1, device=said.device) / horizon
        paid = self.alpha * crossed - (1.0 - self.alpha) * (-crossed).exp() * early
        at_halt = (halting_law(said[..., -1], lesson.there) * paid).sum(dim=1).mean()
        return at_halt + self.every_step * mean_over_steps(crossed, lesson.there)
