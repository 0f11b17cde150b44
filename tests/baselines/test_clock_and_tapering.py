"""Rules that look at the clock, and thresholds that sink by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from firmbound import InvalidInput
from firmbound.baselines.fixed_time import FixedTime, RandomTime
from firmbound.baselines.static_threshold import StaticSprt
from firmbound.baselines.tapering import KAPPAS, TaperingThreshold, decide, tapering_threshold
from firmbound.posterior import posterior
from firmbound.trajectories import Batch

PRIOR = np.array([0.5, 0.3, 0.2])
evidences = arrays(np.float64, (7, 5, 3), elements=st.floats(-5, 5))
lengths = arrays(np.int64, 7, elements=st.integers(1, 5))


def batch_of(evidence, ends=None):
    return Batch(np.arange(len(evidence)) % 3, 3, None, evidence, ends)


@given(evidences, lengths)
def test_a_fixed_time_is_kept_unless_a_sequence_ends_before(evidence, ends):
    batch = batch_of(evidence, ends)
    for t, point in enumerate(FixedTime(PRIOR).fit(batch, batch, seed=0).points(batch), start=1):
        assert point.setting == t
        assert np.array_equal(point.decisions.time, np.minimum(t, ends))
        now = evidence[np.arange(7), point.decisions.time - 1]
        assert np.array_equal(point.decisions.label, now.argmax(axis=1))
        assert point.belief == pytest.approx(posterior(now, PRIOR))


@given(evidences, lengths, st.integers(0, 3))
def test_random_times_lie_within_sequences_and_repeat_with_the_seed(evidence, ends, seed):
    batch = batch_of(evidence, ends)
    first, again = (RandomTime(PRIOR).fit(batch, batch, seed=seed).points(batch) for _ in range(2))
    assert len(first) == 5
    for one, other in zip(first, again, strict=True):
        assert np.array_equal(one.decisions.time, other.decisions.time)
        assert np.all(one.decisions.time <= ends)


def test_random_times_are_even():
    batch = batch_of(np.zeros((5_000, 5, 3)))
    counts = sum(np.bincount(p.decisions.time, minlength=6) for p in RandomTime(PRIOR).points(batch))
    assert counts[0] == 0
    assert counts[1:] / counts.sum() == pytest.approx(np.full(5, 0.2), abs=0.01)


@pytest.mark.parametrize("kappa", KAPPAS)
def test_curves_sink_from_below_the_magnitude_to_zero(kappa):
    curve = tapering_threshold(50, 3.0, kappa)
    assert curve[-1] == 0
    assert curve[0] < 3.0
    assert np.all(np.diff(curve) < 0)
    bend = np.diff(curve, 2)
    assert {-1.5: np.all(bend < 1e-12), 0.0: np.allclose(bend, 0), 1.5: np.all(bend > -1e-12)}[kappa]


@given(evidences, lengths, st.floats(0, 8), st.sampled_from(KAPPAS))
def test_tapering_follows_its_definition(evidence, ends, magnitude, kappa):
    curve = tapering_threshold(5, magnitude, kappa)
    found = decide(evidence, curve, ends)
    for sequence, end, time, label in zip(evidence, ends, found.time, found.label, strict=True):
        for t in range(1, end + 1):
            first, second = sorted(sequence[t - 1])[:0:-1]
            if first - second >= curve[t - 1] or t == end:
                break
        assert time == t
        assert sequence[t - 1][label] == sequence[t - 1].max()


def test_the_largest_lead_at_the_end_sizes_the_curves():
    random = np.random.default_rng(0)
    batch = batch_of(random.standard_normal((50, 5, 3)).cumsum(axis=1))
    fitted = TaperingThreshold(PRIOR).fit(batch, batch, seed=0)
    last = np.sort(batch.evidence[:, -1], axis=1)
    assert fitted.largest == pytest.approx((last[:, -1] - last[:, -2]).max())
    points = fitted.points(batch)
    assert len(points) == 9
    assert all(np.all(points[place].decisions.time == 1) for place in (2, 5, 8))  # no threshold at all


def test_static_thresholds_as_a_rival_span_all_times():
    random = np.random.default_rng(0)
    batch = batch_of(random.standard_normal((400, 5, 3)).cumsum(axis=1))
    with pytest.raises(InvalidInput, match="fitted"):
        StaticSprt(PRIOR).points(batch)
    points = StaticSprt(PRIOR, count=30).fit(batch, batch, seed=0).points(batch)
    times = [point.decisions.time.mean() for point in points]
    assert times[0] == 1
    assert times[-1] > 4.9
    assert np.all(np.diff(times) >= 0)


@pytest.mark.parametrize(("horizon", "magnitude", "kappa"), [(1, 1.0, 0.0), (5, -1.0, 0.0), (5, 1.0, np.inf)])
def test_impossible_curves_are_refused(horizon, magnitude, kappa):
    with pytest.raises(InvalidInput):
        tapering_threshold(horizon, magnitude, kappa)


def test_features_alone_are_not_enough():
    batch = Batch(np.array([0, 1]), 2, np.zeros((2, 3, 1)))
    with pytest.raises(InvalidInput, match="evidence"):
        FixedTime(np.full(2, 0.5)).points(batch)
