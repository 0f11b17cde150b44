"""Backward induction that keeps its steps on disk: the same surfaces, and after an end in the middle it goes on."""

import numpy as np
import pytest

from firmbound.costs import DecisionProblem
from firmbound.datasets import gaussian
from firmbound.fitting import fit_from_slices, make_fitter
from firmbound.posterior import class_prior
from firmbound.schedule import InOrder
from firmbound.steps_on_disk import OnDisk

COSTS = [0.1, 0.4]


class Stopped(Exception):
    """As if the process had ended."""


class EndsAt:
    """Work in order, until a step that never comes."""

    def __init__(self, name=None):
        self.name, self.done = name, []

    def submit(self, name, work, *arguments):
        if name == self.name:
            raise Stopped
        self.done.append(name)
        return InOrder().submit(name, work, *arguments)


def cases():
    yield "cfl", 2, None, None
    yield "cfl", 3, None, None
    yield "gp", 2, None, None
    yield "cfl", 2, "memory", None
    yield "cfl", 2, None, "unequal"


def fit(method, classes, statistic, ends, *, schedule=None, steps=None):
    drawn = gaussian(classes=classes, sequences=600, horizon=6, dimension=8, separation=0.8, seed=3)
    problem = DecisionProblem.create(classes=classes, horizon=6, penalty=10.0, costs=COSTS)
    prior = class_prior(None, classes)
    lengths = np.random.default_rng(0).integers(2, 7, size=600) if ends else None
    return fit_from_slices(
        lambda t: drawn.evidence[:, t - 1],
        prior,
        problem,
        make_fitter(method, problem, prior, statistic=statistic),
        lengths=lengths,
        schedule=schedule,
        steps=steps,
    )


def same(one, other):
    for ours, theirs in zip(one.surfaces, other.surfaces, strict=True):
        assert ours.kind == theirs.kind
        for name, array in ours.arrays().items():
            assert np.array_equal(array, theirs.arrays()[name]), name


@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_steps_on_disk_give_the_same_surfaces_to_the_bit(case, tmp_path):
    same(fit(*case), fit(*case, steps=OnDisk(tmp_path)))


@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_an_induction_that_ended_goes_on_from_its_last_finished_step(case, tmp_path):
    with pytest.raises(Stopped):
        fit(*case, schedule=EndsAt("fit t=2"), steps=OnDisk(tmp_path))
    going_on = EndsAt()
    rule = fit(*case, schedule=going_on, steps=OnDisk(tmp_path))
    assert going_on.done == ["prepare t=1", "prepare t=2", "fit t=2", "fit t=1"]
    same(fit(*case), rule)


def test_a_finished_induction_is_read_and_not_done_again(tmp_path):
    case = next(cases())
    first, again = fit(*case, steps=OnDisk(tmp_path)), EndsAt()
    same(first, fit(*case, schedule=again, steps=OnDisk(tmp_path)))
    assert again.done == []


@pytest.mark.parametrize("last", [4, 3, 2])
def test_a_damaged_step_is_made_again(tmp_path, last):
    case = next(cases())
    first = fit(*case, steps=OnDisk(tmp_path))
    with pytest.raises(Stopped):
        fit(*case, schedule=EndsAt(f"fit t={last - 1}"), steps=OnDisk(tmp_path / "other"))
    file = tmp_path / "other" / f"surface-{last}" / "arrays.safetensors"
    file.write_bytes(file.read_bytes()[:-8])
    again = EndsAt()
    same(first, fit(*case, schedule=again, steps=OnDisk(tmp_path / "other")))
    # What it was made of is gone, so all are made again.
    assert again.done[-5:] == ["fit t=5", "fit t=4", "fit t=3", "fit t=2", "fit t=1"]


def test_minimum_risks_are_kept_no_longer_than_needed(tmp_path):
    fit(*next(cases()), steps=OnDisk(tmp_path))
    assert [file.name for file in tmp_path.glob("minimum-*")] == ["minimum-1.npy"]
