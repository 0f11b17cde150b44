"""A threshold on the largest posterior: its definition written out, and a grid that goes from the first to the last."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from firmbound import InvalidInput
from firmbound.baselines.probability_threshold import ThresholdOn, sweep, threshold_grid
from firmbound.posterior import softmax
from firmbound.trajectories import Batch

# Steps of 1/8 make ties and thresholds that are met exactly.
believed = arrays(np.float64, (6, 5, 3), elements=st.integers(0, 24).map(lambda n: n / 8)).map(softmax)
lengths = arrays(np.int64, 6, elements=st.integers(1, 5))


@given(believed, lengths, st.floats(0, 1.1))
def test_decisions_follow_the_definition(posteriors, ends, threshold):
    (decisions,) = sweep(posteriors, [threshold], ends)
    for sequence, end, time, label in zip(posteriors, ends, decisions.time, decisions.label, strict=True):
        for t in range(1, end + 1):
            if sequence[t - 1].max() >= threshold:
                break
        assert time == t
        assert sequence[t - 1][label] == sequence[t - 1].max()


@given(believed, lengths)
def test_higher_thresholds_wait_longer(posteriors, ends):
    times = [decisions.time for decisions in sweep(posteriors, [0.0, 0.4, 0.6, 0.9, 1.1], ends)]
    assert np.all(times[0] == 1)
    assert np.array_equal(times[-1], ends)
    for earlier, later in pairwise(times):
        assert np.all(earlier <= later)


@given(believed, lengths, st.floats(0, 1.1))
def test_what_stands_after_an_end_means_nothing(posteriors, ends, threshold):
    other = posteriors.copy()
    other[np.arange(5) >= ends[:, None]] = [1.0, 0.0, 0.0]
    for one, two in zip(sweep(posteriors, [threshold], ends), sweep(other, [threshold], ends), strict=True):
        assert np.array_equal(one.time, two.time)
        assert np.array_equal(one.label, two.label)
    assert np.array_equal(threshold_grid(posteriors, ends), threshold_grid(other, ends))


def growing_posteriors(random, count=400, horizon=20):
    """Posteriors of a Gaussian problem, in the precision that networks have."""
    labels = random.integers(0, 3, count)
    steps = random.normal(size=(count, horizon, 3)) * 0.6 + 0.36 * np.eye(3)[labels][:, None]
    return softmax(np.cumsum(steps, axis=1)).astype(np.float32), labels


def test_the_grid_goes_from_the_first_observation_to_the_last(random):
    posteriors, _ = growing_posteriors(random)
    ends = random.integers(10, 21, len(posteriors))
    grid = threshold_grid(posteriors, ends, count=40)
    assert len(grid) <= 40
    assert np.all(np.diff(grid) > 0)
    times = np.array([decisions.time for decisions in sweep(posteriors, grid, ends)])
    assert np.all(times[0] == 1)
    assert np.mean(times[-1] == ends) > 0.99
    # No step of the mean time is so large that a curve through the points would be a guess.
    assert np.diff(times.mean(axis=1)).max() < ends.mean() / 8


def test_thresholds_that_are_no_numbers_are_refused(random):
    posteriors, _ = growing_posteriors(random, 10)
    for bad in (np.nan, np.inf):
        with pytest.raises(InvalidInput, match="finite"):
            sweep(posteriors, [0.5, bad], np.full(10, 20))


@dataclass(frozen=True)
class Handed:
    """A learner and its model: features are the posteriors."""

    def fit(self, train, validation, *, seed):
        assert seed == 5
        return self

    def posteriors(self, batch):
        return batch.features


def test_a_learner_with_a_threshold_is_a_rival(random):
    posteriors, labels = growing_posteriors(random)
    train, validation, test = (Batch(labels[i::3], 3, posteriors[i::3]) for i in range(3))
    fitted = ThresholdOn(Handed(), count=15).fit(train, validation, seed=5)
    points = fitted.points(test)
    ends = np.full(len(validation.labels), 20)
    assert [point.setting for point in points] == threshold_grid(validation.features, ends, 15).tolist()
    for point in points:
        time, label = point.decisions.time, point.decisions.label
        assert np.array_equal(point.belief, test.features[np.arange(len(time)), time - 1].astype(np.float64))
        assert np.array_equal(label, point.belief.argmax(axis=1))
        assert np.all((point.belief.max(axis=1) >= point.setting) | (time == 20))
    errors = [np.mean(point.decisions.label != test.labels) for point in points]
    assert errors[-1] < errors[0] - 0.2


def test_sequences_are_decided_at_their_ends(random):
    posteriors, labels = growing_posteriors(random, 60)
    ends = random.integers(1, 21, 60)
    batch = Batch(labels, 3, posteriors, lengths=ends)
    for point in ThresholdOn(Handed()).fit(batch, batch, seed=5).points(batch):
        assert np.all(point.decisions.time <= ends)
