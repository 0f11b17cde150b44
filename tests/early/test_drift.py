"""Drift: seldom seen where nothing changed, seen where something did, and said by its name."""

import numpy as np
import pytest

import firmbound
from firmbound.early.drift import compare, holm
from firmbound.early.front import Record
from firmbound.errors import InvalidInput

CLASSES = ["left", "right"]


def gaussian(sequences, seed, separation=0.6, prior=None):
    return firmbound.datasets.gaussian(2, sequences, 8, seed, dimension=2, separation=separation, prior=prior)


@pytest.fixture(scope="module")
def rule():
    return firmbound.fit_stopping_rule(gaussian(20_000, 1).evidence, costs=[0.2])


def record(rule, problem, evidence=None, labels=True):
    read = problem.evidence if evidence is None else evidence
    return Record.of(rule, read, truth=problem.labels if labels else None)


def test_false_alarms_are_as_seldom_as_promised(rule):
    """400 repetitions without any change: at a level of 10 %, at most so many alarms as chance allows."""
    everything = record(rule, gaussian(400 * 300, 2))
    alarms = 0
    for index in range(400):
        rows = np.arange(index * 300, (index + 1) * 300)
        part = Record(
            everything.time[:, rows], everything.label[:, rows], everything.confidence[:, rows], everything.truth[rows]
        )
        before, now = (
            Record(part.time[:, half], part.label[:, half], part.confidence[:, half], part.truth[half])
            for half in (slice(0, 200), slice(200, 300))
        )
        alarms += compare(before, now, CLASSES, level=0.1).found
    assert alarms <= 400 * 0.1 + 3 * np.sqrt(400 * 0.1 * 0.9)


def test_each_change_is_said_by_its_name(rule):
    before = record(rule, gaussian(2_000, 2))

    def changed(problem, **how):
        found = compare(before, record(rule, problem, **how), CLASSES)
        return {change.what for change in found.changes if change.changed}

    assert not changed(gaussian(2_000, 3))
    # A sensor that sees less: surer by its own model than it should be, so decisions fall later.
    dim = gaussian(2_000, 4, separation=0.3)
    assert "hitting time" in changed(dim, evidence=dim.evidence * 2)
    assert "error" in changed(dim, evidence=dim.evidence * 2)
    assert "error" not in changed(dim, evidence=dim.evidence * 2, labels=False)
    # One class comes far more often.
    assert changed(gaussian(2_000, 5, prior=[0.8, 0.2])) & {
        "share of decisions for left",
        "share of decisions for right",
    }
    # Labels that are swapped: nothing but the error can tell.
    same = gaussian(2_000, 6)
    swapped = record(rule, same)
    swapped = Record(swapped.time, swapped.label, swapped.confidence, 1 - swapped.truth)
    names = {change.what for change in compare(before, swapped, CLASSES).changes if change.changed}
    assert names == {"error"}


def test_holm_corrects_for_all_but_those_before():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])


def test_too_little_is_refused(rule):
    before, few = record(rule, gaussian(100, 2)), record(rule, gaussian(5, 3))
    with pytest.raises(InvalidInput, match="10 at least"):
        compare(before, few, CLASSES)
    with pytest.raises(InvalidInput, match="level"):
        compare(before, before, CLASSES, level=2.0)


def test_many_classes_of_which_some_are_rare(rule):
    """No class is expected often enough for its own column: counted together, and not an error."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 40, (2, 1, 60))
    times, sure = np.ones((1, 60), dtype=int), np.full((1, 60), 0.5)
    found = compare(Record(times, labels[0], sure, None), Record(times, labels[1], sure, None), list(range(40)))
    assert not found.found
    assert len(found.changes) == 3
