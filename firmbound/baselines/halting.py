"""Networks that say themselves when they halt: EARLIEST and the TCN-Transformer have this in common."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn
from torch.nn import functional

from firmbound.arrays import is_real
from firmbound.baselines.rival import OperatingPoint, at_decision, ends_of, picked
from firmbound.baselines.training import Singles, outputs
from firmbound.devices import Device
from firmbound.errors import InvalidInput
from firmbound.posterior import softmax
from firmbound.trajectories import Batch, Decisions


@dataclass(frozen=True)
class HaltingNetworks:
    """Trained networks, one a setting: (m, T, d) -> (m, T, K + 1), scores of classes and the logit of halting.

    Nothing is drawn any more: they halt at the first step where halting is likelier than not, or at the end.
    """

    networks: tuple[nn.Module, ...]
    settings: tuple[float, ...]
    device: Device

    def points(self, test: Batch, only: int | None = None) -> list[OperatingPoint]:
        found = []
        ways = list(zip(self.networks, self.settings, strict=True))
        for network, setting in picked(ways, only):
            said = outputs(network, test, self.device)
            decisions = halts(said, test)
            belief = softmax(at_decision(said[..., :-1], decisions))
            found.append(OperatingPoint(setting, decisions, belief))
        return found


def halts(said: Singles, test: Batch) -> Decisions:
    """Decisions of networks that said (n, T, K + 1)."""
    rows, horizon = np.arange(len(said)), said.shape[1]
    ends = ends_of(test, horizon)
    halting = said[..., -1] > 0.0  # of a logit: the probability is above one half
    halting[rows, ends - 1] = True
    first = halting.argmax(axis=1)
    return Decisions(first + 1, said[rows, first, :-1].argmax(axis=1), horizon)


def last_step(there: Tensor) -> Tensor:
    """Whether a step is the last of its sequence.  (m, T) -> (m, T)."""
    return there & ~functional.pad(there[:, 1:], (0, 1), value=False)


def halting_law(halting: Tensor, there: Tensor) -> Tensor:
    """The probability of halting exactly at each step, 1 in all.  (m, T) logits -> (m, T).

    It is that of halting now times that of not having halted before; the last step halts for sure.
    """
    on = functional.logsigmoid(-halting).cumsum(dim=1)
    now = functional.logsigmoid(halting).where(~last_step(there), 0.0)
    return (functional.pad(on[:, :-1], (1, 0)) + now).exp().where(there, 0.0)


def check_settings(name: str, values: tuple[float, ...], most: float, words: str) -> None:
    """Numbers in 0..most, for each of which a network is trained."""
    listed = isinstance(values, tuple) and len(values) > 0
    if not (listed and all(is_real(value) and math.isfinite(value) and 0 <= value <= most for value in values)):
        raise InvalidInput(name, f"be a tuple of {words}, one at least", repr(values))
