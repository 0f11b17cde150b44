"""One repeat of a study on one data set: what all methods share, and what each of them left behind."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from firmbound.arrays import Floats, Ints
from firmbound.baselines.rival import FittedRival, OperatingPoint, Rival, ends_of
from firmbound.costs import DecisionProblem
from firmbound.trajectories import Batch, Decisions

# Whole sequences that are decided one by one, to see how long one takes.
ALONE = 40


@dataclass(frozen=True)
class Contest:
    """Labelled sequences with features, evidence or both; the problem has all costs that are studied.

    fit_on: the split that stopping rules are fitted on. `seed` is the repeat's. rows (n,): names of the test sequences,
    the same in every repeat where the sequences are. learned: whether a network learned the evidence from the training
    sequences, and evidence_seconds, what that took. known: whether it knows those whose evidence is here too well.
    """

    train: Batch
    validation: Batch
    test: Batch
    prior: Floats
    problem: DecisionProblem
    seed: int
    rows: Ints
    fit_on: Literal["train", "validation"] = "train"
    learned: bool = False
    known: bool = False
    evidence_seconds: float = 0.0

    @property
    def lesson(self) -> Batch:
        """What stopping rules are fitted on."""
        return self.train if self.fit_on == "train" else self.validation


@dataclass(frozen=True)
class Outcome:
    """Of one method: S ways to decide on n test sequences, and on validation sequences what they led to.

    settings (S,); time, label (S, n); expected (S, n): the penalty that it believed to risk, nan where it believes
    nothing. paid_before (S, C): realised risk on validation sequences at each cost, by which ways are chosen.
    seconds: of learning; alone (m,): of deciding on a whole sequence alone, in one way; steps (m,): of observations.
    """

    settings: Floats
    time: NDArray[np.int16]
    label: NDArray[np.int16]
    expected: NDArray[np.float32]
    paid_before: Floats
    seconds: float
    alone: Floats
    steps: Floats
    horizon: int

    def decisions(self, place: int) -> Decisions:
        return Decisions(self.time[place], self.label[place], self.horizon)

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        numbers = np.array([self.seconds, float(self.horizon)])
        named = ("settings", "time", "label", "expected", "paid_before", "alone", "steps")
        return {name: getattr(self, name) for name in named} | {"numbers": numbers}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Outcome:
        own = {name: part for name, part in arrays.items() if name != "numbers"}
        return cls(**own, seconds=float(arrays["numbers"][0]), horizon=int(arrays["numbers"][1]))


def enter(method: Rival, contest: Contest, before: float = 0.0) -> Outcome:
    """Learn, decide on validation and test sequences, and keep what came of it. before: seconds learned already."""
    started = time.perf_counter()
    fitted = method.fit(contest.train, contest.validation, seed=contest.seed)
    return outcome_of(fitted, contest, before + time.perf_counter() - started)


def outcome_of(fitted: FittedRival, contest: Contest, seconds: float) -> Outcome:
    problem = contest.problem
    before, after = (fitted.points(batch) for batch in (contest.validation, contest.test))
    return Outcome(
        settings=np.array([point.setting for point in after]),
        time=np.stack([point.decisions.time for point in after]).astype(np.int16),
        label=np.stack([point.decisions.label for point in after]).astype(np.int16),
        expected=np.stack([expected_penalty(point, problem) for point in after]),
        paid_before=np.stack([paid_at_costs(point.decisions, contest.validation, problem) for point in before]),
        seconds=seconds,
        alone=_alone(fitted, len(after) // 2, contest.test),
        steps=ends_of(contest.test, problem.horizon)[:ALONE].astype(np.float64),
        horizon=problem.horizon,
    )


def expected_penalty(point: OperatingPoint, problem: DecisionProblem) -> NDArray[np.float32]:
    """(n,) penalties that the method believed its decisions to risk."""
    if point.belief is None:
        return np.full(len(point.decisions), np.nan, dtype=np.float32)
    penalties = problem.penalty[:, point.decisions.label].T
    return np.asarray((point.belief * penalties).sum(axis=1), dtype=np.float32)


def in_hindsight(outcome: Outcome, contest: Contest) -> Outcome:
    """As if the test sequences had chosen between ways: what nobody can have, and nobody can beat by luck of choice."""
    ways = [outcome.decisions(place) for place in range(len(outcome.settings))]
    return replace(outcome, paid_before=np.stack([paid_at_costs(one, contest.test, contest.problem) for one in ways]))


def paid_at_costs(decisions: Decisions, batch: Batch, problem: DecisionProblem) -> Floats:
    """(C,) mean realised risk at each cost."""
    wrong = float(problem.penalty[batch.labels, decisions.label].mean())
    return np.array([wrong + float(problem.spent(decisions.time, cost).mean()) for cost in problem.costs.tolist()])


def _alone(fitted: FittedRival, way: int, test: Batch) -> Floats:
    """Seconds that a whole sequence takes, one at a time."""
    taken = []
    for row in range(min(ALONE, len(test.labels))):
        one = test.part(slice(row, row + 1))
        started = time.perf_counter()
        fitted.points(one, only=way)
        taken.append(time.perf_counter() - started)
    return np.array(taken)


def chosen_ways(outcome: Outcome, costs: Sequence[float]) -> list[int]:
    """For each cost, the way that paid least on validation sequences; of a front, the rule of that cost."""
    if np.array_equal(outcome.settings, costs):
        return list(range(len(costs)))
    return [int(np.argmin(outcome.paid_before[:, place])) for place in range(len(costs))]
