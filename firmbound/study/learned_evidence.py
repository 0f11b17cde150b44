"""A SPRT-TANDEM network that is trained for one repeat, and a contest on the evidence that it learned."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from firmbound.arrays import Floats
from firmbound.baselines.rival import features_of
from firmbound.study.contest import Contest
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


def with_learned_evidence(
    parts: Mapping[str, Batch], prior: Floats, options: TandemOptions, seed: int
) -> dict[str, Batch]:
    """The same splits, with evidence of a network that learned from `train` and was calibrated on `validation`."""
    sources = {
        split: ArraySource.of(features_of(part), part.labels, part.classes, part.lengths)
        for split, part in parts.items()
        if split != "test"
    }
    batch = min(options.training.batch, len(parts["train"].labels))
    model = fit_tandem_from(
        sources["train"],
        sources["validation"],
        prior,
        options.network,
        replace(options.training, seed=seed, batch=batch),
        oblivious=options.oblivious,
        calibrate=options.calibrate,
    )
    return {split: replace(part, evidence=model.evidence(features_of(part))) for split, part in parts.items()}


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
        evidence_seconds=time.perf_counter() - started,
    )
