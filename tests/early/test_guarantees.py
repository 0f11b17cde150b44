import numpy as np
import pytest
from scipy import stats

from firmbound import InvalidInput
from firmbound.early.guarantees import error_interval, fastest_safe, sequences_needed


@pytest.mark.parametrize("alpha", [0.05, 0.1])
def test_a_promise_is_broken_at_most_as_often_as_it_says(alpha):
    """4,000 repetitions: five rules, faster and worse; the chosen one's true error exceeds alpha in at most 5 %."""
    random = np.random.default_rng(0)
    true = np.array([0.5, 0.8, 0.99, 1.01, 1.5]) * alpha  # two keep the promise clearly, one barely, two break it
    broken = chosen = 0
    for _ in range(4_000):
        harder = random.random(400)  # the same sequences for all rules: errors go together
        wrong = [int((harder < rate).sum()) for rate in true]
        best = fastest_safe(wrong, 400, alpha, 0.95)
        chosen += best is not None
        broken += best is not None and true[best] > alpha
    assert chosen > 2_000  # it does promise something
    assert broken / 4_000 < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 4_000)


def test_a_promise_at_the_very_edge_uses_the_whole_allowance():
    """One rule whose error is a hair above alpha: the exact test lets it through in just under 5 %."""
    random = np.random.default_rng(1)
    wrong = random.binomial(500, 0.1001, 20_000)
    passed = np.mean([fastest_safe([int(count)], 500, 0.1, 0.95) is not None for count in wrong])
    assert 0.03 < passed < 0.055


def test_the_walk_ends_at_the_first_rule_that_fails():
    assert fastest_safe([0, 0, 90, 0], 100, 0.1, 0.95) == 1
    assert fastest_safe([90, 0, 0], 100, 0.1, 0.95) is None
    assert fastest_safe([], 100, 0.1, 0.95) is None


def test_too_few_sequences_promise_nothing():
    needed = sequences_needed(0.05, 0.95)
    assert needed == 59
    assert fastest_safe([0], needed, 0.05, 0.95) == 0
    assert fastest_safe([0], needed - 1, 0.05, 0.95) is None


@pytest.mark.parametrize("rate", [0.0, 0.02, 0.5, 1.0])
def test_intervals_hold_the_truth(rate):
    counts = np.random.default_rng(2).binomial(80, rate, 2_000)
    bounds = np.array([error_interval(int(count), 80, 0.9) for count in counts])
    assert np.mean((bounds[:, 0] <= rate) & (rate <= bounds[:, 1])) >= 0.9 - 3 * np.sqrt(0.09 / 2_000)


def test_intervals_are_clopper_and_pearsons():
    low, high = error_interval(3, 50, 0.95)
    exact = stats.binomtest(3, 50).proportion_ci(0.95, method="exact")
    assert (low, high) == pytest.approx((exact.low, exact.high))
    assert error_interval(0, 10, 0.95)[0] == 0.0
    assert error_interval(10, 10, 0.95)[1] == 1.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1], 10, 0.0, 0.95), "alpha"),
        (([1], 10, 0.1, 1.0), "confidence"),
        (([11], 10, 0.1, 0.9), "wrong"),
        (([1], 0, 0.1, 0.9), "wrong"),
        (([1], 10, "a", 0.9), "alpha"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        fastest_safe(*arguments)
