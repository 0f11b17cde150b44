"""What a belief has been through, in a few numbers: causal summaries of an evidence trajectory.

Backward induction takes what is known at t for all there is to know of the future. For exact evidence of independent
observations the posterior is; elsewhere the way it came says more. With r_t the square roots of the belief at t, even
before anything is seen, the summaries after t observations are

    agreement   <r_t, mean of r_1 .. r_t>                        1 for who never changed his mind
    movement    root of the mean of |r_s - r_(s-1)|^2, s <= t    how far a step usually goes
    gain        max r_t - max r_(t-1)                            how much surer the last step made

Roots have length 1, so all three are bounded and in the units in which beliefs are compared elsewhere, whatever the
number of classes. No class is named: renaming them changes nothing. Beliefs are those of an even prior.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from firmbound.arrays import Floats, Ints, finite_array
from firmbound.errors import InvalidInput
from firmbound.posterior import softmax
from firmbound.trajectories import check_evidence, check_step_evidence

SUMMARIES = ("agreement", "movement", "gain")
# Summaries are kept for every sequence and step while surfaces are fitted, so they are short; and rounded alike
# everywhere, so that whole sequences and streams meet the same side of a threshold.
Summaries = NDArray[np.float32]


@dataclass(frozen=True)
class Memory:
    """Of n sequences: roots of the last belief (n, K), sums (n, K) of roots and (n,) of squared moves, steps (n,).

    `gain` (n,) is the last step's. The size does not grow with the sequences.
    """

    roots: Floats
    total: Floats
    moved: Floats
    gain: Floats
    steps: Ints

    @classmethod
    def start(cls, count: int, classes: int) -> Memory:
        """Before the first observation: an even belief, and nothing behind it."""
        even = np.full((count, classes), np.sqrt(1.0 / classes))
        return cls(even, np.zeros_like(even), np.zeros(count), np.zeros(count), np.zeros(count, dtype=np.int64))

    def advance(self, evidence: NDArray[Any]) -> Memory:
        """After one more step, with the evidence (n, K) that stands then."""
        roots = np.sqrt(softmax(np.asarray(evidence, dtype=np.float64)))
        moved = self.moved + ((roots - self.roots) ** 2).sum(axis=1)
        gain = roots.max(axis=1) - self.roots.max(axis=1)
        return Memory(roots, self.total + roots, moved, gain, self.steps + 1)

    def summaries(self) -> Summaries:
        """(n, M) in the order of SUMMARIES, after one step at least."""
        agreement = (self.roots * self.total).sum(axis=1) / self.steps
        return np.stack([agreement, np.sqrt(self.moved / self.steps), self.gain], axis=1).astype(np.float32)

    def take(self, rows: Any) -> Memory:
        """Of some sequences."""
        return Memory(*(getattr(self, field.name)[rows] for field in fields(self)))

    def put(self, rows: Any, other: Memory) -> None:
        """Overwrite some sequences, in place: pools keep their memory where it is."""
        for name, part in other.arrays().items():
            getattr(self, name)[rows] = part

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """All there is to save."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], *, count: int, classes: int) -> Memory:
        """What `arrays` gave; ValueError for anything that cannot be the memory of so many sequences and classes."""
        made, fresh = cls(**arrays), cls.start(count, classes)
        for name, part in fresh.arrays().items():
            found = getattr(made, name)
            if found.shape != part.shape or found.dtype != part.dtype or not np.isfinite(found).all():
                raise ValueError(f"its memory holds {name} of {found.dtype} {found.shape}")
        if min(made.steps.min(initial=0), made.moved.min(initial=0.0)) < 0:
            raise ValueError("its memory is of less than nothing")
        return made


def memory_of(evidence: ArrayLike) -> Summaries:
    """Summaries after every step of whole sequences, (n, T, K) -> (n, T, M); a step's know nothing of later ones."""
    values = check_evidence(evidence)
    return np.moveaxis(remember(lambda t: values[:, t - 1], values.shape[1], values.shape[2]), 0, 1)


def remember(evidence_at: Callable[[int], NDArray[Any]], steps: int, classes: int) -> Summaries:
    """The same from evidence that comes step by step: `evidence_at(t)` is (n, K), t in 1..T.  -> (T, n, M)."""
    first = check_step_evidence(evidence_at(1), classes)
    memory = Memory.start(len(first), classes).advance(first)
    found = np.empty((steps, len(first), len(SUMMARIES)), dtype=np.float32)
    found[0] = memory.summaries()
    for t in range(2, steps + 1):
        memory = memory.advance(check_step_evidence(evidence_at(t), classes))
        found[t - 1] = memory.summaries()
    return found


def check_summaries(memory: ArrayLike | None, *, count: int, wanted: bool) -> Floats | None:
    """(n, M) finite summaries where a rule asks for them, and none where it does not."""
    if not wanted:
        if memory is None:
            return None
        raise InvalidInput("memory", "be left out", "some", "This rule looks at the belief alone.")
    if memory is None:
        advice = "Give memory_of(evidence)[:, t - 1], or the summaries() of a Memory that goes along."
        raise InvalidInput("memory", "be given: this rule looks at the past too", "none", advice)
    words = f"({count}, {len(SUMMARIES)}), {', '.join(SUMMARIES)} of each sequence"
    array = finite_array("memory", memory, ndim=2, shape_words=words)
    if array.shape != (count, len(SUMMARIES)):
        raise InvalidInput("memory", f"have shape {words}", f"shape {array.shape}")
    return array.astype(np.float64)
