"""Series that arrive one observation at a time: one stream, or thousands advanced together.

A stream's state does not grow with the series beyond what its reader keeps: a window for a network, the horizon's
observations at most for readers of prefixes. Streams are the definition; whole
sequences are the fast path, and tests hold them equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from firmbound.arrays import Bools, Floats, Ints, any_array
from firmbound.early.remaining_time import RemainingTime
from firmbound.errors import BundleError, InvalidInput
from firmbound.memory import Memory
from firmbound.readers.protocol import EvidenceReader
from firmbound.series import Missing, is_missing, observations
from firmbound.stopping_rule import StoppingRule

# Memory is taken when a pool is made: a slip of the pen must not take all there is.
MOST_STREAMS = 1_000_000


@dataclass(frozen=True)
class StreamParts:
    """What the streams of one classifier share. classes: the caller's labels, by index."""

    reader: EvidenceReader
    rule: StoppingRule
    remaining: RemainingTime
    classes: NDArray[Any]
    cost: float
    missing: Missing = "refuse"

    @property
    def cost_index(self) -> int:
        return self.rule.problem.cost_index(self.cost)

    def memory(self, streams: int) -> Memory | None:
        """Of streams that have seen nothing yet; none for a rule that asks for none."""
        return Memory.start(streams, self.rule.problem.classes) if self.rule.remembers else None


class StreamStep(NamedTuple):
    """How things stand after `time` steps. A decision stays as it fell, whatever is pushed later.

    label: in the caller's words, the best decision as things stand. expected_remaining_time: further steps that the
    rule is going to ask for; 0 once it has decided.
    """

    decided: bool
    label: Any
    time: int
    posterior: Floats
    stopping_risk: float
    continuation_risk: float
    expected_remaining_time: float


class EarlyStream:
    """One series: `push` an observation (d,) at a time until a step says decided; `end` if there are no more."""

    def __init__(self, parts: StreamParts, state: bytes | None = None) -> None:
        self.parts, self._reader = parts, parts.reader.stream()
        self._index, self._evidence = parts.cost_index, np.zeros(len(parts.classes))
        self.time, self._ended, self._memory = 0, False, parts.memory(1)
        self.last: StreamStep | None = None
        if state is not None:
            self._resume(state)

    def push(self, observation: ArrayLike) -> StreamStep:
        if self.last is not None and self.last.decided:
            return self.last
        given = observations(observation, (self.parts.reader.dimension,), self.parts.missing)
        if not is_missing(given, self.parts.missing):
            self._evidence = self._reader.push(given)
        if self._memory is not None:
            self._memory = self._memory.advance(self._evidence[None])
        self.time += 1
        self.last = self._step()
        return self.last

    def end(self) -> StreamStep:
        """The series has ended: decide with what there is."""
        if self.last is None:
            raise InvalidInput("stream", "have an observation at least before it ends", "none")
        if not self.last.decided:
            self._ended = True
            self.last = self._step()
        return self.last

    def _step(self) -> StreamStep:
        parts, t = self.parts, self.time
        past = None if self._memory is None else self._memory.summaries()
        step = parts.rule.step(self._evidence, t=t, cost=parts.cost, memory=past)
        decided = step.decided or self._ended
        left = 0.0 if decided else parts.remaining(t, self._index, step.stopping_risk)
        label = parts.classes[step.label]
        return StreamStep(decided, label, t, step.posterior, step.stopping_risk, step.continuation_risk, left)

    def state(self) -> bytes:
        """All that another process needs to go on, with the same classifier."""
        decided = self.last is not None and self.last.decided
        stands = np.array([self.time, int(self._ended), int(decided)])
        memory = {} if self._memory is None else self._memory.arrays()
        kept = {f"reader/{name}": np.array(part) for name, part in self._reader.state().items()}
        return save(kept | {f"memory/{name}": part for name, part in memory.items()} | {"at": stands})

    def _resume(self, state: bytes) -> None:
        try:
            arrays = load(state)
            time, ended, decided = (int(number) for number in arrays["at"])
            evidence = self._reader.restore(_parts_of("reader/", arrays))
            memory = self._resumed_memory(_parts_of("memory/", arrays), time)
            if not self._reader.time <= time <= self.parts.rule.problem.horizon or not np.isfinite(evidence).all():
                raise ValueError(f"it stands at step {time} after {self._reader.time} observations")
        except KeyError as part:
            raise BundleError(f"This is no state of a stream of this classifier: it lacks {part}.") from None
        except (SafetensorError, IndexError, TypeError, ValueError, OverflowError) as problem:
            raise BundleError(f"This is no state of a stream of this classifier: {problem}.") from None
        self.time, self._ended, self._memory = time, bool(ended), memory
        self._evidence = evidence if self._reader.time else self._evidence
        if time:
            self.last = self._step()
            if self.last.decided != bool(decided):
                raise BundleError("This is the state of a stream with another rule or cost.")

    def _resumed_memory(self, arrays: dict[str, NDArray[Any]], time: int) -> Memory | None:
        if bool(arrays) != self.parts.rule.remembers:
            raise ValueError("its rule looked at the past and this one does not" if arrays else "it has no memory")
        if not arrays:
            return None
        memory = Memory.from_arrays(arrays, count=1, classes=len(self.parts.classes))
        if memory.steps[0] != time:
            raise ValueError(f"it stands at step {time} with a memory of {memory.steps[0]}")
        return memory


def _parts_of(start: str, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Those whose name begins so, without the beginning."""
    return {name.removeprefix(start): part for name, part in arrays.items() if name.startswith(start)}


@dataclass(frozen=True)
class PoolSteps:
    """`StreamStep` of m streams, as arrays; label is the index of a class."""

    decided: Bools
    label: Ints
    time: Ints
    posterior: Floats
    stopping_risk: Floats
    continuation_risk: Floats
    expected_remaining_time: Floats


class StreamPool:
    """Many series of one classifier, advanced together; each may be at another time.

    Memory is fixed when the pool is made. `reset` frees the places of series that have ended for new ones.
    """

    def __init__(self, parts: StreamParts, streams: int) -> None:
        whole = isinstance(streams, int | np.integer) and not isinstance(streams, bool)
        if not whole or not 1 <= streams <= MOST_STREAMS:
            raise InvalidInput("streams", f"be a whole number from 1 to {MOST_STREAMS}", streams)
        self.parts, self.streams = parts, int(streams)
        self._reader, self._index = parts.reader.pool(self.streams), parts.cost_index
        classes = parts.rule.problem.classes
        self.time = np.zeros(self.streams, dtype=np.int64)
        self.decided = np.zeros(self.streams, dtype=np.bool_)
        self.label = np.zeros(self.streams, dtype=np.int64)
        self._evidence, self._memory = np.zeros((self.streams, classes)), parts.memory(self.streams)
        self._posterior = np.tile(parts.rule.prior, (self.streams, 1))
        self._stopping, self._going_on, self._left = (np.full(self.streams, np.nan) for _ in range(3))

    def reset(self, streams: ArrayLike) -> None:
        """Begin new series at these places."""
        chosen = self._places(streams)
        self._reader.reset(chosen)
        self.time[chosen], self.decided[chosen], self._evidence[chosen] = 0, False, 0.0
        if self._memory is not None:
            self._memory.put(chosen, Memory.start(len(chosen), self._evidence.shape[1]))

    def push(self, observation: ArrayLike, streams: ArrayLike | None = None) -> PoolSteps:
        """One observation (m, d) for each of m streams, all by default. Those that have decided stay as they are."""
        chosen = np.arange(self.streams) if streams is None else self._places(streams)
        missing = self.parts.missing
        values = observations(observation, (len(chosen), self.parts.reader.dimension), missing)
        moving = ~self.decided[chosen]
        there = moving if missing == "refuse" else moving & ~np.isnan(values).any(axis=1)
        now = chosen[there]
        if len(now):
            self._evidence[now] = self._reader.advance(now, values[there])
        if moving.any():
            self.time[chosen[moving]] += 1
            self._decide(chosen[moving])
        return self._steps(chosen)

    def end(self, streams: ArrayLike) -> PoolSteps:
        """These series have ended: decide with what there is."""
        chosen = self._places(streams)
        if not self.time[chosen].all():
            raise InvalidInput("streams", "have an observation at least before they end", "some without")
        self.decided[chosen], self._left[chosen] = True, 0.0
        return self._steps(chosen)

    def _steps(self, chosen: Ints) -> PoolSteps:
        return PoolSteps(
            self.decided[chosen],
            self.label[chosen],
            self.time[chosen],
            self._posterior[chosen],
            self._stopping[chosen],
            self._going_on[chosen],
            self._left[chosen],
        )

    def _decide(self, moving: Ints) -> None:
        rule, cost = self.parts.rule, self.parts.cost
        if self._memory is not None:
            self._memory.put(moving, self._memory.take(moving).advance(self._evidence[moving]))
        for t in np.unique(self.time[moving]).tolist():
            now = moving[self.time[moving] == t]
            past = None if self._memory is None else self._memory.take(now).summaries()
            found = rule.outlook(self._evidence[now], t=t, cost=cost, memory=past)
            self.decided[now], self.label[now], self._posterior[now] = found.decided, found.label, found.posterior
            self._stopping[now], self._going_on[now] = found.stopping_risk, found.continuation_risk
            left = 0.0 if t == rule.problem.horizon else self.parts.remaining.each(t, self._index, found.stopping_risk)
            self._left[now] = np.where(found.decided, 0.0, left)

    def _places(self, streams: ArrayLike) -> Ints:
        chosen = any_array("streams", streams, "whole numbers, one a stream")
        if chosen.ndim != 1 or chosen.dtype.kind not in ("iu" if len(chosen) else "iuf"):
            raise InvalidInput("streams", "be whole numbers, one a stream", f"{streams!r:.60}")
        if len(chosen) and (chosen.min() < 0 or chosen.max() >= self.streams or len(np.unique(chosen)) < len(chosen)):
            raise InvalidInput("streams", f"be different ones of 0..{self.streams - 1}", f"{streams!r:.60}")
        return chosen.astype(np.int64)
