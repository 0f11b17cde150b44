import numpy as np
import pytest

import firmbound
from firmbound.errors import InvalidInput
from firmbound.evaluation.calibration import calibration, reliability
from firmbound.temperature import fit_temperature, helpful_temperature


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


def test_labels_that_are_all_guessed_right_do_not_run_away():
    labels = np.arange(200) % 2
    evidence = np.where(labels[:, None, None] == np.arange(2), 0.0, -1.0) * np.ones((200, 5, 2))
    prior = np.array([0.5, 0.5])
    assert fit_temperature(evidence, labels, prior) == 1.0
    assert helpful_temperature(evidence, labels, prior) == 1.0


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
