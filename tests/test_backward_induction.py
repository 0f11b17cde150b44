"""The heart, with an estimator that makes no error, against a dynamic programme written down by hand."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import comb

import numpy as np
import pytest

from firmbound.backward_induction import induce
from firmbound.costs import DecisionProblem
from firmbound.posterior import class_prior

T, RIGHT, COSTS = 4, 0.75, [0.3, 1.0]


@dataclass(frozen=True)
class ExactMeans:
    """Conditional means over rows with the same statistic: no estimation error on a finite problem."""

    values: Mapping[float, np.ndarray]
    kind = "exact"

    def __call__(self, statistic):
        return np.array([self.values[round(float(p), 9)] for p in statistic[:, 0]])

    def select(self, index):
        return ExactMeans({key: value[[index]] for key, value in self.values.items()})

    def arrays(self):
        return {}


@dataclass(frozen=True)
class ExactPrepared:
    keys: np.ndarray

    def fit(self, next_risk, later=None):
        return ExactMeans({float(key): next_risk[self.keys == key].mean(axis=0) for key in np.unique(self.keys)})


class ExactFitter:
    statistic = "posterior"

    def prepare(self, statistic):
        return ExactPrepared(np.round(statistic[:, 0], 9))


def coin_sequences():
    """Every sequence of T coin flips, repeated as often as its probability asks; class k shows k with chance 3/4."""
    rows = []
    for label, flips in product((0, 1), product((0, 1), repeat=T)):
        right = sum(flip == label for flip in flips)
        rows += [flips] * (3**right)
    steps = np.log(RIGHT / (1 - RIGHT)) / 2 * np.where(np.array(rows)[..., None] == np.array([0, 1]), 1.0, -1.0)
    return np.cumsum(steps, axis=1)


def by_hand(cost, penalty=10.0):
    """minimum[t][lead] and continuation[t][lead], lead = flips for class 1 less flips for class 0."""
    odds = RIGHT / (1 - RIGHT)

    def stop(lead):
        chance = odds**lead / (1 + odds**lead)
        return penalty * min(chance, 1 - chance)

    minimum = {T: {lead: stop(lead) for lead in range(-T, T + 1, 2)}}
    continuation = {}
    for t in range(T - 1, 0, -1):
        continuation[t] = {}
        for lead in range(-t, t + 1, 2):
            chance = odds**lead / (1 + odds**lead)
            up = chance * RIGHT + (1 - chance) * (1 - RIGHT)
            continuation[t][lead] = cost + up * minimum[t + 1][lead + 1] + (1 - up) * minimum[t + 1][lead - 1]
        minimum[t] = {lead: min(stop(lead), risk) for lead, risk in continuation[t].items()}
    return continuation


def test_the_example_is_what_it_says():
    evidence = coin_sequences()
    assert len(evidence) == 2 * sum(comb(T, k) * 3**k for k in range(T + 1))


@pytest.mark.parametrize("index", [0, 1])
def test_surfaces_equal_the_dynamic_programme(index):
    evidence = coin_sequences()
    problem = DecisionProblem.create(classes=2, horizon=T, penalty=10.0, costs=COSTS)
    surfaces = induce(lambda t: evidence[:, t - 1], class_prior(None, 2), problem, ExactFitter())
    expected = by_hand(COSTS[index])
    for t in range(1, T):
        for lead, risk in expected[t].items():
            chance = 1 / (1 + 3.0**lead)
            found = surfaces[t - 1](np.array([[chance, 1 - chance]]))[0, index] + problem.next_cost(t)[index]
            assert problem.scale * found == pytest.approx(risk, rel=1e-9)


def test_work_is_prepared_for_every_t_before_any_fit_and_fitted_backward():
    log = []

    class Recorder:
        def submit(self, name, work, *arguments):
            log.append(name)
            value = work(*[given.result() if hasattr(given, "result") else given for given in arguments])
            return type("Handle", (), {"result": staticmethod(lambda: value)})()

    evidence = coin_sequences()
    problem = DecisionProblem.create(classes=2, horizon=T, penalty=10.0, costs=COSTS)
    steps = []
    induce(
        lambda t: evidence[:, t - 1],
        class_prior(None, 2),
        problem,
        ExactFitter(),
        schedule=Recorder(),
        progress=lambda done, total: steps.append((done, total)),
    )
    assert sorted(log[:3]) == ["prepare t=1", "prepare t=2", "prepare t=3"]
    assert log[3:] == ["fit t=3", "fit t=2", "fit t=1"]
    assert steps == [(1, 3), (2, 3), (3, 3)]
