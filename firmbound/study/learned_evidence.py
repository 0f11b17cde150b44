"""A SPRT-TANDEM network that is trained for one repeat, and a contest on the evidence that it learned."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from firmbound.arrays import Floats
from firmbound.baselines.rival import features_of
from firmbound.study.contest import Contest
from firmbound.tandem.cross_fitting import fit_in_folds
from firmbound.tandem.data import ArraySource
from firmbound.tandem.model import fit_tandem_from
from firmbound.tandem.options import NetworkOptions, TrainingOptions
from firmbound.trajectories import Batch


@dataclass(frozen=True)
class TandemOptions:
    network: NetworkOptions
    training: TrainingOptions
    oblivious: bool = False
    calibrate: bool = True
    folds: int | None = None


def with_learned_evidence(
    parts: Mapping[str, Batch], prior: Floats, options: TandemOptions, seed: int
) -> dict[str, Batch]:
    """The same splits, with evidence of a network that learned from `train` and was calibrated on `validation`.

    With folds, evidence of `train` is that of networks that have not seen the sequences, and calibrates.
    """
    sources = {
        split: ArraySource.of(features_of(part), part.labels, part.classes, part.lengths)
        for split, part in parts.items()
        if split != "test"
    }
    batch = min(options.training.batch, len(parts["train"].labels))
    train, validation = sources["train"], sources["validation"]
    training = replace(options.training, seed=seed, batch=batch)
    oblivious, calibrate = options.oblivious, options.calibrate
    unseen: NDArray[np.float32] | None = None
    if options.folds is None:
        model = fit_tandem_from(
            train, validation, prior, options.network, training, oblivious=oblivious, calibrate=calibrate
        )
    else:
        model, unseen = fit_in_folds(
            train, validation, prior, options.network, training, options.folds, oblivious=oblivious, calibrate=calibrate
        )
    learned = {split: replace(part, evidence=model.evidence(features_of(part))) for split, part in parts.items()}
    return learned if unseen is None else learned | {"train": replace(parts["train"], evidence=unseen)}


def on_learned_evidence(contest: Contest, options: TandemOptions) -> Contest:
    """The same contest for methods that have to learn the evidence which the data set came with."""
    started = time.perf_counter()
    parts = {"train": contest.train, "validation": contest.validation, "test": contest.test}
    learned = with_learned_evidence(parts, contest.prior, options, contest.seed)
    return replace(
        contest,
        train=learned["train"],
        validation=learned["validation"],
        test=learned["test"],
        learned=True,
        known=options.folds is None,
        evidence_seconds=time.perf_counter() - started,
    )
