"""From features to log posteriors of windows: each observation is projected once, then windows are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from firmbound.errors import InvalidInput
from firmbound.tandem.attention import WindowTransformer
from firmbound.tandem.integrators import ACTIVATIONS, Activation, WindowLSTM

Integrator = Literal["lstm", "transformer"]


@dataclass(frozen=True)
class NetworkOptions:
    """Shape of a network. order: observations remembered. projection: numbers an observation is projected to.

    hidden and output_activation are the LSTM's; blocks, heads, feed_forward, units and dropout the Transformer's.
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
            ("activation", self.activation in ACTIVATIONS, f"be one of {tuple(ACTIVATIONS)}"),
            ("output_activation", self.output_activation in ACTIVATIONS, f"be one of {tuple(ACTIVATIONS)}"),
            ("dropout", 0 <= self.dropout < 1, "lie in [0, 1)"),
            *((name, is_count(getattr(self, name), 1), "be a whole number from 1") for name in COUNTS),
        ):
            if not holds:
                raise InvalidInput(name, rule, repr(getattr(self, name)))
        if self.integrator == "transformer" and self.projection % self.heads:
            raise InvalidInput("projection", f"be a multiple of heads ({self.heads})", self.projection)


COUNTS = ("projection", "hidden", "blocks", "heads", "feed_forward", "units")


def is_count(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


class TandemNetwork(nn.Module):
    """Projection, temporal integrator, and the log posterior of every window.  (n, T, d) -> (n, T - N, N + 1, K)."""

    def __init__(self, dimension: int, classes: int, options: NetworkOptions) -> None:
        super().__init__()
        self.dimension, self.classes, self.options = dimension, classes, options
        self.project = nn.Sequential(nn.Linear(dimension, options.projection), ACTIVATIONS[options.activation]())
        width, order = options.projection, options.order
        self.integrate: WindowLSTM | WindowTransformer
        if options.integrator == "lstm":
            self.integrate = WindowLSTM(width, options.hidden, order, options.output_activation)
        else:
            self.integrate = WindowTransformer(
                width,
                order,
                blocks=options.blocks,
                heads=options.heads,
                feed_forward=options.feed_forward,
                units=options.units,
                dropout=options.dropout,
            )
        self.classify = nn.Linear(self.integrate.outputs, classes)

    def forward(self, features: Tensor) -> Tensor:
        return self.of_projected(self.project(features))

    def of_projected(self, projected: Tensor) -> Tensor:
        """(n, T, h) -> (n, T - N, N + 1, K)."""
        by_place = self.classify(self.integrate(projected.transpose(0, 1).contiguous()))  # (N + 1, S, n, K)
        return torch.log_softmax(by_place, dim=-1).permute(2, 1, 0, 3)
