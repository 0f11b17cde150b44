"""A refiner from labelled sequences, and the refined evidence of those sequences that never saw its own labels.

Readouts are learned walking forward in time: each starts from the one before, and of the past only the listener's
state is kept. Neighbouring steps need almost the same weights, of columns that have mean 0 and deviation 1 at each of
them, so weights are learned at some steps and lie on a line between. The sequences lie in folds; those of a fold are
refined by readouts of the others. The refiner that is handed back has the mean of the folds' weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import threadpool_limits

from firmbound.arrays import Bools, Floats, Ints, check_lengths, class_labels, finite_array
from firmbound.errors import InvalidInput
from firmbound.folds import fold_numbers
from firmbound.refinement.echo import Singles
from firmbound.refinement.listener import Listener, bounded, create_listener, over_classes
from firmbound.refinement.options import RIDGES, RefinementOptions
from firmbound.refinement.readout import Readout, ReadoutProblem, losses, refined, untouched
from firmbound.refinement.refiner import Refiner
from firmbound.scaling import Moments
from firmbound.series import ENOUGH
from firmbound.trajectories import check_evidence

# Steps at which readouts are learned, at most; steps and sequences by which the ridge is chosen.
KNOTS, PILOTS, PILOT_SEQUENCES = 18, 4, 5_000
# Sequences that are enough for the mean and deviation of a column.
FRAME_SEQUENCES = 5_000
Progress = Callable[[int, int], None]


class Step(NamedTuple):
    """time: steps so far. rows (m,): who is still there. evidence (m, K) now, columns (m, p): of all before."""

    time: int
    rows: Ints
    evidence: NDArray[Any]
    columns: Singles


class Frame(NamedTuple):
    """Mean and deviation (p,) of the columns at a step; infinite for what does not vary: it then counts for nothing."""

    centre: Singles
    spread: Singles

    def even(self, columns: Singles) -> Singles:
        """(m, p) -> (m, p) with mean 0 and deviation 1."""
        return np.asarray((columns - self.centre) / self.spread)

    def as_they_come(self, found: Readout) -> Readout:
        """For columns as they come, a readout of even ones."""
        weights = found.weights / self.spread[:, None]
        weights[0] -= self.centre @ weights
        return Readout(found.scale, weights)


def fit_refiner(
    evidence: ArrayLike,
    labels: ArrayLike,
    *,
    lengths: ArrayLike | None = None,
    features: ArrayLike | None = None,
    options: RefinementOptions | None = None,
    progress: Progress | None = None,
) -> tuple[Refiner, NDArray[np.float32]]:
    """Learn from evidence (n, T, K) and labels (n,) what evidence and its past say of the class.

    Hands back the refiner, for sequences to come, and the refined evidence of these, each by what the others taught: to
    fit a stopping rule on. features (n, T, d): where options ask for them.

    >>> refiner, honest = firmbound.fit_refiner(evidence, labels)
    >>> rule = firmbound.fit_stopping_rule(honest, costs=[0.02])
    >>> rule.decide(refiner.refine(new_evidence))
    """
    chosen = options or RefinementOptions()
    given = check_evidence(evidence)
    count, horizon, classes = given.shape
    known = class_labels("labels", labels, count=count, classes=classes)
    if len(np.unique(known)) < classes:
        raise InvalidInput("labels", f"hold every one of {classes} classes", np.unique(known).tolist()[:20])
    ends = check_lengths(lengths, count=count, horizon=horizon)
    if (chosen.inputs == "features") != (features is not None):
        rule = "be given" if features is None else "be left out"
        raise InvalidInput("features", f"{rule}, since options ask for {chosen.inputs}", type(features).__name__)
    beside = None
    if features is not None:
        beside = finite_array("features", features, ndim=3, shape_words=f"({count}, {horizon}, d)")
        if beside.shape[:2] != (count, horizon):
            raise InvalidInput("features", f"have shape ({count}, {horizon}, d)", f"shape {beside.shape}")
    # Folds are solved side by side. Many small products each on all cores would mostly wait for each other.
    with threadpool_limits(1, user_api="blas"):
        return cross_fit(given, known, ends, chosen, beside, progress)


def cross_fit(
    evidence: NDArray[Any],
    labels: Ints,
    lengths: Ints,
    options: RefinementOptions,
    features: NDArray[Any] | None = None,
    progress: Progress | None = None,
) -> tuple[Refiner, NDArray[np.float32]]:
    """The refiner, and refined evidence (n, T, K) of the sequences by readouts that did not see them."""
    count, horizon, classes = evidence.shape
    scaling = None if features is None else Moments.of(features, lengths).scaling()
    listener = create_listener(evidence, lengths, options.units, options.seed, scaling)
    shares = np.bincount(labels, minlength=classes) / count
    folds = options.folds_for(labels)
    learner = _Learner(labels, fold_numbers(labels, folds, options.seed), folds, np.log(shares))
    ridge = options.ridge or _chosen_ridge(learner, listener, evidence, features, lengths, options.seed)
    scales, weights = np.ones(horizon), np.zeros((horizon, listener.columns, classes), dtype=np.float32)
    honest = np.zeros(evidence.shape, dtype=np.float32)
    knots, waiting = set(knot_times(horizon).tolist()), list[tuple[Step, Frame]]()
    before: list[Readout] = []
    last = int(lengths.max())
    for step in walk(listener, evidence, features, lengths, learner.in_order(np.arange(count))):
        frame = learner.frame(step)
        waiting.append((step, frame))
        if step.time not in knots and step.time != last:
            continue
        found = learner.fit(step, frame, ridge)
        for late, between in _between(before or found, found, waiting):
            honest[late.rows, late.time - 1] = learner.apply(between, late)
            scales[late.time - 1] = np.mean([one.scale for one in between])
            weights[late.time - 1] = np.mean([one.weights for one in between], axis=0)
        before, waiting = found, []
        if progress is not None:
            progress(step.time, last)
    scales[last:], weights[last:] = scales[last - 1], weights[last - 1]
    return Refiner(listener, scales, weights, ridge), honest


def knot_times(horizon: int) -> Ints:
    """Every step of a few; else the first ones, then ever fewer, up to the last."""
    if horizon <= KNOTS:
        return np.arange(1, horizon + 1)
    return np.unique(np.round(np.linspace(1.0, np.sqrt(horizon), KNOTS) ** 2).astype(np.int64))


def _between(
    before: Sequence[Readout], found: Sequence[Readout], steps: Sequence[tuple[Step, Frame]]
) -> Iterator[tuple[Step, list[Readout]]]:
    """For steps after one knot up to the next: readouts of all folds, for columns as they come then.

    The line lies between weights of even columns: those of columns as they come may be huge where a column hardly
    varies, and what is right at two steps is then far off between them.
    """
    for place, (step, frame) in enumerate(steps, start=1):
        share = place / len(steps)
        lines = (
            Readout((1 - share) * a.scale + share * b.scale, (1 - share) * a.weights + share * b.weights)
            for a, b in zip(before, found, strict=True)
        )
        yield step, [frame.as_they_come(line) for line in lines]


def walk(
    listener: Listener,
    evidence: NDArray[Any],
    features: NDArray[Any] | None,
    lengths: Ints,
    rows: Ints,
) -> Iterator[Step]:
    """The sequences of `rows`, in that order, step by step."""
    past = listener.start(len(rows))
    for time in range(1, evidence.shape[1] + 1):
        stay = lengths[rows] >= time
        if not stay.all():
            rows, past = rows[stay], type(past)(*(part[stay] for part in past))
        if not len(rows):
            return
        now = bounded(evidence[rows, time - 1])
        past, columns = listener.hear(past, time, now, None if features is None else features[rows, time - 1])
        yield Step(time, rows, now, columns)


class _Learner:
    """Readouts of all folds at one time, each learned from the sequences that are not in it."""

    def __init__(self, labels: Ints, fold: Ints, folds: int, log_shares: Floats) -> None:
        self.labels, self.fold, self.folds, self.log_shares = labels, fold, folds, log_shares
        # As for a horizon (see `series`): fewer teach nothing.
        self.enough = min(ENOUGH, -(-len(labels) // 10))
        self.forget()

    def in_order(self, rows: Ints) -> Ints:
        """Fold after fold: those of a fold, and with two folds all others, are then neighbours that need no copy."""
        return np.asarray(rows[np.argsort(self.fold[rows], kind="stable")])

    def forget(self) -> None:
        """Start from nothing again."""
        self._frame: Frame | None = None
        self._found: list[Readout] = []

    def frame(self, step: Step) -> Frame:
        """Of the columns at this step; where too few sequences are left, that of the step before stays."""
        if self._frame is None or self._enough(step):
            some = step.columns[:: -(-len(step.rows) // FRAME_SEQUENCES)]
            centre, spread = some.mean(axis=0), some.std(axis=0)
            spread = np.where(spread > 1e-5, spread, np.inf).astype(np.float32)
            centre[0], spread[0] = 0.0, 1.0
            self._frame = Frame(centre, spread)
        return self._frame

    def _enough(self, step: Step) -> bool:
        return len(step.rows) >= self.enough and len(np.unique(self.fold[step.rows])) > 1

    def fit(self, step: Step, frame: Frame, ridge: float) -> list[Readout]:
        """Readouts of even columns. Where too few sequences are left, what was learned before them stays."""
        if self._found and not self._enough(step):
            return self._found
        _, rows, now, columns = step
        even = frame.even(columns)

        def solve(fold: int) -> Readout:
            others = self._others(rows, fold)
            known = self.labels[rows[others]]
            if not len(known):
                return untouched(columns.shape[1], now.shape[1])
            problem = ReadoutProblem(now[others], even[others], known, self.log_shares)
            return problem.solve(ridge, self._found[fold] if self._found else None)

        with ThreadPoolExecutor(self.folds) as pool:
            self._found = list(pool.map(solve, range(self.folds)))
        return self._found

    def apply(self, found: Sequence[Readout], step: Step) -> NDArray[np.float32]:
        """Evidence of every sequence by the readout of its own fold."""
        honest = np.empty(step.evidence.shape, dtype=np.float32)
        for fold, one in enumerate(found):
            own = self._own(step.rows, fold)
            honest[own] = refined(step.evidence[own], step.columns[own], one)
        return np.asarray(honest - over_classes(np.maximum, honest))

    def _own(self, rows: Ints, fold: int) -> slice:
        """Of rows in order, those of a fold."""
        first, behind = np.searchsorted(self.fold[rows], [fold, fold + 1])
        return slice(int(first), int(behind))

    def _others(self, rows: Ints, fold: int) -> slice | Bools:
        """Of rows in order, those of all other folds."""
        own = self._own(rows, fold)
        if own.start == 0:
            return slice(own.stop, None)
        return slice(0, own.start) if own.stop == len(rows) else self.fold[rows] != fold


def _chosen_ridge(
    learner: _Learner,
    listener: Listener,
    evidence: NDArray[Any],
    features: NDArray[Any] | None,
    lengths: Ints,
    seed: int,
) -> float:
    """The ridge under which held-out labels are likeliest, at a few times together; looked for from the middle on."""
    times = np.linspace(lengths.max() / PILOTS, lengths.max(), PILOTS).round().astype(int).tolist()
    # By chance, not the first: sequences often come class by class.
    pilots = np.sort(np.random.default_rng(seed).permutation(len(evidence))[:PILOT_SEQUENCES])
    walked = walk(listener, evidence, features, lengths, learner.in_order(pilots))
    steps = [step for step in walked if step.time in times]
    found: dict[int, float] = {}

    def loss(place: int) -> float:
        if place not in found:
            found[place] = 0.0
            for step in steps:
                frame = learner.frame(step)
                fitted = [frame.as_they_come(one) for one in learner.fit(step, frame, RIDGES[place])]
                honest = learner.apply(fitted, step)
                found[place] += float(losses(honest, learner.labels[step.rows], learner.log_shares).sum())
            learner.forget()
        return found[place]

    place = 1
    for direction in (1, -1):
        while 0 <= place + direction < len(RIDGES) and loss(place + direction) < loss(place):
            place += direction
    return RIDGES[place]
