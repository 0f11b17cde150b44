"""Classifiers that people already have become evidence."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import train_test_split

import firmbound
from firmbound.errors import InvalidInput
from firmbound.evaluation.calibration import calibration
from firmbound.posterior import posterior
from firmbound.readers.prefixes import PrefixClassifiers, prefix_posteriors


def gaussian(sequences, seed):
    return firmbound.datasets.gaussian(3, sequences, 6, seed, dimension=3, separation=0.8)


def exact_classifier(prefix):
    scores = 0.8 * prefix.sum(axis=1)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def test_a_callable_on_prefixes_gives_its_evidence():
    problem = gaussian(50, 1)
    found = firmbound.evidence_from_posteriors(prefix_posteriors(exact_classifier, problem.features))
    assert np.allclose(found - found.max(-1, keepdims=True), problem.evidence, atol=1e-4)


def test_a_torch_module_is_called_too():
    problem, module = gaussian(10, 1), torch.nn.Linear(3, 3)
    found = prefix_posteriors(lambda x: module(torch.as_tensor(x).sum(1)).softmax(-1), problem.features)
    expected = module(torch.as_tensor(problem.features[:, :4]).sum(1)).softmax(-1)
    assert np.allclose(found[:, 3], expected.detach().numpy(), atol=1e-6)


def test_between_checkpoints_the_last_answer_stays():
    problem = gaussian(20, 1)
    found = prefix_posteriors(exact_classifier, problem.features, checkpoints=[1, 4])
    assert np.array_equal(found[:, 0], found[:, 2])
    assert np.array_equal(found[:, 3], found[:, 5])
    assert np.allclose(found[:, 3], exact_classifier(problem.features[:, :4]))


def test_fitted_classifiers_are_nearly_the_exact_ones():
    train, fresh = gaussian(4_000, 1), gaussian(2_000, 2)
    reader = PrefixClassifiers(LogisticRegression(), classes=3)
    out_of_fold, learned = reader.fit(train.features, train.labels), reader.evidence(fresh.features)
    for evidence, problem in ((out_of_fold, train), (learned, fresh)):
        ratio, truth = (e[:, -1, 0] - e[:, -1, 1] for e in (evidence, problem.evidence))
        assert np.corrcoef(ratio, truth)[0, 1] > 0.98
        assert calibration(evidence, problem.labels).error.max() < 0.05


def test_evidence_holds_no_prior():
    """Labels four to one: posteriors lean to the frequent class, evidence does not."""
    train = firmbound.datasets.gaussian(2, 4_000, 4, 1, dimension=2, separation=0.8, prior=[0.8, 0.2])
    reader = PrefixClassifiers(LogisticRegression(), classes=2, prior=[0.8, 0.2])
    evidence = reader.fit(train.features, train.labels)
    assert calibration(evidence, train.labels, reader.prior).error.max() < 0.04
    exact = train.evidence[:, -1].astype(float)
    bias = np.mean((evidence[:, -1, 0] - evidence[:, -1, 1]) - (exact[:, 0] - exact[:, 1]))
    assert bias == pytest.approx(0, abs=0.15)


def test_out_of_fold_beliefs_are_not_those_of_classifiers_that_saw_the_labels():
    """Labels that are pure chance: classifiers that saw them are sure, those of other folds are right half the time."""
    random = np.random.default_rng(0)
    X, y = random.standard_normal((120, 3, 20)), random.integers(0, 2, 120)
    reader = PrefixClassifiers(LogisticRegression(C=100.0), classes=2)
    honest = reader.fit(X, y)[:, -1].argmax(-1)
    seen = reader.evidence(X)[:, -1].argmax(-1)
    assert np.mean(seen == y) > 0.9
    assert np.mean(honest == y) < 0.65


def test_digits_are_told_early():
    """Rows of 8 x 8 digits as time: nearly as right as a logistic regression on all rows, before all are seen."""
    data = load_digits()
    X, X_new, y, y_new = train_test_split(
        data.images / 16, data.target, test_size=0.3, stratify=data.target, random_state=0
    )
    plain = LogisticRegression(max_iter=2_000)
    reader = PrefixClassifiers(plain, classes=10)
    rule = firmbound.fit_stopping_rule(reader.fit(X, y), costs=[0.4], prior=reader.prior, method="gp")
    chosen = rule.decide(reader.evidence(X_new))
    all_rows = plain.fit(X.reshape(len(X), -1), y).score(X_new.reshape(len(X_new), -1), y_new)
    assert np.mean(chosen.label == y_new) > all_rows - 0.015
    assert chosen.time.mean() < 0.7 * 8
    belief = posterior(reader.evidence(X_new)[:, -1], reader.prior)
    assert np.mean(belief.argmax(-1) == y_new) == pytest.approx(all_rows, abs=0.01)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda p: prefix_posteriors(lambda x: np.ones((len(x), 3)), p.features), "sum to 1"),
        (lambda p: prefix_posteriors(lambda x: np.ones(3), p.features), "classify.*shape"),
        (lambda p: prefix_posteriors(exact_classifier, p.features, checkpoints=[2, 4]), "checkpoints"),
        (lambda p: prefix_posteriors(exact_classifier, p.features, checkpoints=[1, 9]), "checkpoints"),
        (lambda p: prefix_posteriors(exact_classifier, p.features[0]), "features"),
        (lambda p: PrefixClassifiers(RidgeClassifier(), classes=3), "predict_proba"),
        (lambda p: PrefixClassifiers(LogisticRegression(), classes=3, folds=1), "folds"),
        (lambda p: PrefixClassifiers(LogisticRegression(), classes=4).fit(p.features, p.labels), "every class 5 times"),
        (lambda p: PrefixClassifiers(LogisticRegression(), classes=3).evidence(p.features), "Call fit"),
    ],
)
def test_what_cannot_be_used_is_refused(ask, message):
    with pytest.raises(InvalidInput, match=message):
        ask(gaussian(60, 1))
