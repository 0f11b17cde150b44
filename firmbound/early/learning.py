"""How EarlyClassifier learns: who trains, who validates, who judges, and which reader learns the evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from firmbound.arrays import Floats, Ints, any_array
from firmbound.continuation.gaussian_process import ProcessOptions
from firmbound.errors import InvalidInput
from firmbound.fitting import Method, Options
from firmbound.readers.beliefs import BeliefReader
from firmbound.readers.prefixes import PrefixClassifiers, PrefixFunction
from firmbound.readers.protocol import EvidenceReader
from firmbound.series import Missing, Series
from firmbound.tandem.options import NetworkOptions, TrainingOptions, is_count

if TYPE_CHECKING:
    from firmbound.early_classifier import EarlyClassifier
    from firmbound.tandem.training import Progress

# A step that fewer sequences reach, or fewer than a tenth of a few, tells too little of what is to be expected there:
# the horizon ends before it.
ENOUGH = 30
FOLDS = 5


def check_settings(wanted: EarlyClassifier) -> None:
    """Refuse, by name, what nothing can be made of."""
    source = wanted.evidence
    named = isinstance(source, str) and source in ("network", "posteriors", "given")
    reads = named or (not isinstance(source, type) and (hasattr(source, "predict_proba") or callable(source)))
    sources = "'network', 'posteriors', 'given', a classifier with predict_proba, or a callable on prefixes"
    for name, holds, rule in (
        ("evidence", reads, f"be {sources}"),
        ("method", _one_of(wanted.method, "auto", "cfl", "gp"), "be 'auto', 'cfl' or 'gp'"),
        ("missing", _one_of(wanted.missing, *get_args(Missing)), f"be one of {get_args(Missing)}"),
        ("seed", is_count(wanted.seed, 0), "be a whole number from 0"),
        ("network", isinstance(wanted.network, NetworkOptions | None), "be NetworkOptions, or None"),
        ("training", isinstance(wanted.training, TrainingOptions | None), "be TrainingOptions, or None"),
        ("options", isinstance(wanted.options, Options | None), "be ConvexOptions or ProcessOptions, or None"),
    ):
        if not holds:
            raise InvalidInput(name, rule, f"{getattr(wanted, name)!r:.60}")


def _one_of(value: Any, *choices: str) -> bool:
    return isinstance(value, str) and value in choices


def encode(y: ArrayLike, count: int) -> tuple[NDArray[Any], Ints]:
    """Distinct labels in order, and each sequence's place among them."""
    given = any_array("y", y, "one label a sequence")
    if given.shape != (count,):
        raise InvalidInput("y", f"have shape ({count},), one label a sequence", f"shape {given.shape}")
    if given.dtype.kind == "f" and not np.all(np.isfinite(given)):
        raise InvalidInput("y", "be known for every sequence", "NaN or infinite labels")
    try:
        classes, labels = np.unique(given, return_inverse=True)
    except TypeError:
        raise InvalidInput("y", "hold labels that can be compared", f"labels of dtype {given.dtype}") from None
    if len(classes) < 2:
        raise InvalidInput("y", "hold two classes at least", classes.tolist())
    return classes, labels.astype(np.int64)


def split(labels: Ints, validation: float, held_out: float, seed: int) -> tuple[Ints, Ints, Ints]:
    """Places of sequences for training, validation and the final judgement; every class in each.

    With held_out = 0 nobody judges.
    """
    for name, share, least in (("validation", validation, 1e-9), ("held_out", held_out, 0.0)):
        number = isinstance(share, int | float) and not isinstance(share, bool)
        if not (number and least <= share < 0.5):
            raise InvalidInput(name, "be a share between 0 and 0.5", share)
    rarest, parts = int(np.bincount(labels).min()), 3 if held_out else 2
    if rarest < parts:
        rule = f"hold enough sequences to split: {parts} of every class at least"
        raise InvalidInput("y", rule, f"{len(labels)} sequences, the rarest class {rarest} times")
    random = np.random.default_rng(seed)
    chosen: list[list[Ints]] = [[], [], []]
    for label in range(int(labels.max()) + 1):
        own = random.permutation(np.flatnonzero(labels == label))
        judges = min(max(1, round(held_out * len(own))), len(own) - 2) if held_out else 0
        validators = min(max(1, round(validation * len(own))), len(own) - judges - 1)
        for part, places in zip(
            chosen, np.split(own, [len(own) - judges - validators, len(own) - judges]), strict=True
        ):
            part.append(places)
    train, valid, kept = (random.permutation(np.concatenate(part)) for part in chosen)
    return train, valid, kept


def usual_horizon(lengths: Ints) -> int:
    """The last step that enough sequences reach."""
    enough = min(ENOUGH, -(-len(lengths) // 10))
    horizon = int(np.sort(lengths)[::-1][enough - 1])
    if horizon < 2:
        raise InvalidInput("X", "hold series of two observations and more", f"{enough} of {len(lengths)} at most")
    return horizon


def usual_method(classes: int, options: Options | None) -> Method:
    """What the options are for; else convex functions for two classes, and processes, which are quicker, for more."""
    if options is not None:
        return "gp" if isinstance(options, ProcessOptions) else "cfl"
    return "cfl" if classes == 2 else "gp"


def learn_evidence(
    wanted: EarlyClassifier,
    series: Series,
    labels: Ints,
    train: Ints,
    valid: Ints,
    prior: Floats,
    progress: Progress | None,
) -> tuple[EvidenceReader, NDArray[Any]]:
    """The reader, and evidence (m, T, K) of training and validation sequences to fit the rules on."""
    seen = np.concatenate([train, valid])
    if series.observations.min() < 1:
        got = f"one in which all are missing up to the horizon, {series.horizon}"
        raise InvalidInput("X", "have an observation at least in every series", got)
    part, shares = series.take(seen), np.bincount(labels[seen]) / len(seen)
    source = wanted.evidence
    if hasattr(source, "predict_proba"):
        folds = min(FOLDS, int(np.bincount(labels[seen]).min()))
        fitted = PrefixClassifiers(
            source, len(prior), checkpoints=wanted.checkpoints, prior=prior, folds=folds, seed=wanted.seed
        )
        return fitted, part.spread(fitted.fit(part.values, labels[seen], part.observations))
    if source == "network":
        from firmbound.tandem.model import fit_tandem  # torch, which other readers do not wait for

        reader: EvidenceReader = fit_tandem(
            series.values[train],
            labels[train],
            lengths=series.observations[train],
            validation=(series.values[valid], labels[valid], series.observations[valid]),
            prior=prior,
            network=wanted.network,
            training=wanted.training or TrainingOptions(seed=wanted.seed, batch=min(200, len(train))),
            progress=progress,
        )
    elif isinstance(source, str):
        if series.dimension != len(prior):
            raise InvalidInput("X", f"hold {len(prior)} numbers a step, one a class", f"shape {series.values.shape}")
        reader = BeliefReader("given" if source == "given" else "posteriors", shares)
    else:
        reader = PrefixFunction(
            source,
            dimension=series.dimension,
            shares=shares,
            horizon=series.horizon,
            checkpoints=wanted.checkpoints,
        )
    return reader, part.spread(reader.evidence(part.values))
