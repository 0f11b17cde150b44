"""Evidence of training sequences by networks that have not seen them.

A network is surer of the sequences it learned from than of others: a stopping rule that is fitted on what it says of
them waits for evidence that will not come. Where there are too few sequences to keep some apart for rules, each fold
is read by a network that learned from the other folds. What those say is also what temperatures are best fitted on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firmbound.arrays import Floats, Ints
from firmbound.errors import InvalidInput
from firmbound.folds import fold_numbers
from firmbound.tandem.data import SequenceSource, in_order
from firmbound.tandem.model import BLOCK, TandemModel, fit_tandem_from
from firmbound.tandem.options import NetworkOptions, TrainingOptions


@dataclass(frozen=True)
class Chosen:
    """Some sequences of a source: rows (m,), in ascending order."""

    source: SequenceSource
    rows: Ints

    @property
    def labels(self) -> Ints:
        return self.source.labels[self.rows]

    @property
    def lengths(self) -> Ints:
        return self.source.lengths[self.rows]

    @property
    def horizon(self) -> int:
        return self.source.horizon

    @property
    def dimension(self) -> int:
        return self.source.dimension

    def read(self, rows: slice) -> NDArray[Any]:
        """All that lies between the first and the last is read: whoever asks for neighbours reads little in vain."""
        wanted = self.rows[rows]
        if not len(wanted):
            return self.source.read(slice(0, 0))
        first = int(wanted[0])
        return self.source.read(slice(first, int(wanted[-1]) + 1))[wanted - first]

    def fingerprint(self) -> str:
        return f"{self.source.fingerprint()} {self.rows.tolist()}"


@dataclass(frozen=True)
class Fold:
    """One of `count` parts of a source; `held` are its sequences, `seen` all others."""

    number: int
    count: int

    def held(self, source: SequenceSource) -> Chosen:
        return Chosen(source, np.flatnonzero(self._numbers(source) == self.number))

    def seen(self, source: SequenceSource) -> Chosen:
        return Chosen(source, np.flatnonzero(self._numbers(source) != self.number))

    def _numbers(self, source: SequenceSource) -> Ints:
        rarest = int(np.bincount(source.labels).min())
        if rarest < 2:
            raise InvalidInput("folds", "leave a sequence of every class outside of each fold", f"a class of {rarest}")
        return fold_numbers(source.labels, self.count, seed=0)


def evidence_of_fold(
    fold: Fold,
    source: SequenceSource,
    validation: SequenceSource,
    prior: Floats,
    network: NetworkOptions,
    training: TrainingOptions,
    *,
    oblivious: bool = False,
    checkpoint: Path | None = None,
) -> NDArray[np.float32]:
    """(m, T, K) evidence of a fold's sequences, as it comes, by a network that learned from all others."""
    held, seen = fold.held(source), fold.seen(source)
    options = replace(training, batch=min(training.batch, len(seen.labels)))
    model = fit_tandem_from(
        seen,
        validation,
        prior,
        network,
        options,
        oblivious=oblivious,
        calibrate=False,
        checkpoint=checkpoint,
    )
    return np.concatenate([model.evidence(batch.features) for batch in in_order(held, BLOCK)])


def in_one_piece(source: SequenceSource, parts: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    """(n, T, K) evidence of all sequences from that of the folds, in the folds' order."""
    whole = np.empty((len(source.labels), *parts[0].shape[1:]), dtype=np.float32)
    for number, part in enumerate(parts):
        whole[Fold(number, len(parts)).held(source).rows] = part
    return whole


def agreeing(
    model: TandemModel, source: SequenceSource, unseen: NDArray[np.float32], *, calibrate: bool
) -> tuple[TandemModel, NDArray[np.float32]]:
    """The network of all sequences, and evidence of them by the folds' networks, at the same temperatures.

    Those are fitted on the latter, which are as many as there are training sequences.
    """
    if calibrate:
        model = model.calibrated_by(unseen, source)
    return model, model.cooled(unseen)


def fit_in_folds(
    source: SequenceSource,
    validation: SequenceSource,
    prior: Floats,
    network: NetworkOptions,
    training: TrainingOptions,
    folds: int,
    *,
    oblivious: bool = False,
    calibrate: bool = True,
) -> tuple[TandemModel, NDArray[np.float32]]:
    """As `fit_tandem_from`, and (n, T, K) evidence of the training sequences by networks that have not seen them."""
    parts = [
        evidence_of_fold(Fold(number, folds), source, validation, prior, network, training, oblivious=oblivious)
        for number in range(folds)
    ]
    model = fit_tandem_from(source, validation, prior, network, training, oblivious=oblivious, calibrate=False)
    return agreeing(model, source, in_one_piece(source, parts), calibrate=calibrate)
