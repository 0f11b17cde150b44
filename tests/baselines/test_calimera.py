"""CALIMERA: its recursion against one written by hand, its scores against other fits, and what any rule must not do."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("aeon")

from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import StratifiedKFold

from firmbound import InvalidInput
from firmbound.baselines.calimera import (
    Calimera,
    even_timestamps,
    fit_calibrator,
    fit_classifier,
    fit_waiting,
    stopping_places,
    time_left,
)
from firmbound.baselines.minirocket import class_scores
from firmbound.trajectories import Batch
from tests.baselines.test_minirocket import HALF, HORIZON, late_waves, with_lengths

PENALTIES = (0.05, 0.5, 3.0)
OPTIONS = Calimera(PENALTIES, kernels=168, timestamps=7)


def some_probabilities(seed, count, steps, classes):
    """Walks that become surer."""
    random = np.random.default_rng(seed)
    scores = random.normal(size=(count, steps, classes)).cumsum(axis=1)
    return np.exp(scores) / np.exp(scores).sum(axis=2, keepdims=True)


@pytest.fixture(scope="module")
def fitted():
    return OPTIONS.fit(late_waves(0), late_waves(1), seed=3)


@pytest.fixture(scope="module")
def points(fitted):
    return fitted.points(late_waves(2))


def kernel_ridge(learned, targets, asked):
    """min |f - targets|^2 + |f|^2 with the kernel exp(-|x - x'|^2 / columns), written out."""

    def kernel(left, right):
        return np.array([[np.exp(-np.sum((a - b) ** 2) / len(a)) for b in right] for a in left])

    weights = np.linalg.solve(kernel(learned, learned) + np.eye(len(learned)), targets)
    return kernel(asked, learned) @ weights


def recursion(probabilities, times, ends, horizon, penalty, asked, asked_ends):
    """Decision times of `asked` by the recursion as it is told: one sequence, one penalty, one step at a time."""

    def inputs(p):
        ordered = sorted(p)
        return np.array([*p, ordered[-1], ordered[-1] - ordered[-2]])

    def cost(p, t, end):
        return 1 - max(p) + penalty * min(t, end) / horizon

    pay = {}
    for i, end in enumerate(ends):
        at = next(s for s, t in enumerate(times) if t >= end)
        pay[i] = cost(probabilities[i, at], times[at], end)
    decided = dict(enumerate(asked_ends))
    for s in range(len(times) - 2, -1, -1):
        going = [i for i, end in enumerate(ends) if end > times[s]]
        stop = {i: cost(probabilities[i, s], times[s], ends[i]) for i in going}
        learned = [inputs(probabilities[i, s]) for i in going]
        targets = np.array([pay[i] - stop[i] for i in going])
        for i, wait in zip(going, kernel_ridge(learned, targets, learned), strict=True):
            if not wait < 0:
                pay[i] = stop[i]
        new = [j for j, end in enumerate(asked_ends) if end > times[s]]
        waits = kernel_ridge(learned, targets, [inputs(asked[j, s]) for j in new])
        decided |= {j: times[s] for j, wait in zip(new, waits, strict=True) if not wait < 0}
    return [decided[j] for j in range(len(asked))]


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("uneven", [False, True])
def test_the_backward_pass_is_the_recursion_written_out(classes, uneven):
    times, horizon = np.array([2, 4, 6, 8, 9]), 9
    seen, new = some_probabilities(1, 25, 5, classes), some_probabilities(2, 40, 5, classes)
    random = np.random.default_rng(3)
    ends, new_ends = (random.integers(3, 10, n) if uneven else np.full(n, 9) for n in (25, 40))
    ends[0] = new_ends[0] = 9
    (spent, last), (_, new_last) = time_left(times, ends), time_left(times, new_ends)
    penalties = (0.0, 0.3, 1.0, 2.0)
    regressions = fit_waiting(seen, spent, last, penalties)
    places = stopping_places(regressions, new, new_last, len(penalties))
    found = np.minimum(times[places], new_ends[:, None])
    for p, penalty in enumerate(penalties):
        expected = recursion(seen, times, ends, horizon, penalty, new, new_ends)
        assert found[:, p].tolist() == expected
    # The comparison means something only if not everyone stops at the same place.
    assert len(np.unique(places)) >= 4


def test_everyone_waits_for_certainty_that_is_sure_to_come():
    random = np.random.default_rng(5)
    first = random.uniform(0.45, 0.55, size=(200, 1))
    guesses = np.concatenate([first, 1 - first], axis=1)
    certain = np.eye(2)[random.integers(0, 2, 200)]
    probabilities = np.stack([guesses, guesses, certain], axis=1)
    spent, last = np.tile(np.arange(1, 4) / 3, (200, 1)), np.full(200, 2)
    places = stopping_places(fit_waiting(probabilities, spent, last, (0.1, 5.0)), probabilities, last, 2)
    assert np.all(places[:, 0] == 2)
    assert np.all(places[:, 1] == 0)


def test_where_no_training_sequence_could_wait_nobody_does():
    seen, new = some_probabilities(1, 20, 3, 2), some_probabilities(2, 6, 3, 2)
    regressions = fit_waiting(seen, np.full((20, 3), 0.5), np.zeros(20, dtype=int), (0.0,))
    assert regressions == [None, None]
    assert np.all(stopping_places(regressions, new, np.full(6, 2), 1) == 0)


@pytest.mark.parametrize("classes", [2, 3])
def test_training_sequences_are_scored_by_classifiers_that_did_not_see_them(classes):
    """As many features as sequences: a classifier is right about whatever it was fitted on, and about nothing else."""
    labels = np.arange(150) % classes
    noise = np.random.default_rng(6).normal(size=(150, 150)).astype(np.float32)
    ridge, scores = fit_classifier(noise, labels, classes, (1e-3,), 0)
    assert scores.shape == (150, 1 if classes == 2 else classes)
    assert np.mean(class_scores(ridge, noise).argmax(axis=1) == labels) == 1
    guessed = scores.argmax(axis=1) if classes == 3 else scores[:, 0] > 0
    assert abs(np.mean(guessed == labels) - 1 / classes) < 0.12
    # Each score is that of a classifier of four fifths, among which the sequence is not.
    for others, own in StratifiedKFold(5, shuffle=True, random_state=0).split(noise, labels):
        alone = RidgeClassifier(alpha=1e-3).fit(noise[others].astype(np.float64), labels[others])
        assert np.allclose(alone.decision_function(noise[own]).reshape(len(own), -1), scores[own])


@pytest.mark.parametrize("alpha", [1e-3, 1.0, 1e3, 1e6])
def test_of_noise_nobody_is_sure(alpha):
    """Leave-one-out scores would fail here: strong penalties leave little but the mean of the others, which leans to
    the other class, and a sigmoid of negative slope makes certainty of it."""
    labels = np.arange(200) % 2
    noise = np.random.default_rng(9).normal(size=(200, 50)).astype(np.float32)
    _, scores = fit_classifier(noise, labels, 2, (alpha,), 0)
    found = fit_calibrator(scores, labels, 2).predict_proba(scores)
    assert found.max(axis=1).mean() < 0.57
    assert np.mean(found.argmax(axis=1) == labels) < 0.6


def test_the_ridge_penalty_follows_the_data():
    """With two classes too, where scikit-learn's choice by accuracy would keep the first."""
    noise = np.random.default_rng(10).normal(size=(100, 60)).astype(np.float32)
    alphas = (1e-3, 1e3)
    told, untold = (noise[:, 0] > 0).astype(int), np.arange(100) % 2
    assert fit_classifier(noise[:, :3], told, 2, alphas, 0)[0].alpha == alphas[0]
    assert fit_classifier(noise, untold, 2, alphas, 0)[0].alpha == alphas[1]


def test_calibration_finds_the_chances_that_made_the_labels():
    random = np.random.default_rng(7)
    scores = random.normal(size=(20_000, 1))
    chances = 1 / (1 + np.exp(-(3 * scores[:, 0] - 0.5)))
    labels = (random.uniform(size=20_000) < chances).astype(int)
    found = fit_calibrator(scores, labels, 2).predict_proba(scores)
    assert np.abs(found[:, 1] - chances).max() < 0.03
    three = fit_calibrator(random.normal(size=(60, 3)), np.arange(60) % 3, 3).predict_proba(np.eye(3))
    assert np.allclose(three.sum(axis=1), 1)


def test_timestamps_are_those_of_the_paper():
    for horizon, step in ((1, 1), (8, 1), (39, 2), (100, 5), (500, 26)):
        assert even_timestamps(horizon, 20).tolist() == [*range(step, horizon, step), horizon]


def test_it_learns_and_waits_for_what_can_be_learned(points):
    labels = late_waves(2).labels
    assert [point.setting for point in points] == list(PENALTIES)
    patient = points[0].decisions
    assert np.mean(patient.label == labels) > 0.9
    assert np.all(patient.time > HALF)
    assert np.mean(points[-1].decisions.label == labels) < 0.7


def test_larger_delay_penalties_decide_no_later(points):
    times = [point.decisions.time.mean() for point in points]
    assert times == sorted(times, reverse=True)
    assert times[0] > times[-1]


def test_beliefs_are_those_of_the_decision(points, fitted):
    test = late_waves(2)
    for point in points:
        assert point.belief.shape == (80, 2)
        assert np.allclose(point.belief.sum(axis=1), 1)
        assert np.array_equal(point.belief.argmax(axis=1), point.decisions.label)
        assert set(point.decisions.time) <= set(fitted.timestamps)
    late = points[0].decisions.time == HORIZON
    assert np.array_equal(points[0].belief[late], fitted.steps[-1].probabilities(test)[late])


def test_the_future_changes_no_decision(fitted, points):
    test = late_waves(2)
    for t in (5, 15, 20, 25):
        changed = test.features.copy()
        changed[:, t:] = 100 * np.random.default_rng(t).normal(size=changed[:, t:].shape)
        for before, after in zip(points, fitted.points(replace(test, features=changed)), strict=True):
            early = before.decisions.time <= t
            assert np.array_equal(after.decisions.time <= t, early)
            assert np.array_equal(after.decisions.time[early], before.decisions.time[early])
            assert np.array_equal(after.belief[early], before.belief[early])


def test_what_stands_after_an_end_is_never_seen_and_ends_are_kept():
    parts = [with_lengths(late_waves(seed), seed) for seed in (0, 1, 2)]
    overwritten = []
    for part in parts:
        features = part.features.copy()
        features[np.arange(HORIZON) >= part.lengths[:, None]] = -1e4
        overwritten.append(replace(part, features=features))
    found = [OPTIONS.fit(train, validation, seed=3).points(test) for train, validation, test in (parts, overwritten)]
    for first, second in zip(*found, strict=True):
        assert np.array_equal(first.decisions.time, second.decisions.time)
        assert np.array_equal(first.belief, second.belief)
        assert np.all(first.decisions.time <= parts[2].lengths)


def test_sequences_that_end_between_timestamps_are_decided_by_the_next_classifier(fitted):
    test = replace(late_waves(2), lengths=np.full(80, HORIZON - 1))
    point = fitted.points(test)[0]
    at_end = point.decisions.time == HORIZON - 1
    assert at_end.any()
    assert not np.any(point.decisions.time == HORIZON)
    assert np.array_equal(point.belief[at_end], fitted.steps[-1].probabilities(test)[at_end])
    shorter = replace(test, lengths=np.full(80, 3))
    assert fitted.timestamps[0] == 5
    for point in fitted.points(shorter):
        assert np.all(point.decisions.time == 3)
        assert np.array_equal(point.belief, fitted.steps[0].probabilities(shorter))
    # Two sequences at timestamps 2, 4 and 5: one ends at 3, where no more time passes.
    spent, last = time_left(np.array([2, 4, 5]), np.array([3, 5]))
    assert np.allclose(spent, [[0.4, 0.6, 0.6], [0.4, 0.8, 1.0]])
    assert last.tolist() == [1, 2]


def test_many_classes_at_a_short_horizon():
    random = np.random.default_rng(8)

    def steps(count):
        labels = np.arange(count) % 3
        slopes = np.array([-0.5, 0.0, 0.5])[labels, None] * np.arange(6)
        return Batch(labels, 3, features=(slopes + 0.5 * random.normal(size=(count, 6)))[:, :, None])

    test = steps(90)
    patient, hasty = Calimera((0.1, 2.0), kernels=168).fit(steps(120), steps(30), seed=0).points(test)
    assert np.mean(patient.decisions.label == test.labels) > 0.8
    assert hasty.decisions.time.mean() < patient.decisions.time.mean()


def test_penalties_together_are_each_alone(points):
    for penalty, point in zip(PENALTIES, points, strict=True):
        alone = replace(OPTIONS, delay_penalties=(penalty,)).fit(late_waves(0), late_waves(1), seed=3)
        assert np.array_equal(alone.points(late_waves(2))[0].decisions.time, point.decisions.time)


def test_new_sequences_are_decided_alike_in_parts(fitted, points, monkeypatch):
    monkeypatch.setattr("firmbound.baselines.calimera.TOGETHER", 7)
    for part, whole in zip(fitted.points(late_waves(2)), points, strict=True):
        assert np.array_equal(part.decisions.time, whole.decisions.time)


def test_the_seed_decides(points):
    again, other = (OPTIONS.fit(late_waves(0), late_waves(1), seed=s).points(late_waves(2)) for s in (3, 4))
    for one, same, differs in zip(points, again, other, strict=True):
        assert np.array_equal(one.belief, same.belief)
        assert np.array_equal(one.decisions.time, same.decisions.time)
        assert not np.array_equal(one.belief, differs.belief)


def test_few_sequences_for_the_regressions_are_few():
    fitted = replace(OPTIONS, most=20).fit(late_waves(0), late_waves(1), seed=3)
    assert {len(regression.dual_coef_) for regression in fitted.regressions} == {20}
    assert np.mean(fitted.points(late_waves(2))[0].decisions.label == late_waves(2).labels) > 0.8


def test_bad_input_is_refused(fitted):
    bad_penalties = ({"delay_penalties": ()}, {"delay_penalties": (-0.1,)}, {"alphas": (np.inf,)})
    for bad in (*bad_penalties, {"timestamps": 1}, {"most": 0}, {"kernels": 1}):
        with pytest.raises(InvalidInput, match=next(iter(bad))):
            Calimera(**bad)
    with pytest.raises(InvalidInput, match="as in fitting"):
        fitted.points(Batch(np.array([0, 1]), 2, features=np.zeros((2, 12, 1))))
    once = Batch((np.arange(30) == 0).astype(int), 2, features=late_waves(0).features[:30])
    with pytest.raises(InvalidInput, match="twice"):
        OPTIONS.fit(once, late_waves(1), seed=3)
    with pytest.raises(InvalidInput, match="every class"):
        OPTIONS.fit(replace(late_waves(0), classes=3), late_waves(1), seed=3)
