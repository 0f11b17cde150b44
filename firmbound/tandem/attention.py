"""A Transformer that reads windows; what does not depend on where a window starts is computed once for all of them."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional

from firmbound.tandem.integrators import window_shape


class _GrowingMean(Function):
    """Attention of every window to what it holds, in one sweep, with its derivative written out.

    All windows that end at t attend from one query to the same scores, each to one more than the next shorter. So the
    mean of the values is kept up as a window grows to the left: a share p of it moves to the new value.
    query, key, value (T, n, heads, size), bias (N + 1, heads) by distance -> (N + 1, S, n, heads, size).
    """

    @staticmethod
    def forward(context: Any, query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
        places, starts = window_shape(len(query), len(bias) - 1)
        found = value.new_empty(places, starts, *value.shape[1:])
        found[0] = value[:starts]
        mean, total = value, (query * key).sum(-1) + bias[0]  # of windows of one observation, by their end
        means, shares = [mean], []
        for far in range(1, places):
            score = (query[far:] * key[:-far]).sum(-1) + bias[far]
            share = torch.sigmoid(score - total[1:])
            total = torch.logaddexp(total[1:], score)
            mean = torch.lerp(mean[1:], value[:-far], share.unsqueeze(-1))
            found[far] = mean[:starts]
            means.append(mean)
            shares.append(share)
        context.save_for_backward(query, key, value, *means[1:-1], *shares)
        context.places = places
        return found

    @staticmethod
    @once_differentiable
    def backward(context: Any, slopes: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        query, key, value, *rest = context.saved_tensors
        places, starts = context.places, slopes.shape[1]
        means, shares = [value, *rest[: places - 2]], rest[max(places - 2, 0) :]
        of_query, of_key, of_value = torch.zeros_like(query), torch.zeros_like(key), torch.zeros_like(value)
        of_bias = query.new_zeros(places, query.shape[2])
        of_total = query.new_zeros(len(query) - places + 1, *query.shape[1:3])  # of the windows of all places
        of_mean = slopes[places - 1]
        for far in reversed(range(1, places)):
            share, before = shares[far - 1], means[far - 1][1:]
            of_share = (of_mean * (value[:-far] - before)).sum(-1)
            moved = of_mean * share.unsqueeze(-1)
            of_value[:-far] += moved
            turn = of_share * share * (1.0 - share)
            of_score = turn + of_total * share
            of_query[far:].addcmul_(of_score.unsqueeze(-1), key[:-far])
            of_key[:-far].addcmul_(of_score.unsqueeze(-1), query[far:])
            of_bias[far] = of_score.sum((0, 1))
            of_total = functional.pad(of_total - of_total * share - turn, (0, 0, 0, 0, 1, 0))
            of_mean = functional.pad(of_mean - moved, (0, 0, 0, 0, 0, 0, 1, 0))
            of_mean[:starts] += slopes[far - 1]
        of_value += of_mean
        of_query.addcmul_(of_total.unsqueeze(-1), key)
        of_key.addcmul_(of_total.unsqueeze(-1), query)
        of_bias[0] = of_total.sum((0, 1))
        return of_query, of_key, of_value, of_bias


class Attention(nn.Module):
    """Causal attention with a learned bias for each head and distance, so that a place's keys know no window."""

    def __init__(self, width: int, heads: int, order: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.triple = nn.Linear(width, 3 * width)
        self.distance = nn.Parameter(torch.zeros(order + 1, heads))
        self.mix = nn.Linear(width, width)

    def across_windows(self, observations: Tensor) -> Tensor:
        """(T, n, h), the same observation in every window -> (N + 1, S, n, h)."""
        horizon, n, width = observations.shape
        places, starts = window_shape(horizon, len(self.distance) - 1)
        query, key, value = self.triple(observations).view(horizon, n, 3, self.heads, self.size).unbind(2)
        bias = self.distance[:places].to(query.dtype)
        sweep: Any = _GrowingMean
        seen = sweep.apply(query / math.sqrt(self.size), key, value, bias)
        mixed: Tensor = self.mix(seen.view(places, starts, n, width))
        return mixed

    def within_windows(self, windows: Tensor) -> Tensor:
        """(places, S, n, h) -> the same shape; what is at a place differs from window to window."""
        places, starts, n, width = windows.shape
        triple = self.triple(windows).view(places, starts * n, 3, self.heads, self.size)
        query, key, value = triple.permute(2, 1, 3, 0, 4)  # each (S n, heads, places, size)
        far = torch.arange(places, device=windows.device)
        distance = far[:, None] - far
        bias = self.distance[distance.clamp_min(0)].masked_fill((distance < 0).unsqueeze(-1), -math.inf)
        seen = functional.scaled_dot_product_attention(query, key, value, attn_mask=bias.permute(2, 0, 1).to(query))
        mixed: Tensor = self.mix(seen.permute(2, 0, 1, 3).reshape(places, starts, n, width))
        return mixed


class Block(nn.Module):
    """Attention, then a feed-forward step; each is added to what it was given, normalised first."""

    def __init__(self, width: int, heads: int, order: int, feed_forward: int, dropout: float) -> None:
        super().__init__()
        self.before_attention, self.before_step = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, order)
        self.step = nn.Sequential(
            nn.Linear(width, feed_forward), nn.ReLU(), nn.Dropout(dropout), nn.Linear(feed_forward, width)
        )
        self.drop = nn.Dropout(dropout)

    def forward(self, given: Tensor, attended: Tensor) -> Tensor:
        seen = given + self.drop(attended)
        result: Tensor = seen + self.drop(self.step(self.before_step(seen)))
        return result


class WindowTransformer(nn.Module):
    """Causal self-attention within each window: place j sees the j observations up to it."""

    def __init__(
        self, inputs: int, order: int, *, blocks: int, heads: int, feed_forward: int, units: int, dropout: float
    ) -> None:
        super().__init__()
        self.order, self.outputs = order, units
        self.place = nn.Parameter(0.02 * torch.randn(order + 1, inputs))
        self.blocks = nn.ModuleList([Block(inputs, heads, order, feed_forward, dropout) for _ in range(blocks)])
        self.mix = nn.Sequential(nn.LayerNorm(inputs), nn.Linear(inputs, units), nn.GELU(), nn.Dropout(dropout))

    def forward(self, projected: Tensor) -> Tensor:
        """(T, n, h) -> (N + 1, T - N, n, units)."""
        places, starts = window_shape(len(projected), self.order)
        first, *others = self.blocks
        assert isinstance(first, Block)
        attended = first.attention.across_windows(first.before_attention(projected))
        # How long the window is by now is told here: before the first attention it would make windows differ.
        given = torch.stack([projected[j : j + starts] + self.place[j] for j in range(places)])
        seen = first(given, attended)
        for block in others:
            assert isinstance(block, Block)
            seen = block(seen, block.attention.within_windows(block.before_attention(seen)))
        result: Tensor = self.mix(seen)
        return result
