import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firmbound import InvalidInput
from firmbound.evaluation.hitting_time import time_variance
from firmbound.evaluation.matching import error_curve, variance_at
from firmbound.trajectories import Decisions

LABELS = np.arange(400) % 2


def ways(count=5, horizon=20):
    """Later is better: way s stops around 2 + 3 s and errs in fewer and fewer."""
    random = np.random.default_rng(3)
    found = []
    for s in range(count):
        time = np.clip(random.poisson(2 + 3 * s, len(LABELS)), 1, horizon)
        wrong = random.random(len(LABELS)) < 0.4 / (1 + s)
        found.append(Decisions(time, np.where(wrong, 1 - LABELS, LABELS), horizon))
    return found


def test_a_curve_goes_through_its_points_whatever_their_order():
    some = ways()
    curve = error_curve(some[::-1], LABELS, 2)
    for one in some:
        wrong = np.mean([np.mean(one.label[k == LABELS] != k) for k in (0, 1)])
        assert curve.at(one.time.mean()).value == pytest.approx(wrong)


def test_beyond_its_ends_a_curve_says_nothing():
    curve = error_curve(ways(), LABELS, 2)
    assert np.isnan(curve.at(0.5).value)
    assert np.isnan(curve.at(19.9).value)
    assert not curve.covers(0.5)


@given(st.floats(0, 1))
def test_the_variance_between_two_ways_is_that_of_a_coin_toss(share):
    low, high = ways()[1:3]
    time = (1 - share) * low.time.mean() + share * high.time.mean()
    together = np.concatenate([low.time, high.time]).astype(float)
    weights = np.repeat([(1 - share), share], len(LABELS)) / len(LABELS)
    exact = float(weights @ (together - time) ** 2)
    assert variance_at(ways(), time) == pytest.approx(exact, rel=0.01)


def test_at_a_way_the_variance_is_its_own():
    for one in ways():
        assert variance_at(ways(), one.time.mean()) == pytest.approx(time_variance(one).value)
    assert np.isnan(variance_at(ways(), 0.1))


def test_no_ways_make_no_curve():
    with pytest.raises(InvalidInput, match="ways"):
        error_curve([], LABELS, 2)
