"""What may be chosen of a refinement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from firmbound.arrays import Ints, is_count, is_real
from firmbound.errors import InvalidInput

Refine = Literal["auto", "always", "never"]
Inputs = Literal["evidence", "features"]
# Sequences from which halves teach as much as all.
MANY = 10_000
# What squared weights cost, in nats of all labels together: from trusting the data to trusting the given evidence.
RIDGES = (1.0, 10.0, 100.0, 1_000.0, 10_000.0)


@dataclass(frozen=True)
class RefinementOptions:
    """inputs: what is remembered: the past of the evidence, or also of the features. units: numbers of the memory.

    folds: parts of the sequences; each is refined by what the others taught. None: 5, or 2 where there are many. ridge:
    how strongly weights are drawn to 0, where the evidence stays as given but for its scale; None: by the likelihood of
    labels of held-out folds. seed: of the memory's random weights and of the folds.
    """

    inputs: Inputs = "evidence"
    units: int = 64
    folds: int | None = None
    ridge: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name, holds, rule in (
            ("inputs", self.inputs in get_args(Inputs), f"be one of {get_args(Inputs)}"),
            ("units", is_count(self.units, 1), "be a whole number from 1"),
            ("folds", self.folds is None or is_count(self.folds, 2), "be a whole number from 2, or None"),
            ("ridge", self.ridge is None or (is_real(self.ridge) and 0 < self.ridge < 1e12), "be positive, or None"),
            ("seed", is_count(self.seed, 0), "be a whole number from 0"),
        ):
            if not holds:
                raise InvalidInput(name, rule, repr(getattr(self, name)))

    def folds_for(self, labels: Ints) -> int:
        """As many as asked for, if every class has a sequence for each."""
        rarest = int(np.bincount(labels)[np.unique(labels)].min())
        wanted = self.folds or (2 if len(labels) >= MANY else 5)
        if rarest < 2 or (self.folds is not None and rarest < self.folds):
            rule = f"hold {self.folds or 2} sequences of every class at least, to be refined in folds"
            raise InvalidInput("labels", rule, f"the rarest class {rarest} times")
        return min(wanted, rarest)
