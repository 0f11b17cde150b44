import numpy as np
import pytest

import firmbound
from firmbound.errors import InvalidInput
from firmbound.evaluation.calibration import calibration, reliability
from firmbound.temperature import (
    at_times,
    fit_temperature,
    fit_temperatures,
    helpful_temperature,
    helpful_temperatures,
    in_words,
)


def test_honest_beliefs_have_no_calibration_error(random):
    belief = random.dirichlet([1.0, 1.0, 1.0], 40_000)
    labels = (random.random((40_000, 1)) > np.cumsum(belief, axis=1)).sum(axis=1)
    found = reliability(belief, labels)
    assert found.count.sum() == 40_000
    assert found.error < 0.01


def test_the_error_is_its_definition():
    belief = np.array([[0.9, 0.1], [0.9, 0.1], [0.3, 0.7], [0.25, 0.75]])
    found = reliability(belief, np.array([0, 1, 1, 1]), bins=5)
    assert found.error == pytest.approx((2 * abs(0.5 - 0.9) + 2 * abs(1 - 0.725)) / 4)
    with pytest.raises(InvalidInput, match="bins"):
        reliability(belief[:0], np.array([], dtype=int))


@pytest.mark.parametrize("classes", [2, 3])
def test_exact_evidence_is_calibrated_and_scaled_evidence_is_found_out(classes):
    problem = firmbound.datasets.gaussian(classes, 20_000, 10, 3, dimension=4, separation=0.7)
    prior = np.full(classes, 1 / classes)
    exact = calibration(problem.evidence, problem.labels, prior)
    assert exact.error.shape == exact.negative_log_likelihood.shape == (10,)
    assert exact.error.max() < 0.02
    assert np.all(np.diff(exact.negative_log_likelihood) < 0)
    assert not exact.saturated
    assert fit_temperature(problem.evidence, problem.labels, prior) == pytest.approx(1.0, abs=0.03)
    sure = calibration(3 * problem.evidence, problem.labels, prior)
    assert sure.error.max() > 0.1
    assert fit_temperature(3 * problem.evidence, problem.labels, prior) == pytest.approx(3.0, rel=0.03)
    assert calibration(300 * problem.evidence, problem.labels, prior).saturated


def test_a_temperature_is_used_only_where_it_helps():
    problem = firmbound.datasets.gaussian(2, 1_000, 6, 4, dimension=2, separation=0.7)
    prior = np.array([0.5, 0.5])
    assert helpful_temperature(problem.evidence, problem.labels, prior) == 1.0
    assert fit_temperature(problem.evidence, problem.labels, prior) != 1.0
    found = helpful_temperature(2 * problem.evidence, problem.labels, prior)
    assert found == fit_temperature(2 * problem.evidence, problem.labels, prior)
    assert found == pytest.approx(2.0, rel=0.15)
    assert helpful_temperature(problem.evidence[:3], problem.labels[:3], prior) == 1.0


@pytest.mark.parametrize("classes", [2, 3])
def test_temperatures_of_each_time_are_found(classes):
    problem = firmbound.datasets.gaussian(classes, 8_000, 10, 5, dimension=4, separation=0.7)
    prior, times = np.full(classes, 1 / classes), np.arange(1, 11)
    sure = (0.6 * times**0.4)[:, None]  # too modest at first, too sure at last
    found = fit_temperatures(sure * problem.evidence, problem.labels, prior)
    assert found == pytest.approx(sure[:, 0], rel=0.12)
    assert np.array_equal(helpful_temperatures(sure * problem.evidence, problem.labels, prior), found)


def test_temperatures_of_each_time_are_used_only_where_they_help():
    problem = firmbound.datasets.gaussian(2, 1_000, 6, 4, dimension=2, separation=0.7)
    prior = np.array([0.5, 0.5])
    assert helpful_temperatures(problem.evidence, problem.labels, prior).tolist() == [1.0]
    twice = helpful_temperatures(2 * problem.evidence, problem.labels, prior)
    assert twice.tolist() == [helpful_temperature(2 * problem.evidence, problem.labels, prior)]
    assert helpful_temperatures(problem.evidence[:3], problem.labels[:3], prior).tolist() == [1.0]
    first = problem.evidence[:, :1]
    assert fit_temperatures(first, problem.labels, prior) == pytest.approx(
        [fit_temperature(first, problem.labels, prior)], rel=1e-3
    )


def test_temperatures_of_each_time_look_at_what_was_seen():
    problem = firmbound.datasets.gaussian(2, 4_000, 8, 6, dimension=4, separation=0.7)
    prior, lengths = np.array([0.5, 0.5]), np.random.default_rng(0).integers(2, 9, 4_000)
    after = np.arange(8) >= lengths[:, None]
    sure = 2 * problem.evidence
    other = np.where(after[:, :, None], np.random.default_rng(1).standard_normal(sure.shape), sure)
    one, two = (fit_temperatures(each, problem.labels, prior, lengths) for each in (sure, other))
    assert np.array_equal(one, two)
    assert one == pytest.approx(np.full(8, 2.0), rel=0.2)


def test_later_times_have_the_last_temperature():
    known = np.array([0.5, 1.0, 2.0])
    assert at_times(known, np.array([0, 1, 2, 3, 4, 99])).tolist() == [0.5, 0.5, 1.0, 2.0, 2.0, 2.0]
    assert in_words(known) == "temperatures from 0.500 at the first observation to 2.000 at the last"
    assert in_words(known[:1]) == "a temperature of 0.500"


def test_labels_that_are_all_guessed_right_do_not_run_away():
    labels = np.arange(200) % 2
    evidence = np.where(labels[:, None, None] == np.arange(2), 0.0, -1.0) * np.ones((200, 5, 2))
    prior = np.array([0.5, 0.5])
    assert fit_temperature(evidence, labels, prior) == 1.0
    assert helpful_temperature(evidence, labels, prior) == 1.0
    assert helpful_temperatures(evidence, labels, prior).tolist() == [1.0]


@pytest.mark.parametrize(
    ("labels", "message"), [([0], "one label a sequence"), ([0, 5], "lie in 0..1"), ([0.5, 1.0], "integers")]
)
def test_labels_that_do_not_fit_are_refused(labels, message):
    with pytest.raises(InvalidInput, match=message):
        calibration([[[0.0, 1.0]] * 3] * 2, labels)


@pytest.mark.parametrize("sequences", [200, 2_000, 20_000])
def test_chance_is_what_honest_beliefs_show(sequences):
    """Labels drawn from the beliefs themselves: the error is what chance says, ever less of more sequences."""
    random = np.random.default_rng(sequences)
    belief = random.dirichlet(np.ones(4), size=sequences)
    errors = []
    for _ in range(200):
        labels = (random.random((sequences, 1)) > np.cumsum(belief, axis=1)).sum(axis=1).clip(0, 3)
        errors.append(reliability(belief, labels).error)
    assert reliability(belief, labels).chance == pytest.approx(np.mean(errors), rel=0.1)
