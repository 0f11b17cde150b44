"""Evidence one observation at a time: a state of fixed size, equal to the batch form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from firmbound.arrays import Floats
from firmbound.errors import InvalidInput
from firmbound.tandem.network import TandemNetwork


@dataclass
class TandemStream:
    """`push` an observation (d,), get the evidence (K,) of all so far.

    What is kept: the last N + 1 projected observations and the evidence.
    """

    network: TandemNetwork
    log_prior: Tensor
    oblivious: bool = False
    temperature: float = 1.0

    def __post_init__(self) -> None:
        self.network.eval()
        self.time = 0
        self._recent = torch.empty(0, self.network.options.projection)
        self._evidence = torch.zeros(self.network.classes)

    @torch.inference_mode()
    def push(self, observation: Floats) -> Floats:
        values = torch.as_tensor(np.asarray(observation), dtype=torch.float32)
        if values.shape != (self.network.dimension,) or not bool(torch.isfinite(values).all()):
            raise InvalidInput("observation", f"be {self.network.dimension} finite numbers", np.shape(observation))
        order = self.network.options.order
        self._recent = torch.cat(
            [self._recent[-order:] if order else self._recent[:0], self.network.project(values[None])]
        )
        self.time += 1
        seen = self.network.of_projected(self._recent[None])[0, 0]  # of the window's beginnings
        if self.time <= order + 1 or self.oblivious:
            self._evidence = seen[-1] - self.log_prior
        else:
            self._evidence = self._evidence + seen[-1] - (seen[-2] if order else self.log_prior)
        return np.asarray(self._evidence, dtype=np.float64) / self.temperature
