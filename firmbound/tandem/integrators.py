"""Temporal integrators: what reads windows of N + 1 projected observations, one after the other.

A window that starts at s is read observation by observation, so one pass gives the outputs of all its beginnings, of
lengths 1..N+1. That is what the formula and the losses need; shorter windows cost nothing extra.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

Activation = Literal["b2bsqrt", "tanh", "relu", "gelu"]


class B2BSqrt(nn.Module):
    """sign(x) (sqrt(1 + |x|) - 1): grows without bound, ever more slowly, so large ratios are not cut off."""

    def forward(self, values: Tensor) -> Tensor:
        return torch.sign(values) * (torch.sqrt(1.0 + torch.abs(values)) - 1.0)


ACTIVATIONS: Mapping[str, type[nn.Module]] = {"b2bsqrt": B2BSqrt, "tanh": nn.Tanh, "relu": nn.ReLU, "gelu": nn.GELU}


def windows(values: Tensor, order: int) -> Tensor:
    """All windows of N + 1 rows, or the one of all rows if they are fewer; without copying.

    (n, T, h) -> (n, T - N, N + 1, h).
    """
    return values.unfold(1, min(order + 1, values.shape[1]), 1).transpose(2, 3)


class WindowLSTM(nn.Module):
    """An LSTM that starts anew at each window; what an observation adds to the gates is computed once for all."""

    def __init__(self, inputs: int, hidden: int, order: int, output_activation: Activation) -> None:
        super().__init__()
        self.order, self.hidden = order, hidden
        self.from_input = nn.Linear(inputs, 4 * hidden)
        self.from_state = nn.Linear(hidden, 4 * hidden, bias=False)
        self.activation = ACTIVATIONS[output_activation]()
        bound = 1.0 / math.sqrt(hidden)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    @property
    def outputs(self) -> int:
        return self.hidden

    def forward(self, projected: Tensor) -> Tensor:
        """(n, T, h) -> (n, T - N, N + 1, hidden)."""
        gates = windows(self.from_input(projected), self.order)
        n, starts, lengths, _ = gates.shape
        output = gates.new_zeros(n * starts, self.hidden)
        cell = gates.new_zeros(n * starts, self.hidden)
        seen = []
        for place in range(lengths):
            total = gates[:, :, place].reshape(n * starts, -1)
            if place:  # the state is zero before the first
                total = total + self.from_state(output)
            write, keep, show, new = total.chunk(4, dim=1)
            cell = torch.sigmoid(keep) * cell + torch.sigmoid(write) * torch.tanh(new)
            output = torch.sigmoid(show) * torch.tanh(cell)
            seen.append(output)
        result: Tensor = self.activation(torch.stack(seen, dim=1)).reshape(n, starts, lengths, self.hidden)
        return result


class WindowTransformer(nn.Module):
    """Causal self-attention within each window: place j sees the j observations up to it."""

    def __init__(
        self, inputs: int, order: int, *, blocks: int, heads: int, feed_forward: int, units: int, dropout: float
    ) -> None:
        super().__init__()
        self.order = order
        self.place = nn.Parameter(0.02 * torch.randn(order + 1, inputs))
        layer = nn.TransformerEncoderLayer(
            inputs, heads, feed_forward, dropout, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, blocks, nn.LayerNorm(inputs), enable_nested_tensor=False)
        self.mix = nn.Sequential(nn.Linear(inputs, units), nn.GELU(), nn.Dropout(dropout))
        self.outputs = units

    def forward(self, projected: Tensor) -> Tensor:
        """(n, T, h) -> (n, T - N, N + 1, units)."""
        seen = windows(projected, self.order)
        n, starts, lengths, width = seen.shape
        flat = seen.reshape(n * starts, lengths, width) + self.place[:lengths]
        mask = nn.Transformer.generate_square_subsequent_mask(lengths, device=flat.device)
        mixed = self.layers(flat, mask=mask, is_causal=True)
        result: Tensor = self.mix(mixed).reshape(n, starts, lengths, self.outputs)
        return result
