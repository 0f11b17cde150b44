"""Series that arrive one observation at a time: one stream, or thousands advanced together.

A stream's state has a fixed size: the last N + 1 projected observations, the evidence, the time and the decision.
Streams are the definition; whole sequences are the fast path, and tests hold them equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from firmbound.arrays import Bools, Floats, Ints, finite_array
from firmbound.errors import BundleError, InvalidInput
from firmbound.remaining_time import RemainingTime
from firmbound.stopping_rule import StoppingRule
from firmbound.tandem.model import TandemModel


@dataclass(frozen=True)
class StreamParts:
    """What the streams of one classifier share. classes: the caller's labels, by index."""

    model: TandemModel
    rule: StoppingRule
    remaining: RemainingTime
    classes: NDArray[Any]
    cost: float

    @property
    def cost_index(self) -> int:
        return self.rule.problem.cost_index(self.cost)


class StreamStep(NamedTuple):
    """How things stand after `time` observations. A decision stays as it fell, whatever is pushed later.

    label: in the caller's words, the best decision as things stand. expected_remaining_time: further observations that
    the rule is going to ask for; 0 once it has decided.
    """

    decided: bool
    label: Any
    time: int
    posterior: Floats
    stopping_risk: float
    continuation_risk: float
    expected_remaining_time: float


class EarlyStream:
    """One series: `push` an observation (d,) at a time until a step says decided."""

    def __init__(self, parts: StreamParts, state: bytes | None = None) -> None:
        self.parts, self._evidence = parts, parts.model.stream()
        self._index = parts.cost_index
        self.last: StreamStep | None = None
        if state is not None:
            self._resume(state)

    def push(self, observation: ArrayLike) -> StreamStep:
        if self.last is not None and self.last.decided:
            return self.last
        self.last = self._step(self._evidence.push(observation))
        return self.last

    def _step(self, evidence: Floats) -> StreamStep:
        parts, t = self.parts, self._evidence.time
        step = parts.rule.step(evidence, t=t, cost=parts.cost)
        left = 0.0 if step.decided else parts.remaining(t, self._index, step.stopping_risk)
        label = parts.classes[step.label]
        return StreamStep(step.decided, label, t, step.posterior, step.stopping_risk, step.continuation_risk, left)

    def state(self) -> bytes:
        """All that another process needs to go on, with the same classifier."""
        decided = self.last is not None and self.last.decided
        return save(self._evidence.state() | {"decided": np.array([decided])})

    def _resume(self, state: bytes) -> None:
        try:
            arrays = load(state)
            decided = bool(arrays.pop("decided")[0])
            evidence = self._evidence.restore(arrays)
        except (SafetensorError, KeyError, IndexError, TypeError, ValueError) as problem:
            raise BundleError(f"This is no state of a stream of this classifier: {problem}.") from None
        if self._evidence.time:
            self.last = self._step(evidence)
            if self.last.decided != decided:
                raise BundleError("This is the state of a stream with another rule or cost.")


@dataclass(frozen=True)
class PoolSteps:
    """`StreamStep` of m streams, as arrays; label is the index of a class."""

    decided: Bools
    label: Ints
    time: Ints
    posterior: Floats
    stopping_risk: Floats
    continuation_risk: Floats


class StreamPool:
    """Many series of one classifier, advanced together; each may be at another time.

    Memory is fixed when the pool is made. `reset` frees the places of series that have ended for new ones.
    """

    def __init__(self, parts: StreamParts, streams: int) -> None:
        if streams < 1:
            raise InvalidInput("streams", "be at least 1", streams)
        self.parts, self.streams = parts, streams
        network, rule = parts.model.network, parts.rule
        classes = rule.problem.classes
        self._window = torch.zeros(streams, network.options.order + 1, network.options.projection)
        self._evidence = torch.zeros(streams, classes)
        self._log_shares = torch.as_tensor(np.log(parts.model.shares), dtype=torch.float32)
        self.time = np.zeros(streams, dtype=np.int64)
        self.decided = np.zeros(streams, dtype=np.bool_)
        self.label = np.zeros(streams, dtype=np.int64)
        self._posterior = np.tile(rule.prior, (streams, 1))
        self._stopping, self._going_on = np.full(streams, np.nan), np.full(streams, np.nan)

    def reset(self, streams: ArrayLike) -> None:
        """Begin new series at these places."""
        chosen = self._places(streams)
        self.time[chosen], self.decided[chosen] = 0, False

    def push(self, observations: ArrayLike, streams: ArrayLike | None = None) -> PoolSteps:
        """One observation (m, d) for each of m streams, all by default. Those that have decided stay as they are."""
        chosen = np.arange(self.streams) if streams is None else self._places(streams)
        values = finite_array("observations", observations, ndim=2, shape_words="(m, d)")
        if values.shape != (len(chosen), self.parts.model.network.dimension):
            wanted = (len(chosen), self.parts.model.network.dimension)
            raise InvalidInput("observations", f"have shape {wanted}, a row a stream", f"shape {values.shape}")
        open_ones = ~self.decided[chosen]
        moving = chosen[open_ones]
        if len(moving):
            self._advance(moving, values[open_ones].astype(np.float32))
            self._decide(moving)
        return PoolSteps(
            self.decided[chosen],
            self.label[chosen],
            self.time[chosen],
            self._posterior[chosen],
            self._stopping[chosen],
            self._going_on[chosen],
        )

    @torch.inference_mode()
    def _advance(self, moving: Ints, values: NDArray[np.float32]) -> None:
        """Evidence of one more observation, streams with windows of one length at a time."""
        model, places = self.parts.model, self._window.shape[1]
        where = torch.as_tensor(moving)
        recent = self._window[where].roll(-1, dims=1)
        recent[:, -1] = model.network.project(torch.as_tensor(values))
        self._window[where] = recent
        self.time[moving] += 1
        length = np.minimum(self.time[moving], places)
        for size in np.unique(length):
            here = np.flatnonzero(length == size)
            seen = model.network.of_projected(recent[torch.as_tensor(here), places - int(size) :])[:, 0]
            now = where[torch.as_tensor(here)]
            grown = torch.as_tensor(self.time[moving[here]] > places)[:, None]
            before = seen[:, -2] if size > 1 else self._log_shares
            anew = seen[:, -1] - self._log_shares
            added = self._evidence[now] + seen[:, -1] - before
            self._evidence[now] = anew if model.oblivious else torch.where(grown, added, anew)

    def _decide(self, moving: Ints) -> None:
        rule, cost = self.parts.rule, self.parts.cost
        evidence = self._evidence[torch.as_tensor(moving)].double().numpy() / self.parts.model.temperature
        for t in np.unique(self.time[moving]):
            here = np.flatnonzero(self.time[moving] == t)
            now = moving[here]
            found = rule.outlook(evidence[here], t=int(t), cost=cost)
            self.decided[now], self.label[now], self._posterior[now] = found.decided, found.label, found.posterior
            self._stopping[now], self._going_on[now] = found.stopping_risk, found.continuation_risk

    def _places(self, streams: ArrayLike) -> Ints:
        chosen = np.asarray(streams)
        if chosen.ndim != 1 or chosen.dtype.kind not in "iu":
            raise InvalidInput("streams", "be whole numbers, one a stream", f"{streams!r:.60}")
        if len(chosen) and (chosen.min() < 0 or chosen.max() >= self.streams or len(np.unique(chosen)) < len(chosen)):
            raise InvalidInput("streams", f"be different ones of 0..{self.streams - 1}", f"{streams!r:.60}")
        return chosen.astype(np.int64)
