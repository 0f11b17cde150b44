"""The adapter in aeon's own checks, with none excused, and against the classifier it holds."""

import numpy as np
import pytest

pytest.importorskip("aeon")

from aeon.testing.estimator_checking import check_estimator
from aeon.testing.testing_config import EXCLUDED_TESTS

import firmbound
from firmbound.aeon import FirmboundEarlyClassifier

pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")


def test_all_checks_of_aeon_pass_and_none_is_excused():
    assert "FirmboundEarlyClassifier" not in EXCLUDED_TESTS
    found = check_estimator(FirmboundEarlyClassifier, raise_exceptions=True)
    assert all(result == "PASSED" or result.startswith("SKIPPED: No stored results") for result in found.values()), (
        found
    )
    for name in ("check_persistence_via_pickle", "check_fit_deterministic", "check_non_state_changing_method"):
        assert any(name in check for check in found)


@pytest.fixture(scope="module")
def fitted():
    problem = firmbound.datasets.autoregressive((-0.7, 0.7), 400, 8, 1)
    return FirmboundEarlyClassifier(
        cost=0.3,
        network=firmbound.NetworkOptions(order=1, projection=8, hidden=16),
        training=firmbound.TrainingOptions(epochs=6, batch=50, learning_rate=1e-2),
    ).fit(np.swapaxes(problem.features, 1, 2), np.array(["calm", "wild"])[problem.labels])


def test_beginnings_are_decided_when_the_classifier_would(fitted):
    fresh = firmbound.datasets.autoregressive((-0.7, 0.7), 100, 8, 2)
    X = np.swapaxes(fresh.features, 1, 2)
    chosen = fitted.classifier_.decide(fresh.features)
    fitted.reset_state_info()
    waiting = np.arange(100)
    for t in range(1, 9):
        labels, decided = fitted.update_predict(X[waiting, :, :t])
        assert np.array_equal(decided, chosen.time[waiting] == t)
        assert np.array_equal(labels[decided], chosen.label[waiting[decided]])
        assert set(labels[~decided]) <= {"-1"}
        assert np.array_equal(fitted.get_state_info()[:, 0], np.full(len(waiting), t))
        waiting = waiting[~decided]
        if not len(waiting):
            break
    assert not len(waiting)
    probabilities, decided = fitted.predict_proba(X[:, :, :1])
    assert np.all(probabilities[~decided] == -1)


def test_score_is_harmonic_mean_accuracy_and_earliness(fitted):
    fresh = firmbound.datasets.autoregressive((-0.7, 0.7), 100, 8, 2)
    truth = np.array(["calm", "wild"])[fresh.labels]
    chosen = fitted.classifier_.decide(fresh.features)
    harmonic, accuracy, earliness = fitted.score(np.swapaxes(fresh.features, 1, 2), truth)
    assert accuracy == np.mean(chosen.label == truth)
    assert earliness == pytest.approx(chosen.time.mean() / 8)
    assert harmonic == pytest.approx(2 * accuracy * (1 - earliness) / (accuracy + 1 - earliness))
