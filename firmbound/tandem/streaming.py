"""Evidence one observation at a time: a state of fixed size, equal to the batch form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from firmbound.arrays import Floats, finite_array
from firmbound.errors import InvalidInput
from firmbound.tandem.network import TandemNetwork


@dataclass
class TandemStream:
    """`push` an observation (d,), get the evidence (K,) of all so far, the largest class at 0.

    What is kept: the last N + 1 projected observations and the evidence.
    """

    network: TandemNetwork
    log_shares: Tensor
    oblivious: bool = False
    temperature: float = 1.0

    def __post_init__(self) -> None:
        self.network.eval()
        self.time = 0
        self._place = next(self.network.parameters()).device
        self.log_shares = self.log_shares.to(self._place)
        self._recent = torch.empty(0, self.network.options.projection, device=self._place)
        self._evidence = torch.zeros(self.network.classes, device=self._place)

    @torch.inference_mode()
    def push(self, observation: ArrayLike) -> Floats:
        given = finite_array("observation", observation, ndim=1, shape_words=f"({self.network.dimension},)")
        if len(given) != self.network.dimension:
            raise InvalidInput("observation", f"hold {self.network.dimension} numbers", len(given))
        values = torch.as_tensor(given, dtype=torch.float32, device=self._place)
        order = self.network.options.order
        self._recent = torch.cat(
            [self._recent[-order:] if order else self._recent[:0], self.network.project(values[None])]
        )
        self.time += 1
        seen = self.network.of_projected(self._recent[None])[0, 0]  # of the window's beginnings
        if self.time <= order + 1 or self.oblivious:
            self._evidence = seen[-1] - self.log_shares
        else:
            self._evidence = self._evidence + seen[-1] - (seen[-2] if order else self.log_shares)
        return self._shown()

    def state(self) -> dict[str, NDArray[Any]]:
        """What is kept between observations."""
        return {
            "time": np.array([self.time]),
            "recent": self._recent.cpu().numpy(),
            "evidence": self._evidence.cpu().numpy(),
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> Floats:
        """Go on from a state; hands back the evidence so far."""
        time, recent, evidence = int(state["time"][0]), state["recent"], state["evidence"]
        options = self.network.options
        rows = min(time, options.order + 1)
        if time < 0 or recent.shape != (rows, options.projection) or evidence.shape != (self.network.classes,):
            raise ValueError(f"it holds {recent.shape} and {evidence.shape} after {time} observations")
        self.time = time
        self._recent = torch.as_tensor(recent, dtype=torch.float32, device=self._place)
        self._evidence = torch.as_tensor(evidence, dtype=torch.float32, device=self._place)
        return self._shown()

    def _shown(self) -> Floats:
        evidence = np.asarray(self._evidence.cpu(), dtype=np.float64)
        return np.asarray((evidence - evidence.max()) / self.temperature)
