"""Evidence one observation at a time, of one series or of many: a state of fixed size, equal to the batch form."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from firmbound.arrays import Floats, Ints, finite_array
from firmbound.errors import InvalidInput
from firmbound.tandem.network import TandemNetwork
from firmbound.temperature import at_times


@dataclass
class TandemStream:
    """`push` an observation (d,), get the evidence (K,) of all so far, the largest class at 0.

    What is kept: the last N + 1 projected observations and the evidence.
    """

    network: TandemNetwork
    log_shares: Tensor
    oblivious: bool = False
    temperatures: Floats = field(default_factory=lambda: np.ones(1))

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
        recent = torch.cat([self._recent[-order:] if order else self._recent[:0], self.network.project(values[None])])
        seen = self.network.of_projected(recent[None])[0, 0]  # of the window's beginnings
        if self.time <= order or self.oblivious:
            evidence = seen[-1] - self.log_shares
        else:
            evidence = self._evidence + seen[-1] - (seen[-2] if order else self.log_shares)
        if not math.isfinite(float(evidence.sum())):
            raise InvalidInput("observation", "be of a size that the network can read", f"{observation!r:.60}")
        self.time, self._recent, self._evidence = self.time + 1, recent, evidence
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
        single = recent.dtype == evidence.dtype == np.float32
        if not (single and np.isfinite(recent).all() and np.isfinite(evidence).all()):
            raise ValueError("it holds what are no numbers")
        self.time = time
        self._recent = torch.as_tensor(recent, dtype=torch.float32, device=self._place)
        self._evidence = torch.as_tensor(evidence, dtype=torch.float32, device=self._place)
        return self._shown()

    def _shown(self) -> Floats:
        evidence = np.asarray(self._evidence.cpu(), dtype=np.float64)
        return np.asarray((evidence - evidence.max()) / at_times(self.temperatures, np.asarray(self.time)))


class TandemPool:
    """Evidence of many series, each at its own time."""

    def __init__(
        self, network: TandemNetwork, log_shares: Tensor, oblivious: bool, temperatures: Floats, streams: int
    ) -> None:
        self.network, self.log_shares = network.eval(), log_shares
        self.oblivious, self.temperatures = oblivious, temperatures
        self._time = np.zeros(streams, dtype=np.int64)
        self._window = torch.zeros(streams, network.options.order + 1, network.options.projection)
        self._evidence = torch.zeros(streams, network.classes)

    def reset(self, streams: Ints) -> None:
        self._time[streams] = 0

    @torch.inference_mode()
    def advance(self, streams: Ints, observations: NDArray[np.float32]) -> Floats:
        """One observation (m, d) for each of m different streams; those with windows of one length go together."""
        places = self._window.shape[1]
        where = torch.as_tensor(streams)
        recent = self._window[where].roll(-1, dims=1)
        recent[:, -1] = self.network.project(torch.as_tensor(observations))
        time, evidence = self._time[streams] + 1, self._evidence[where]
        length = np.minimum(time, places)
        for size in np.unique(length):
            here = torch.as_tensor(np.flatnonzero(length == size))
            seen = self.network.of_projected(recent[here, places - int(size) :])[:, 0]
            grown = torch.as_tensor(time > places)[here, None]
            before = seen[:, -2] if size > 1 else self.log_shares
            anew = seen[:, -1] - self.log_shares
            added = evidence[here] + seen[:, -1] - before
            evidence[here] = anew if self.oblivious else torch.where(grown, added, anew)
        bad = ~torch.isfinite(evidence).all(dim=1).numpy()
        if bad.any():
            rule, got = "be of a size that the network can read", f"others for streams {streams[bad][:5].tolist()}"
            raise InvalidInput("observation", rule, got)
        self._time[streams], self._window[where], self._evidence[where] = time, recent, evidence
        exact = evidence.double()
        temperature = at_times(self.temperatures, time)[:, None]
        return np.asarray((exact - exact.amax(dim=1, keepdim=True)).numpy() / temperature)
