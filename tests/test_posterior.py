import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from firmbound import InvalidInput, evidence_from_posteriors
from firmbound.posterior import RANKS, class_prior, log_likelihood_ratios, posterior, ranked

evidences = arrays(np.float64, (4, 3), elements=st.floats(-300, 300))


@given(evidences, st.floats(-1e3, 1e3))
def test_a_constant_shared_by_all_classes_changes_nothing(evidence, shift):
    prior = class_prior([0.2, 0.3, 0.5], 3)
    assert np.allclose(posterior(evidence, prior), posterior(evidence + shift, prior), atol=1e-12)


@given(evidences)
def test_bayes_rule_holds(evidence):
    prior = class_prior([0.2, 0.3, 0.5], 3)
    weights = np.exp(evidence - evidence.max(axis=-1, keepdims=True)) * prior
    assert np.allclose(posterior(evidence, prior), weights / weights.sum(axis=-1, keepdims=True), rtol=1e-12)


def test_small_posteriors_keep_their_digits():
    belief = posterior(np.array([[0.0, 50.0]]), class_prior(None, 2))
    assert belief[0, 0] == pytest.approx(np.exp(-50), rel=1e-12)
    assert posterior(np.array([[0.0, 2000.0]]), class_prior(None, 2)).tolist() == [[0.0, 1.0]]


def test_ratios_are_differences_from_the_last_class():
    assert log_likelihood_ratios(np.array([[3.0, 1.0, 0.5]])).tolist() == [[2.5, 0.5]]


@given(arrays(np.float64, (4, 5), elements=st.floats(-300, 300)), st.permutations(range(5)))
def test_ranks_are_the_largest_in_order_and_the_rest_whatever_their_classes(evidence, order):
    belief = posterior(evidence, class_prior(None, 5))
    found = ranked(belief)
    assert np.array_equal(found[:, :RANKS], np.sort(belief, axis=1)[:, ::-1][:, :RANKS])
    assert np.allclose(found.sum(axis=1), 1.0, atol=1e-12)
    assert np.array_equal(found, ranked(belief[:, order]))
    assert np.array_equal(found, [ranked(row) for row in belief])


def test_the_rest_keeps_its_digits():
    found = ranked(np.array([1.0, 1e-20, 3e-30, 4e-30]))
    assert found[2] == pytest.approx(7e-30, rel=1e-12)
    assert ranked(np.array([0.3, 0.7])).tolist() == [0.7, 0.3, 0.0]


@given(arrays(np.float64, (2, 3, 3), elements=st.floats(-30, 30)))
def test_evidence_of_posteriors_gives_the_posteriors_back(evidence):
    prior = class_prior([0.5, 0.25, 0.25], 3)
    belief = posterior(evidence, prior)
    assert np.allclose(posterior(evidence_from_posteriors(belief, prior), prior), belief, rtol=1e-9)


def test_a_posterior_of_zero_gives_finite_evidence():
    assert np.all(np.isfinite(evidence_from_posteriors([[[0.0, 1.0], [0.5, 0.5]]])))


@pytest.mark.parametrize(
    ("posteriors", "message"),
    [
        ([[[0.4, 0.4], [0.5, 0.5]]], "sum to 1"),
        ([[[-0.1, 1.1], [0.5, 0.5]]], "non-negative"),
        ([[0.4, 0.6]], r"shape \(n, T, K\)"),
        ([[[np.nan, 1.0]]], "finite"),
    ],
)
def test_bad_posteriors_are_refused(posteriors, message):
    with pytest.raises(InvalidInput, match=message):
        evidence_from_posteriors(posteriors)


@pytest.mark.parametrize(
    ("prior", "message"),
    [([0.5, 0.6], "sum to 1"), ([1.0, 0.0], "positive"), ([1.0], "shape"), ([[0.5, 0.5]], "shape")],
)
def test_bad_priors_are_refused(prior, message):
    with pytest.raises(InvalidInput, match=message):
        class_prior(prior, 2)
