"""How EarlyClassifier learns: who trains, who validates, who judges, and which reader learns the evidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from firmbound.arrays import Floats, Ints, any_array, is_count, is_real
from firmbound.continuation.gaussian_process import ProcessOptions
from firmbound.errors import InvalidInput
from firmbound.evaluation.risk import realised_risk
from firmbound.fitting import Method, Options, fit_stopping_rule
from firmbound.readers.beliefs import BeliefReader
from firmbound.readers.prefixes import PrefixClassifiers, PrefixFunction
from firmbound.readers.protocol import EvidenceReader
from firmbound.readers.refined import RefinedReader
from firmbound.refinement.choice import Contestant, compare, too_few
from firmbound.refinement.cross_fitting import fit_refiner
from firmbound.refinement.options import Refine, RefinementOptions
from firmbound.scaling import Moments
from firmbound.series import Missing, Series
from firmbound.stopping_rule import StoppingRule
from firmbound.tandem.options import NetworkOptions, TrainingOptions

if TYPE_CHECKING:
    from firmbound.early_classifier import EarlyClassifier
    from firmbound.tandem.training import Progress

FitRule = Callable[[NDArray[Any]], StoppingRule]
FOLDS = 5
# Of a network that nobody chose: observations remembered at most, and steps of training at least.
USUAL_ORDER = 7
USUAL_STEPS = 1_500
# Sequences x steps x numbers of a prefix x classes up to which logistic regressions of prefixes take seconds.
QUICK_WORK = 2e7


def check_settings(wanted: EarlyClassifier) -> None:
    """Refuse, by name, what nothing can be made of."""
    source = wanted.evidence
    named = _one_of(source, "auto", "network", "posteriors", "given")
    reads = named or (not isinstance(source, type) and (hasattr(source, "predict_proba") or callable(source)))
    sources = "'auto', 'network', 'posteriors', 'given', a classifier with predict_proba, or a callable on prefixes"
    for name, holds, rule in (
        ("evidence", reads, f"be {sources}"),
        ("method", _one_of(wanted.method, "auto", "cfl", "gp"), "be 'auto', 'cfl' or 'gp'"),
        ("missing", _one_of(wanted.missing, *get_args(Missing)), f"be one of {get_args(Missing)}"),
        ("refine", _one_of(wanted.refine, *get_args(Refine)), f"be one of {get_args(Refine)}"),
        ("refinement", isinstance(wanted.refinement, RefinementOptions | None), "be RefinementOptions, or None"),
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
        if not (is_real(share) and least <= share < 0.5):
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


def usual_method(classes: int, options: Options | None) -> Method:
    """What the options are for; else convex functions for two classes, and processes, which are quicker, for more."""
    if options is not None:
        return "gp" if isinstance(options, ProcessOptions) else "cfl"
    return "cfl" if classes == 2 else "gp"


@dataclass(frozen=True)
class Lesson:
    """What a reader learns from: series with labels, in two parts, and the prior that is believed in."""

    series: Series
    labels: Ints
    train: Ints
    valid: Ints
    prior: Floats

    @cached_property
    def seen(self) -> Ints:
        """Training and validation sequences: what rules are fitted on."""
        return np.concatenate([self.train, self.valid])

    @cached_property
    def shares(self) -> Floats:
        return np.asarray(np.bincount(self.labels[self.seen]) / len(self.seen))


def learn_evidence(
    wanted: EarlyClassifier, lesson: Lesson, progress: Progress | None
) -> tuple[EvidenceReader, NDArray[Any], str]:
    """The reader, evidence (m, T, K) of the sequences seen, to fit the rules on, and why this reader."""
    series, source = lesson.series, wanted.evidence
    if series.observations.min() < 1:
        got = f"one in which all are missing up to the horizon, {series.horizon}"
        raise InvalidInput("X", "have an observation at least in every series", got)
    why = "asked for"
    if isinstance(source, str) and source == "auto":
        source, network, why = _better_source(wanted, lesson, progress)
        if network is not None:
            return network, _read(network, series.take(lesson.seen)), why
    if hasattr(source, "predict_proba"):
        return *_fit_prefixes(wanted, lesson, source), why
    if isinstance(source, str) and source == "network":
        reader: EvidenceReader = _train_network(wanted, lesson, progress)
    elif isinstance(source, str):
        if series.dimension != len(lesson.prior):
            rule = f"hold {len(lesson.prior)} numbers a step, one a class"
            raise InvalidInput("X", rule, f"shape {series.values.shape}")
        reader = BeliefReader("given" if source == "given" else "posteriors", lesson.shares)
    else:
        reader = PrefixFunction(
            source,
            dimension=series.dimension,
            shares=lesson.shares,
            horizon=series.horizon,
            checkpoints=wanted.checkpoints,
        )
    return reader, _read(reader, series.take(lesson.seen)), why


def learn_refinement(
    wanted: EarlyClassifier, lesson: Lesson, reader: EvidenceReader, evidence: NDArray[Any], fit: FitRule
) -> tuple[EvidenceReader, NDArray[Any], StoppingRule, str]:
    """Reader, evidence of the sequences seen and rule, with refinement where it pays or was asked for, and why.

    A network knows its training sequences too well: its evidence is refined, and judged, on validation sequences.
    """
    rule = fit(evidence)
    seen = lesson.series.take(lesson.seen)
    rows = np.arange(len(lesson.train) if reads_by_network(reader) else 0, len(lesson.seen))
    labels, part = lesson.labels[lesson.seen[rows]], seen.take(rows)
    options = wanted.refinement or RefinementOptions(seed=wanted.seed)
    few = too_few(labels, len(lesson.prior), options)
    if wanted.refine == "never" or (wanted.refine == "auto" and few):
        return reader, evidence, rule, "asked for" if wanted.refine == "never" else few
    given, hears = seen.gathered(evidence), options.inputs == "features"
    refiner, honest = fit_refiner(
        given[rows],
        labels,
        lengths=part.observations,
        features=part.values if hears else None,
        options=options,
    )
    found = refiner.refine(given, seen.values if hears else None)
    found[rows] = honest
    refined = seen.spread(found)
    better = fit(refined)
    choice = compare(
        Contestant(rule, evidence[rows]), Contestant(better, refined[rows]), labels, part.lengths, wanted.refine
    )
    if not choice.refined:
        return reader, evidence, rule, choice.why
    if choice.temperature > 1.0:
        refiner, refined = refiner.cooled(choice.temperature), refined / np.float32(choice.temperature)
        better = fit(refined)
    return RefinedReader(reader, refiner), refined, better, choice.why


def reads_by_network(reader: EvidenceReader) -> bool:
    """Whether training sequences were used to learn the reader as they are; others are cross-fitted or not learned."""
    return not isinstance(reader, BeliefReader | PrefixClassifiers | PrefixFunction)


def _read(reader: EvidenceReader, series: Series) -> NDArray[Any]:
    return series.spread(reader.evidence(series.values))


def _better_source(
    wanted: EarlyClassifier, lesson: Lesson, progress: Progress | None
) -> tuple[Any, EvidenceReader | None, str]:
    """A trained network, or logistic regressions of prefixes where those are quick, as validation data speak for."""
    series = lesson.series
    network = _train_network(wanted, lesson, progress)
    if wanted.network is not None or wanted.training is not None:
        return None, network, "a network, whose options were given"
    work = len(lesson.train) * series.horizon**2 * series.dimension * len(lesson.prior)
    few = min(np.bincount(lesson.labels[lesson.train])) < 2 or series.lengths[lesson.train].max() < series.horizon
    if few or work > QUICK_WORK:
        return None, network, "a network: logistic regressions of prefixes would take long, or have too few sequences"
    plain = _logistic_regression()
    part = series.take(lesson.train)
    prefixes = _classifiers(wanted, lesson, plain, lesson.train)
    honest = part.spread(prefixes.fit(part.values, lesson.labels[lesson.train], part.observations))
    risks = [
        _risk(wanted, lesson, reader, evidence)
        for reader, evidence in ((prefixes, honest), (network, _read(network, part)))
    ]
    said = f"risk on validation data {risks[0]:.4g} by logistic regressions of prefixes, {risks[1]:.4g} by a network"
    return (plain, None, said) if risks[0] < risks[1] else (None, network, said)


def _logistic_regression() -> Any:
    from sklearn.linear_model import LogisticRegression  # what takes long to import, deciding does not wait for
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000, C=0.1))


def _risk(wanted: EarlyClassifier, lesson: Lesson, reader: EvidenceReader, evidence: NDArray[Any]) -> float:
    """What decisions on validation sequences cost, by a rule that was fitted on evidence of training sequences."""
    rule = fit_stopping_rule(
        evidence,
        lengths=lesson.series.lengths[lesson.train],
        costs=[wanted.cost],
        penalty=wanted.penalty,
        prior=lesson.prior,
        method=usual_method(len(lesson.prior), None),
        seed=wanted.seed,
    )
    unseen, truth = lesson.series.take(lesson.valid), lesson.labels[lesson.valid]
    chosen = rule.decide(_read(reader, unseen), lengths=unseen.lengths)
    return float(realised_risk(chosen, truth, rule.problem, float(wanted.cost)).mean())


def _classifiers(wanted: EarlyClassifier, lesson: Lesson, source: Any, rows: Ints) -> PrefixClassifiers:
    folds = min(FOLDS, int(np.bincount(lesson.labels[rows]).min()))
    return PrefixClassifiers(
        source,
        len(lesson.prior),
        checkpoints=wanted.checkpoints,
        prior=lesson.prior,
        folds=folds,
        seed=wanted.seed,
    )


def _fit_prefixes(wanted: EarlyClassifier, lesson: Lesson, source: Any) -> tuple[EvidenceReader, NDArray[Any]]:
    """Rules are fitted on what classifiers of other folds say."""
    part, fitted = lesson.series.take(lesson.seen), _classifiers(wanted, lesson, source, lesson.seen)
    return fitted, part.spread(fitted.fit(part.values, lesson.labels[lesson.seen], part.observations))


def _train_network(wanted: EarlyClassifier, lesson: Lesson, progress: Progress | None) -> EvidenceReader:
    """Features are standardised for the training; the network that comes out reads them as they are."""
    from firmbound.tandem.model import fit_tandem  # torch, which other readers do not wait for

    series, train, valid = lesson.series, lesson.train, lesson.valid
    scaling = Moments.of(series.values[train], series.observations[train]).scaling()
    values = scaling(series.values)
    model = fit_tandem(
        values[train],
        lesson.labels[train],
        lengths=series.observations[train],
        validation=(values[valid], lesson.labels[valid], series.observations[valid]),
        prior=lesson.prior,
        network=wanted.network or NetworkOptions(order=min(series.horizon - 1, USUAL_ORDER)),
        training=wanted.training or usual_training(len(train), wanted.seed),
        progress=progress,
    )
    return model.reading(scaling.mean, scaling.scale)


def usual_training(sequences: int, seed: int) -> TrainingOptions:
    """Enough steps for few sequences, small batches where there are few."""
    batch = min(max(16, sequences // 25), 200, sequences)
    epochs = min(max(15, -(-USUAL_STEPS * batch // sequences)), 100)
    return TrainingOptions(learning_rate=3e-3, batch=batch, epochs=epochs, patience=max(5, epochs // 5), seed=seed)
