"""Ridge classifiers on MiniRocket features: they learn, they see no future, and ends of sequences are ends."""

import builtins
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("aeon")

from firmbound import InvalidInput
from firmbound.baselines import ridge
from firmbound.baselines.minirocket import (
    MiniRocketRidge,
    class_scores,
    fit_prefix_features,
    fit_sharpness,
    held_prefix,
    spread_timestamps,
)
from firmbound.baselines.probability_threshold import ThresholdOn
from firmbound.trajectories import Batch

HORIZON, HALF = 30, 15
OPTIONS = MiniRocketRidge(kernels=168, timestamps=6)


def late_waves(seed, classes=2, count=80, channels=1):
    """Noise, and from the sixteenth step on a wave whose period tells the class."""
    random = np.random.default_rng(seed)
    labels = random.permutation(np.arange(count) % classes)
    features = 0.4 * random.normal(size=(count, HORIZON, channels))
    steps = np.arange(HORIZON - HALF)
    phase = random.uniform(0, 2 * np.pi, size=(count, 1))
    periods = np.array([3.0, 6.0, 13.0])[labels, None]
    features[:, HALF:, 0] += np.sin(2 * np.pi * steps / periods + phase)
    return Batch(labels, classes, features=features)


def with_lengths(batch, seed=5):
    return replace(batch, lengths=np.random.default_rng(seed).integers(1, HORIZON + 1, len(batch.labels)))


@pytest.fixture(scope="module")
def model():
    return OPTIONS.fit(late_waves(0), late_waves(1), seed=3)


@pytest.fixture(scope="module")
def believed(model):
    return model.posteriors(late_waves(2))


def test_posteriors_are_posteriors(believed):
    assert believed.shape == (80, HORIZON, 2)
    assert believed.dtype == np.float32
    assert np.all(believed >= 0)
    assert np.allclose(believed.sum(axis=2), 1, atol=1e-6)


def test_it_learns_what_can_be_learned_and_nothing_else(believed):
    """Chance is 0.5: noise does not beat it by more than luck would; the waves are told apart."""
    right = believed.argmax(axis=2) == late_waves(2).labels[:, None]
    assert right[:, -1].mean() > 0.95
    assert right[:, HALF - 1].mean() < 0.7
    # What it knows it is sure of; of noise it is not.
    assert believed[:, -1].max(axis=1).mean() > 0.85
    assert believed[:, HALF - 1].max(axis=1).mean() < 0.7


def test_three_classes_of_several_channels():
    options = replace(OPTIONS, kernels=840, timestamps=2)
    learned = options.fit(late_waves(0, 3, 150, 2), late_waves(1, 3, 150, 2), seed=3)
    test = late_waves(2, 3, 150, 2)
    found = learned.posteriors(test)
    assert np.allclose(found.sum(axis=2), 1, atol=1e-6)
    assert np.mean(found[:, -1].argmax(axis=1) == test.labels) > 0.8


def test_the_future_changes_no_belief(model, believed):
    test = late_waves(2)
    for t in (1, 8, 9, 16, 29):
        changed = test.features.copy()
        changed[:, t:] = np.random.default_rng(t).normal(size=changed[:, t:].shape) * 100
        found = model.posteriors(replace(test, features=changed))
        assert np.array_equal(found[:, :t], believed[:, :t])
    assert not np.array_equal(found[:, -1], believed[:, -1])


def test_what_stands_after_an_end_is_never_seen():
    """In training, calibration and prediction alike, and up to the end beliefs are those of the longer sequence."""
    parts = [with_lengths(late_waves(seed), seed) for seed in (0, 1, 2)]
    overwritten = []
    for part in parts:
        features = part.features.copy()
        features[np.arange(HORIZON) >= part.lengths[:, None]] = 1e4
        overwritten.append(replace(part, features=features))
    first, second = (
        OPTIONS.fit(train, validation, seed=3).posteriors(test) for train, validation, test in (parts, overwritten)
    )
    assert np.array_equal(first, second)
    model = OPTIONS.fit(parts[0], parts[1], seed=3)
    whole, cut = model.posteriors(late_waves(2)), model.posteriors(parts[2])
    before = np.arange(HORIZON) < parts[2].lengths[:, None]
    assert np.array_equal(whole[before], cut[before])


def test_prefixes_hold_the_last_known_observation():
    batch = Batch(np.array([0, 1]), 2, features=np.arange(24.0).reshape(2, 12, 1), lengths=np.array([12, 4]))
    assert held_prefix(batch, 10).tolist() == [[list(range(10))], [[12, 13, 14, 15, 15, 15, 15, 15, 15, 15]]]
    assert held_prefix(batch, 2).tolist() == [[[0, 1, 1, 1, 1, 1, 1, 1, 1]], [[12, 13, 13, 13, 13, 13, 13, 13, 13]]]


def test_beliefs_change_at_timestamps_alone(believed):
    times = spread_timestamps(HORIZON, 9, 6)
    moved = 1 + np.flatnonzero((np.diff(believed, axis=1) != 0).any(axis=(0, 2)))
    assert set(moved + 1) <= set(times.tolist())
    assert np.array_equal(believed[:, :8], np.full((80, 8, 2), 0.5))


def test_before_the_first_timestamp_class_shares_are_believed():
    train = late_waves(0)
    uneven = Batch(train.labels[:50], 2, features=train.features[:50])
    found = OPTIONS.fit(uneven, late_waves(1), seed=3).posteriors(late_waves(2))
    assert np.allclose(found[:, 0], np.bincount(uneven.labels) / 50)


@pytest.mark.parametrize(
    ("horizon", "first", "count", "expected"),
    [
        (30, 9, 4, [9, 16, 23, 30]),
        (12, 9, 20, [9, 10, 11, 12]),
        (30, 9, 1, [30]),
        (9, 9, 5, [9]),
        (8, 9, 20, list(range(1, 9))),
        (3, 1, 2, [1, 3]),
        (1, 9, 3, [1]),
    ],
)
def test_timestamps_are_even_and_end_at_the_horizon(horizon, first, count, expected):
    assert spread_timestamps(horizon, first, count).tolist() == expected


def test_horizons_below_the_shortest_series_of_minirocket_work():
    """Eight steps, of which the class is the sign of a slope."""

    def slopes(seed):
        random = np.random.default_rng(seed)
        labels = np.arange(80) % 2
        rise = np.where(labels, 1.0, -1.0)[:, None] * np.arange(8) / 4
        return Batch(labels, 2, features=(rise + random.normal(size=(80, 8)))[:, :, None])

    found = OPTIONS.fit(slopes(0), slopes(1), seed=3).posteriors(slopes(2))
    assert found.shape == (80, 8, 2)
    right = (found.argmax(axis=2) == slopes(2).labels[:, None]).mean(axis=0)
    assert right[-1] > 0.85
    assert right[-1] > right[0]


def test_the_seed_decides_and_no_one_else_notices(model, believed):
    """NumPy's global generator, which MiniRocket seeds, is left as it was."""
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    again, other = (OPTIONS.fit(late_waves(0), late_waves(1), seed=seed) for seed in (3, 4))
    assert np.array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    assert np.array_equal(again.posteriors(late_waves(2)), believed)
    assert not np.array_equal(other.posteriors(late_waves(2)), believed)


def test_sharpness_is_the_one_that_made_the_labels():
    random = np.random.default_rng(0)
    scores = random.normal(size=(20_000, 3))
    chances = np.exp(2.5 * scores) / np.exp(2.5 * scores).sum(axis=1, keepdims=True)
    labels = (random.uniform(size=(20_000, 1)) > chances.cumsum(axis=1)).sum(axis=1)
    assert fit_sharpness(scores, labels) == pytest.approx(2.5, rel=0.05)
    # Never wrong on 50 sequences is no proof of certainty.
    sure = np.stack([-np.ones(50), np.ones(50)], axis=1)
    assert 1.5 < fit_sharpness(sure, np.ones(50, dtype=int)) < 3.0


def test_scores_of_two_classes_lean_to_the_right_one(model):
    step, test = model.steps[-1], late_waves(2)
    scores = class_scores(step.ridge, step.features.of(test))
    assert np.array_equal(scores[:, 0], -scores[:, 1])
    assert np.mean(scores.argmax(axis=1) == test.labels) > 0.95


def test_features_are_the_same_in_blocks(model, monkeypatch):
    step, test = model.steps[2], with_lengths(late_waves(2))
    whole = step.features.of(test)
    train = late_waves(0)
    one_block = fit_prefix_features(train, 12, kernels=168, seed=3, n_jobs=1)
    monkeypatch.setattr(ridge, "BLOCK", 7)
    assert np.array_equal(step.features.of(test), whole)
    in_blocks = fit_prefix_features(train, 12, kernels=168, seed=3, n_jobs=1)
    assert np.allclose(in_blocks[1], one_block[1], atol=1e-5)
    assert np.allclose(in_blocks[0].scale.scale_, one_block[0].scale.scale_)


def test_a_threshold_on_it_trades_time_for_errors():
    found = ThresholdOn(OPTIONS, count=10).fit(late_waves(0), late_waves(1), seed=3).points(late_waves(2))
    times = [point.decisions.time.mean() for point in found]
    errors = [(point.decisions.label != late_waves(2).labels).mean() for point in found]
    assert times == sorted(times)
    assert errors[0] > 0.3
    assert errors[-1] < 0.05


def test_one_ridge_penalty_is_enough():
    learned = replace(OPTIONS, alphas=(10.0,), timestamps=1).fit(late_waves(0), late_waves(1), seed=3)
    found = learned.posteriors(late_waves(2))
    assert np.mean(found[:, -1].argmax(axis=1) == late_waves(2).labels) > 0.9


def test_bad_input_is_refused(model):
    for bad in ({"kernels": 10}, {"first": 0}, {"timestamps": 0}, {"alphas": ()}, {"alphas": (0.0,)}, {"n_jobs": 0}):
        with pytest.raises(InvalidInput, match=next(iter(bad))):
            MiniRocketRidge(**bad)
    short = Batch(np.array([0, 1]), 2, features=np.zeros((2, 12, 1)))
    with pytest.raises(InvalidInput, match="as in fitting"):
        model.posteriors(short)
    with pytest.raises(InvalidInput, match="every class"):
        OPTIONS.fit(replace(late_waves(0), classes=3), late_waves(1), seed=3)
    with pytest.raises(InvalidInput, match="evidence alone"):
        OPTIONS.fit(Batch(np.array([0, 1]), 2, evidence=np.zeros((2, 3, 2))), late_waves(1), seed=3)


def test_without_aeon_it_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **named):
        if name.startswith("aeon"):
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InvalidInput, match=r"firmbound\[aeon\]"):
        OPTIONS.fit(late_waves(0), late_waves(1), seed=3)
