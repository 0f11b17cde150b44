"""Series cut into steps: exact places, and no step that knows what comes after it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from firmbound.datasets.recorded import SequenceOptions, recorded_splits
from firmbound.datasets.recordings import ArrayRecordings
from firmbound.datasets.splits import SplitOptions
from firmbound.datasets.windows import WindowOptions, held
from firmbound.errors import InvalidInput
from firmbound.scaling import Moments

FORDA = WindowOptions(segment=100, window=24, stride=4)


def cut(options, values, lengths=None):
    lengths = np.full(len(values), values.shape[1]) if lengths is None else lengths
    series, first, steps = options.places(lengths)
    return options.cut(values, series, first, steps)


def test_the_papers_protocol_gives_twenty_steps_of_twenty_four_numbers():
    values = np.arange(2 * 500, dtype=np.float32).reshape(2, 500, 1)
    found = cut(FORDA, values)
    assert found.shape == (10, 20, 24)
    np.testing.assert_array_equal(found[7, 3], 700 + 12 + np.arange(24))  # segment 2 of series 1, samples 13 to 36


def test_what_is_left_behind_the_last_segment_is_not_used():
    values = np.arange(250, dtype=np.float32).reshape(1, 250, 1)
    assert cut(FORDA, values).max() == 199


def test_channels_of_a_window_stay_together():
    values = np.arange(12, dtype=np.float32).reshape(1, 6, 2)
    found = cut(WindowOptions(window=2, stride=2), values)
    np.testing.assert_array_equal(found, [[[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]])


def test_training_segments_may_overlap_and_others_never_do():
    options = WindowOptions(segment=100, window=24, stride=4, hop=20)
    lengths = np.array([500, 130])
    series, first, _ = options.places(lengths, training=True)
    assert (series == 0).sum() == 21
    np.testing.assert_array_equal(first[series == 1], [0, 20])
    np.testing.assert_array_equal(options.places(lengths)[0], [0, 0, 0, 0, 0, 1])


@given(
    st.integers(1, 6),
    st.integers(1, 5),
    st.one_of(st.none(), st.integers(0, 6)),
    st.integers(0, 10**6),
)
def test_the_future_changes_no_step_before_it(window, stride, extra, seed):
    """Whatever stands after a step's last sample, in this series or in others, its features stay equal to the bit."""
    random = np.random.default_rng(seed)
    segment = None if extra is None else window + stride + extra
    options = WindowOptions(segment=segment, window=window, stride=stride)
    values = random.standard_normal((3, 30, 2)).astype(np.float32)
    lengths = random.integers(segment or window + stride, 31, size=3)
    series, first, steps = options.places(lengths)
    before = options.cut(values, series, first, steps)
    for row in range(len(series)):
        step = int(random.integers(steps[row]))
        known = first[row] + step * stride + window
        changed = values.copy()
        changed[series[row], known:] = random.standard_normal((30 - known, 2))
        after = options.cut(changed, series, first, steps)
        np.testing.assert_array_equal(after[row, : step + 1], before[row, : step + 1])


@given(arrays(np.float32, (2, 9, 2), elements=st.sampled_from([np.nan, 1.0, -2.0, 3.5])), st.integers(1, 8))
def test_held_numbers_know_the_past_alone(values, t):
    lengths = np.array([9, 6])
    full = held(values, lengths)
    changed = values.copy()
    changed[:, t:] = 7.0
    np.testing.assert_array_equal(held(changed, lengths)[:, :t], full[:, :t])
    assert np.isfinite(full).all()
    there = ~np.isnan(values) & (np.arange(9) < lengths[:, None])[:, :, None]
    np.testing.assert_array_equal(full[there], values[there])


def test_scaling_fitted_on_train_changes_no_other_step():
    """Features of the stage: windows of test series do not depend on their own later samples, scaled or not."""
    random = np.random.default_rng(0)
    labels = np.arange(40) % 2
    values = random.standard_normal((40, 60, 1)).astype(np.float32)
    options = SequenceOptions(WindowOptions(30, 6, 3), split=SplitOptions(test=0.25, validation=0.25))

    def sequences(of):
        parts = {"all": ArrayRecordings("made", labels, np.full(40, 60), of)}
        return recorded_splits(parts, options)

    splits = sequences(values)
    test = splits["test"].rows(slice(0, splits["test"].sequences)).features
    changed = values.copy()
    changed[splits["test"].series, 30 + 12 :] += 5.0  # behind the third step of the second segment
    later = sequences(changed)
    after = later["test"].rows(slice(0, later["test"].sequences)).features
    second = splits["test"].first == 30
    np.testing.assert_array_equal(after[~second], test[~second])
    np.testing.assert_array_equal(after[second, :3], test[second, :3])
    assert not np.array_equal(after[second, 4:], test[second, 4:])
    train, again = (s["train"].rows(slice(0, s["train"].sequences)).features for s in (splits, later))
    np.testing.assert_array_equal(again, train)
    np.testing.assert_array_equal(*(Moments.of(part).scaling()(test[:, :3]) for part in (train, again)))


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"window": 0}, "window"),
        ({"stride": 1.5}, "stride"),
        ({"segment": 5, "window": 5}, "segment"),
        ({"hop": 3}, "hop"),
        ({"segment": 10, "hop": 11}, "hop"),
    ],
)
def test_impossible_windows_are_refused_by_name(wrong, named):
    with pytest.raises(InvalidInput) as refused:
        WindowOptions(**wrong)
    assert refused.value.name == named
