"""Temporal integrators: what reads windows of N + 1 projected observations, one after the other.

A window that starts at s is read observation by observation, so one pass gives the outputs of all its beginnings, of
lengths 1..N+1. That is what the formula and the losses need; shorter windows cost nothing extra.

Here the first axis is time. The observations at place j of all windows are then one block of memory, rows j..j+S-1 of
(T, n, h): windows are never cut out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from firmbound.tandem.options import Activation

# Numbers that go through a chain of elementwise steps together: they stay in a core's cache in between.
BLOCK_NUMBERS = 65_536


class _B2BSqrt(Function):
    """With its derivative 1 / (2 sqrt(1 + |x|)) written out: six steps recorded one by one cost several times more."""

    @staticmethod
    def forward(context: Any, values: Tensor) -> Tensor:
        values = values.contiguous()
        result = torch.empty_like(values)
        for given, found in zip(_blocks(values), _blocks(result), strict=True):
            torch.abs(given, out=found).add_(1.0).sqrt_().sub_(1.0).copysign_(given)
        context.save_for_backward(result)
        return result

    @staticmethod
    @once_differentiable
    def backward(context: Any, slopes: Tensor) -> Tensor:
        (result,) = context.saved_tensors
        slopes = slopes.contiguous()
        of_values = torch.empty_like(slopes)
        for found, slope, wanted in zip(_blocks(result), _blocks(slopes), _blocks(of_values), strict=True):
            torch.abs(found, out=wanted).add_(1.0).mul_(2.0)  # |found| + 1 is the square root
            torch.div(slope, wanted, out=wanted)
        return of_values


def _blocks(values: Tensor) -> tuple[Tensor, ...]:
    flat = values.view(-1)
    return torch.split(flat, BLOCK_NUMBERS if values.device.type == "cpu" else max(len(flat), 1))


class B2BSqrt(nn.Module):
    """sign(x) (sqrt(1 + |x|) - 1): grows without bound, ever more slowly, so large ratios are not cut off."""

    def forward(self, values: Tensor) -> Tensor:
        # Half precision would round sqrt(1 + x) - 1 to 0 for small x.
        exact = values.float() if values.dtype in (torch.bfloat16, torch.float16) else values
        result: Tensor = _B2BSqrt.apply(exact)  # type: ignore[no-untyped-call]
        return result


ACTIVATIONS: Mapping[str, type[nn.Module]] = {"b2bsqrt": B2BSqrt, "tanh": nn.Tanh, "relu": nn.ReLU, "gelu": nn.GELU}


def window_shape(horizon: int, order: int) -> tuple[int, int]:
    """Places in a window and number of windows; a sequence of at most N observations is one window."""
    places = min(order + 1, horizon)
    return places, horizon - places + 1


# Rows (windows of sequences) that go through the recurrence together: their numbers stay in a core's cache.
BLOCK_ROWS = 1000


def start_blocks(gates: Tensor, starts: int) -> list[slice]:
    size = max(1, BLOCK_ROWS // gates.shape[1]) if gates.device.type == "cpu" else starts
    return [slice(first, min(first + size, starts)) for first in range(0, starts, size)]


# What the last step needed for its derivative, taken up again by the next: for so much memory the system takes longer
# to find pages than we take to fill them. Whoever trains lets go of it at the end.
_SPARE: list[tuple[Tensor, Tensor, Tensor]] = []


def release_memory() -> None:
    _SPARE.clear()


def _take_memory(like: Tensor, shape: torch.Size) -> tuple[Tensor, Tensor, Tensor]:
    """Room for gates, cells and squashed cells of every place of every window."""
    try:
        found = _SPARE.pop()
    except IndexError:
        found = None
    if found is not None and (found[1].shape, found[1].device, found[1].dtype) == (shape, like.device, like.dtype):
        return found
    width = 4 * shape[-1]
    return like.new_empty(*shape[:-1], width), like.new_empty(shape), like.new_empty(shape)


class _WindowRecurrence(Function):
    """The recurrent part of an LSTM in every window at once, with its derivative written out.

    (T, n, 4 h) input gates, in the order write, keep, show, new, and (4 h, h) weights -> (N + 1, S, n, h) outputs.
    Recorded step by step the same costs three times as much: every window would add its own copy of the gates' slopes.
    """

    @staticmethod
    def forward(context: Any, gates: Tensor, weight: Tensor, order: int) -> Tensor:
        horizon, n, width = gates.shape
        places, starts = window_shape(horizon, order)
        hidden = width // 4
        gates = gates.contiguous()
        outputs = gates.new_empty(places, starts, n, hidden)
        opened, cells, squashed = _take_memory(gates, outputs.shape)
        for block in start_blocks(gates, starts):
            for place in range(places):
                total = gates[place + block.start : place + block.stop].flatten(0, 1)
                active, cell, small, output = (
                    part[place, block].flatten(0, 1) for part in (opened, cells, squashed, outputs)
                )
                if place:  # the state is zero before the first
                    total = torch.addmm(total, outputs[place - 1, block].flatten(0, 1), weight.t(), out=active)
                torch.sigmoid(total[:, : 3 * hidden], out=active[:, : 3 * hidden])
                torch.tanh(total[:, 3 * hidden :], out=active[:, 3 * hidden :])
                write, keep, show, new = active.chunk(4, dim=1)
                torch.mul(write, new, out=cell)
                if place:
                    cell.addcmul_(keep, cells[place - 1, block].flatten(0, 1))
                torch.tanh(cell, out=small)
                torch.mul(show, small, out=output)
        context.save_for_backward(opened, cells, squashed, outputs, weight)
        context.shape, context.spent = gates.shape, False
        return outputs

    @staticmethod
    @once_differentiable
    def backward(context: Any, slopes: Tensor) -> tuple[Tensor, Tensor, None]:
        if context.spent:
            raise RuntimeError("The memory of this step was handed on: it can be differentiated once.")
        opened, cells, squashed, outputs, weight = context.saved_tensors
        places, starts, n, hidden = slopes.shape
        slopes = slopes.contiguous()
        of_gates, of_weight = slopes.new_zeros(context.shape), torch.zeros_like(weight)
        sigmoid_back, tanh_back = torch.ops.aten.sigmoid_backward.grad_input, torch.ops.aten.tanh_backward.grad_input
        for block in start_blocks(of_gates, starts):
            rows = (block.stop - block.start) * n
            here = slopes.new_empty(rows, 4 * hidden)
            of_write, of_keep, of_show, of_new = here.chunk(4, dim=1)
            of_cell, part = slopes.new_zeros(rows, hidden), slopes.new_empty(rows, hidden)
            for place in reversed(range(places)):
                active, small, of_output = (a[place, block].flatten(0, 1) for a in (opened, squashed, slopes))
                write, keep, show, new = active.chunk(4, dim=1)
                if place < places - 1:
                    of_output = torch.addmm(of_output, here, weight)
                torch.mul(of_output, show, out=part)
                tanh_back(part, small, grad_input=part)
                of_cell += part
                torch.mul(of_output, small, out=of_show)
                torch.mul(of_cell, new, out=of_write)
                torch.mul(of_cell, write, out=of_new)
                if place:
                    torch.mul(of_cell, cells[place - 1, block].flatten(0, 1), out=of_keep)
                else:
                    of_keep.zero_()
                sigmoid_back(here[:, : 3 * hidden], active[:, : 3 * hidden], grad_input=here[:, : 3 * hidden])
                tanh_back(of_new, new, grad_input=of_new)
                of_gates[place + block.start : place + block.stop].flatten(0, 1).add_(here)
                if place:
                    of_weight.addmm_(here.t(), outputs[place - 1, block].flatten(0, 1))
                    of_cell *= keep
        _SPARE[:] = [(opened, cells, squashed)]
        context.spent = True
        return of_gates, of_weight, None


def _read(gates: Tensor, weight: Tensor, order: int) -> Tensor:
    """The recurrence alone, when nobody will ask for its derivative: a state a block instead of one a place."""
    horizon, n, width = gates.shape
    places, starts = window_shape(horizon, order)
    hidden = width // 4
    outputs = gates.new_empty(places, starts, n, hidden)
    for block in start_blocks(gates, starts):
        cell = gates.new_zeros((block.stop - block.start) * n, hidden)
        for place in range(places):
            total = gates[place + block.start : place + block.stop].flatten(0, 1)
            if place:
                total = torch.addmm(total, outputs[place - 1, block].flatten(0, 1), weight.t())
            write, keep, show = total[:, : 3 * hidden].sigmoid().chunk(3, dim=1)
            cell = torch.addcmul(keep * cell, write, total[:, 3 * hidden :].tanh())
            torch.mul(show, torch.tanh(cell), out=outputs[place, block].flatten(0, 1))
    return outputs


class WindowLSTM(nn.Module):
    """An LSTM that starts anew at each window; what an observation adds to the gates is computed once for all."""

    def __init__(self, inputs: int, hidden: int, order: int, output_activation: Activation) -> None:
        super().__init__()
        self.order, self.outputs = order, hidden
        self.from_input = nn.Linear(inputs, 4 * hidden)
        self.from_state = nn.Linear(hidden, 4 * hidden, bias=False)
        self.activation = ACTIVATIONS[output_activation]()
        bound = 1.0 / math.sqrt(hidden)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, projected: Tensor) -> Tensor:
        """(T, n, h) -> (N + 1, T - N, n, hidden): by place in the window, start and sequence."""
        recurrence: Any = _WindowRecurrence
        weight = self.from_state.weight
        gates = self.from_input(projected).to(weight.dtype)
        with torch.autocast(projected.device.type, enabled=False):  # sums over a window keep their digits
            # Asked here: inside a Function one cannot tell whether anybody wants its derivative.
            wanted = torch.is_grad_enabled() and (gates.requires_grad or weight.requires_grad)
            seen = recurrence.apply(gates, weight, self.order) if wanted else _read(gates, weight, self.order)
        result: Tensor = self.activation(seen)
        return result
