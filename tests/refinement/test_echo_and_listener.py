"""The memory: causal, of one size, deaf to what all classes share, and finite whatever comes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firmbound.errors import InvalidInput
from firmbound.refinement.echo import EchoNetwork
from firmbound.refinement.listener import FAR, FARTHEST, bounded, centred, create_listener
from firmbound.scaling import Moments

HORIZON = 7


def evidence_of(count, classes, seed, size=1.0):
    steps = np.random.default_rng(seed).standard_normal((count, HORIZON, classes))
    return (size * np.cumsum(steps, axis=1)).astype(np.float32)


def listener_of(classes=3, features=None, units=16, seed=0):
    given = evidence_of(50, classes, 1)
    scaling = None if features is None else Moments.of(features).scaling()
    return create_listener(given, np.full(50, HORIZON), units, seed, scaling)


def columns(listener, evidence, features=None):
    """(n, T, p), step by step, and the past after the last."""
    past, found = listener.start(len(evidence)), []
    for time in range(1, evidence.shape[1] + 1):
        beside = None if features is None else features[:, time - 1]
        past, now = listener.hear(past, time, evidence[:, time - 1], beside)
        found.append(now)
    return np.stack(found, axis=1), past


@given(st.integers(2, 5), st.integers(1, HORIZON - 1), st.integers(0, 1_000), st.booleans())
def test_what_comes_later_changes_nothing_before(classes, known, seed, hears):
    random = np.random.default_rng(seed)
    features = random.standard_normal((50, HORIZON, 2)) if hears else None
    listener, one = listener_of(classes, features), evidence_of(50, classes, seed)
    other = one.copy()
    other[:, known:] = 100 * random.standard_normal(other[:, known:].shape)
    changed = None
    if features is not None:
        changed = features.copy()
        changed[:, known:] = -50.0
    before, after = columns(listener, one, features)[0], columns(listener, other, changed)[0]
    assert np.array_equal(before[:, :known], after[:, :known])
    assert not np.array_equal(before[:, known], after[:, known])


def test_the_state_does_not_grow_and_columns_are_as_many_as_it_says():
    listener, evidence = listener_of(), evidence_of(5, 3, 0)
    start = listener.start(5)
    for known in range(1, HORIZON + 1):
        found, past = columns(listener, evidence[:, :known])
        assert [part.shape for part in past] == [part.shape for part in start] == [(5, 16), (5, 3), (5, 3)]
        assert all(part.dtype == np.float32 for part in past)
        assert found.shape[2] == listener.columns == 1 + 2 * 3 + 16
    assert np.array_equal(found[..., 0], np.ones((5, HORIZON)))
    assert np.abs(found).max() <= FAR


@given(st.integers(2, 5), st.integers(0, 1_000), st.floats(-1e3, 1e3))
def test_what_all_classes_share_says_nothing(classes, seed, shared):
    evidence = evidence_of(4, classes, seed).astype(np.float64)
    listener = listener_of(classes)
    one, other = (columns(listener, given)[0] for given in (evidence, evidence + shared))
    assert np.allclose(one, other, atol=2e-5)
    assert np.allclose(bounded(evidence), bounded(evidence + shared), atol=1e-6)
    assert np.allclose(centred(evidence).sum(axis=-1), 0.0, atol=1e-5)


@given(
    st.lists(st.sampled_from([0.0, 1e-320, -1e-45, 1.0, 1e20, -3e38, 3e38, 1e300, -1.7e308, 1.7e308]), min_size=6),
    st.sampled_from(["f2", "f4", "f8"]),
)
def test_extreme_numbers_stay_finite(numbers, dtype):
    with np.errstate(over="ignore"):
        evidence = np.resize(np.array(numbers), (4, HORIZON, 3)).astype(dtype)
    evidence = np.nan_to_num(evidence)  # those that this type can hold
    features = np.random.default_rng(0).standard_normal((50, HORIZON, 3))
    listener = listener_of(3, features)
    for heard in (evidence.astype(np.float64), np.full(evidence.shape, -1.7e308), np.full(evidence.shape, 1e-320)):
        found, past = columns(listener, evidence, heard)
        assert np.isfinite(found).all()
        assert all(np.isfinite(part).all() for part in past)
        assert np.abs(past.units).max() <= 1
    made = create_listener(evidence, np.full(4, HORIZON), 8, 0)
    assert 0 < min(made.level, made.change) <= max(made.level, made.change) <= 2 * FARTHEST
    assert np.isfinite(columns(made, evidence)[0]).all()


def test_usual_sizes_are_of_steps_that_are_there():
    evidence, lengths = evidence_of(50, 3, 2), np.full(50, 4)
    other = evidence.copy()
    other[:, 4:] = 1e30
    one, changed = (create_listener(given, lengths, 8, 0) for given in (evidence, other))
    assert (one.level, one.change) == (changed.level, changed.change)
    now = evidence[:, :4].astype(float) - evidence[:, :4].mean(axis=-1, keepdims=True)
    assert one.level == pytest.approx(np.sqrt(np.mean(now**2)), rel=1e-5)
    steps = np.diff(now, axis=1, prepend=0.0)
    assert one.change == pytest.approx(np.sqrt(np.mean(steps**2)), rel=1e-5)
    nothing = create_listener(np.zeros((3, 4, 2)), np.full(3, 4), 8, 0)
    assert (nothing.level, nothing.change) == (1.0, 1.0)


def test_the_network_is_what_its_formula_says():
    network = EchoNetwork.create(4, 8, seed=3)
    random = np.random.default_rng(0)
    units, inputs = random.uniform(-1, 1, (5, 8)).astype(np.float32), random.standard_normal((5, 4)).astype(np.float32)
    bent = np.tanh(units.astype(float) @ network.back + inputs @ network.taken + network.bias)
    expected = (1 - network.news) * units + network.news * bent
    before = units.copy()
    assert np.allclose(network.advance(units, inputs), expected, atol=1e-6)
    assert np.array_equal(units, before)  # streams keep what they hand in
    assert (network.units, network.dimension) == (8, 4)
    assert 0 < network.news.min() < network.news.max() <= 1


def test_it_forgets_how_it_began():
    """Two pasts, one present: after many steps the units are the same."""
    network = EchoNetwork.create(3, 64, seed=0)
    random = np.random.default_rng(0)
    units = random.uniform(-1, 1, (2, 64)).astype(np.float32)
    apart = np.abs(units[0] - units[1]).max()
    for inputs in random.standard_normal((400, 1, 3)).astype(np.float32):
        units = network.advance(units, np.repeat(inputs, 2, axis=0))
    assert np.abs(units[0] - units[1]).max() < 1e-3 * apart


def test_a_seed_is_a_network():
    one, same, other = (EchoNetwork.create(3, 16, seed) for seed in (5, 5, 6))
    for name, part in one.arrays().items():
        assert np.array_equal(part, same.arrays()[name])
        assert not np.array_equal(part, other.arrays()[name])


def test_features_that_are_to_be_heard_must_come():
    listener = listener_of(3, np.random.default_rng(0).standard_normal((50, HORIZON, 2)))
    with pytest.raises(InvalidInput, match="features"):
        listener.hear(listener.start(1), 1, np.zeros((1, 3)))
    with pytest.raises(InvalidInput, match="evidence"):
        listener.hear(listener.start(1), 1, np.zeros((1, 4)), np.zeros((1, 2)))
