"""Repeats of a study, and how chance is judged by them.

Recorded data have the same test sequences in every repeat: a sequence counts once, with the mean over its repeats; and
no error is taken to be smaller than what repeats differ by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import stats

from firmbound.arrays import Floats, Ints
from firmbound.costs import DecisionProblem
from firmbound.evaluation.estimates import Estimate, mean_of
from firmbound.evaluation.matching import Curve, error_curve
from firmbound.study.contest import Outcome, chosen_ways
from firmbound.study.table import paid
from firmbound.trajectories import Decisions


@dataclass(frozen=True)
class Repeat:
    """One repeat on one data set: the truth, the problem, and every method's outcome.

    rows (n,): names of the test sequences; those of recorded data are the same in every repeat. failed: of groups of
    methods that could not learn, why.
    """

    dataset: str
    repeat: int
    labels: Ints
    rows: Ints
    problem: DecisionProblem
    outcomes: Mapping[str, Outcome]
    failed: Mapping[str, str] = field(default_factory=dict)

    def paid(self, method: str, index: int) -> Floats:
        """(n,) what the method pays at a cost."""
        outcome, costs = self.outcomes[method], self.problem.costs.tolist()
        way = chosen_ways(outcome, costs)[index]
        return paid(outcome, way, self.labels, self.problem, costs[index])

    def believed(self, method: str, index: int) -> Floats:
        """(n,) what it believes to pay; nan where it believes nothing."""
        outcome, costs = self.outcomes[method], self.problem.costs.tolist()
        way = chosen_ways(outcome, costs)[index]
        spent = self.problem.spent(outcome.time[way], costs[index])
        return np.asarray(outcome.expected[way].astype(np.float64) + spent)

    def ways(self, method: str) -> list[Decisions]:
        outcome = self.outcomes[method]
        return [outcome.decisions(place) for place in range(len(outcome.settings))]

    def curve(self, method: str) -> Curve:
        return error_curve(self.ways(method), self.labels, self.problem.classes)


def over_repeats(differences: Sequence[Floats], rows: Sequence[Ints]) -> Estimate:
    """Mean of differences, an array a repeat; its error is that over different sequences, or that over repeats."""
    names, place = np.unique(np.concatenate(rows), return_inverse=True)
    every = np.concatenate(differences)
    by_sequence = np.bincount(place, every) / np.bincount(place)
    mean = float(np.mean([one.mean() for one in differences]))
    error = mean_of(by_sequence).standard_error if len(names) > 1 else 0.0
    if len(differences) > 1:
        error = max(error, mean_of(np.array([one.mean() for one in differences])).standard_error)
    return Estimate(mean, error)


def two_sided(found: Estimate) -> float:
    """Chance of a mean so far from 0 by its standard error, if it were 0."""
    if found.value == 0:
        return 1.0
    return float(2 * stats.norm.sf(abs(found.value) / found.standard_error)) if found.standard_error > 0 else 0.0


def by_dataset(repeats: Sequence[Repeat]) -> dict[str, list[Repeat]]:
    found: dict[str, list[Repeat]] = {}
    for one in repeats:
        found.setdefault(one.dataset, []).append(one)
    return found


def methods_of(repeats: Sequence[Repeat], *, without: Sequence[str] = ()) -> list[str]:
    """Those that took part; not all did in every repeat."""
    return sorted({method for one in repeats for method in one.outcomes} - set(without))


def having(repeats: Sequence[Repeat], *methods: str) -> list[Repeat]:
    """The repeats in which all of these took part."""
    return [one for one in repeats if set(methods) <= set(one.outcomes)]
