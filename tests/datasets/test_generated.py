from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from firmbound import InvalidInput
from firmbound.datasets import BLOCK_ROWS, autoregressive, gaussian, oscillating
from firmbound.datasets.oscillating import OscillationTable
from firmbound.posterior import posterior


def test_evidence_is_the_log_density_of_the_features():
    problem = gaussian(classes=3, sequences=20, horizon=6, dimension=5, separation=0.7, seed=3)
    means = 0.7 * np.eye(5)[:3]
    densities = np.stack([multivariate_normal(mean).logpdf(problem.features) for mean in means], axis=-1)
    exact = np.cumsum(densities, axis=1)
    difference = problem.evidence - exact
    assert np.allclose(difference, difference[..., :1], atol=1e-5)  # equal up to what all classes share


def test_features_have_the_means_and_deviation_they_claim():
    problem = gaussian(classes=2, sequences=4_000, horizon=5, dimension=4, separation=0.5, seed=1)
    for k in range(2):
        own = problem.features[problem.labels == k]
        assert np.allclose(own.mean(axis=(0, 1)), 0.5 * np.eye(4)[k], atol=0.05)
    assert problem.features.std(axis=(0, 1)) == pytest.approx(np.ones(4), abs=0.05)


def test_exact_evidence_is_calibrated():
    problem = gaussian(classes=2, sequences=40_000, horizon=4, dimension=2, seed=2, prior=[0.3, 0.7])
    said = posterior(problem.evidence[:, -1], np.array([0.3, 0.7]))[:, 1]
    for low in np.arange(0.2, 1.0, 0.1):
        inside = (said >= low) & (said < low + 0.1)
        if inside.sum() > 500:
            error = 4 * 0.5 / np.sqrt(inside.sum())
            assert abs(problem.labels[inside].mean() - said[inside].mean()) < error


@pytest.mark.parametrize("make", [gaussian, partial(autoregressive, (0.1, 0.6)), oscillating])
def test_blocks_are_the_same_whichever_are_made(make):
    problem = make(sequences=2 * BLOCK_ROWS + 10, horizon=4, seed=(5, 1))
    again = make(sequences=2 * BLOCK_ROWS + 10, horizon=4, seed=(5, 1))
    last = again.rows(slice(2 * BLOCK_ROWS, 2 * BLOCK_ROWS + 10))
    assert np.array_equal(problem.evidence[2 * BLOCK_ROWS :], last.evidence)
    assert np.array_equal(problem.labels[2 * BLOCK_ROWS :], last.labels)
    other = make(sequences=10, horizon=4, seed=(5, 2))
    assert not np.array_equal(problem.evidence[:10], other.evidence)


def test_asking_for_features_does_not_change_evidence():
    problem = gaussian(sequences=50, horizon=4)
    assert np.array_equal(problem.batch(0).evidence, problem.batch(0, with_features=False).evidence)


def test_oscillations_follow_the_papers_formula():
    still = OscillationTable(amplitude_mean=0.0, amplitude_deviation=0.0, noise_deviation=0.0, curvature=(-1.0, -1.0))
    problem = oscillating(sequences=100, horizon=10, seed=0, table=still)
    ratio = problem.evidence[..., 1] - problem.evidence[..., 0]
    t = np.arange(1, 11)
    drift = 1 - (1 - t / 10) ** np.exp(-1.0)
    assert np.allclose(ratio, np.where(problem.labels == 1, 1.0, -1.0)[:, None] * drift, atol=1e-6)


def test_oscillations_have_the_tables_noise_and_amplitude():
    quiet = OscillationTable(noise_deviation=0.0)
    problem = oscillating(sequences=20_000, horizon=50, seed=4, table=quiet)
    ratio = problem.evidence[..., 1] - problem.evidence[..., 0]
    sign = np.where(problem.labels == 1, 1.0, -1.0)
    assert np.allclose(sign * ratio[:, -1], 1.0, atol=3.5)  # damped: A exp(-0.02 * 50) at most
    noisy = oscillating(sequences=20_000, horizon=50, seed=4)
    noise = (noisy.evidence[..., 1] - noisy.evidence[..., 0])[:, 40:].std(axis=1)
    assert np.median(noise) == pytest.approx(0.6745, abs=0.1)  # median of |N(0, 1)|, and a little wave


def test_oscillations_have_the_papers_wave():
    wave = OscillationTable(
        amplitude_mean=1.5, amplitude_deviation=0.0, damping=(0.1, 0.1), frequency=(0.7, 0.7), noise_deviation=0.0
    )
    problem = oscillating(sequences=50, horizon=20, seed=1, table=wave)
    still = oscillating(sequences=50, horizon=20, seed=1, table=replace(wave, amplitude_mean=0.0))
    t = np.arange(1, 21)
    difference = (problem.evidence - still.evidence) @ np.array([-1.0, 1.0])
    assert np.allclose(difference, 1.5 * np.exp(-0.1 * t) * np.sin(0.7 * t), atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"classes": 1}, "at least 2"),
        ({"horizon": 1}, "at least 2"),
        ({"sequences": 0}, "at least 1"),
        ({"classes": 5, "dimension": 4}, "number of classes"),
        ({"separation": 0.0}, "positive"),
        ({"prior": [0.5, 0.2]}, "sum to 1"),
    ],
)
def test_bad_descriptions_are_refused(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        gaussian(**arguments)


def test_rows_need_not_be_whole_blocks():
    problem = gaussian(sequences=2_500, horizon=3, dimension=4)
    for rows in (slice(10, 1_000), slice(900, 2_100), slice(2_400, 2_500)):
        batch = problem.rows(rows)
        assert np.array_equal(batch.features, problem.features[rows])
        assert np.array_equal(batch.labels, problem.labels[rows])


class TestAutoregressive:
    def test_evidence_is_the_log_density_of_the_series(self):
        problem = autoregressive((-0.4, 0.7), sequences=15, horizon=6, dimension=2, seed=3)
        lags = np.abs(np.subtract.outer(np.arange(6), np.arange(6)))
        exact = np.zeros((15, 6, 2))
        for k, phi in enumerate(problem.coefficients):
            covariance = phi**lags / (1 - phi**2)
            for t in range(1, 7):
                law = multivariate_normal(np.zeros(t), covariance[:t, :t])
                exact[:, t - 1, k] = sum(law.logpdf(problem.features[:, :t, axis]) for axis in range(2))
        difference = problem.evidence - exact
        assert np.allclose(difference, difference[..., :1], atol=1e-4)

    def test_series_have_the_spread_and_memory_they_claim(self):
        problem = autoregressive((0.0, 0.8), sequences=8_000, horizon=6, seed=1)
        for k, phi in enumerate(problem.coefficients):
            own = problem.features[problem.labels == k].astype(float)
            assert own.var(axis=(0, 2)) == pytest.approx(np.full(6, 1 / (1 - phi**2)), rel=0.06)
            assert (own[:, 1:] * own[:, :-1]).mean() / own.var() == pytest.approx(phi, abs=0.03)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"coefficients": (0.5,)}, "two at least"),
            ({"coefficients": (0.5, 1.0)}, "between -1 and 1"),
            ({"coefficients": (0.5, 0.5)}, "differ"),
            ({"dimension": 0}, "dimension"),
        ],
    )
    def test_bad_descriptions_are_refused(self, changes, message):
        with pytest.raises(InvalidInput, match=message):
            autoregressive(**changes)
