"""Ridge classifiers in blocks: scikit-learn, and leaving out for real, are the judges."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge, RidgeClassifierCV, RidgeCV
from sklearn.model_selection import StratifiedKFold

from firmbound.baselines import ridge
from firmbound.baselines.ridge import Moments, fit_ridge, scores_of_other_folds, signs_of

ALPHAS = (1e-3, 1.0, 30.0, 1e3, 1e5)


def some_features(count, dimension, classes, seed=0, told=0.5):
    """Features of which a few tell the class, and labels; standardised but for chance."""
    random = np.random.default_rng(seed)
    labels = random.permutation(np.arange(count) % classes)
    features = random.normal(size=(count, dimension))
    features[:, :classes] += told * np.eye(classes)[labels]
    return features.astype(np.float32), labels


def test_signs_are_of_the_class_and_of_two_classes_the_second_alone():
    assert signs_of(np.array([0, 2, 1]), 3).tolist() == [[1, -1, -1], [-1, -1, 1], [-1, 1, -1]]
    assert signs_of(np.array([0, 1]), 2).tolist() == [[-1], [1]]


@settings(deadline=None, max_examples=40)
@given(
    st.integers(10, 150), st.integers(1, 60), st.integers(2, 4), st.sampled_from([3, 50, 2_000]), st.integers(0, 10**6)
)
def test_penalty_and_scores_are_scikit_learns(count, dimension, classes, block, seed):
    """With more features than sequences, and fewer; whatever the blocks."""
    features, labels = some_features(count, max(dimension, classes), classes, seed)
    targets = signs_of(labels, classes)
    # scikit-learn keeps single precision of wide features.
    near = 2e-4 if features.shape[0] <= features.shape[1] else 1e-8
    for alphas in (ALPHAS, ALPHAS[:1], ALPHAS[1:2]):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ridge, "BLOCK", block)
            found = fit_ridge(features, targets, alphas)
            scores = found.of(features)
        judge = RidgeCV(list(alphas)).fit(features.astype(np.float64), targets)
        expected = judge.predict(features.astype(np.float64)).reshape(scores.shape)
        assert found.alpha == judge.alpha_
        assert np.allclose(scores, expected, atol=near)


@pytest.mark.parametrize("classes", [2, 5])
def test_decisions_are_those_of_scikit_learns_classifier(classes):
    features, labels = some_features(400, 30, classes, told=1.0)
    found = fit_ridge(features, signs_of(labels, classes), ALPHAS)
    judge = RidgeClassifierCV(list(ALPHAS)).fit(features.astype(np.float64), labels)
    expected = judge.decision_function(features.astype(np.float64)).reshape(400, -1)
    assert np.allclose(found.of(features), expected, atol=1e-9)


@pytest.mark.parametrize(("told", "chosen"), [(0.3, 1e4), (4.0, 1e-2)])
def test_errors_are_those_of_leaving_each_sequence_out(told, chosen, monkeypatch):
    """Where features tell little the strong penalty is better, where they tell much the weak one."""
    features, labels = some_features(40, 12, 3, told=told)
    targets, double = signs_of(labels, 3), features.astype(np.float64)

    def error(penalty):
        left = []
        for one in range(40):
            others = np.arange(40) != one
            left.append(Ridge(penalty).fit(double[others], targets[others]).predict(double[[one]])[0] - targets[one])
        return np.mean(np.square(left))

    seen = []
    plain = ridge._left_out_errors
    monkeypatch.setattr(ridge, "_left_out_errors", lambda *given: seen.append(plain(*given)) or seen[-1])
    assert fit_ridge(features, targets, (1e-2, 1e4)).alpha == chosen
    assert np.allclose(seen[0], [error(1e-2), error(1e4)], rtol=1e-9)


@pytest.mark.parametrize(("count", "dimension"), [(90, 20), (60, 75), (70, 62)])
@pytest.mark.parametrize("classes", [2, 3])
def test_each_sequence_is_scored_by_a_classifier_of_the_other_folds(count, dimension, classes):
    """Of the last size, all sequences are more than features and those of four folds fewer."""
    features, labels = some_features(count, dimension, classes)
    targets, double = signs_of(labels, classes), features.astype(np.float64)
    folds = list(StratifiedKFold(5, shuffle=True, random_state=1).split(labels, labels))
    found = scores_of_other_folds(features, targets, 0.3, folds)
    for others, own in folds:
        alone = Ridge(0.3).fit(double[others], targets[others]).predict(double[own])
        assert np.allclose(found[own], alone.reshape(len(own), -1), atol=1e-9)


def test_sums_without_some_are_the_sums_of_the_others():
    features, labels = some_features(50, 6, 3)
    targets = signs_of(labels, 3)
    less = Moments.of(features, targets).without(Moments.of(features[:20], targets[:20]))
    others = Moments.of(features[20:], targets[20:])
    assert less.count == others.count
    for name in ("features", "targets", "squares", "products"):
        assert np.allclose(getattr(less, name), getattr(others, name))


def test_features_that_repeat_each_other_are_no_obstacle_to_a_tiny_penalty():
    features, labels = some_features(300, 20, 2)
    twice = np.hstack([features, features])
    targets = signs_of(labels, 2)
    folds = list(StratifiedKFold(5, shuffle=True, random_state=1).split(labels, labels))
    found = scores_of_other_folds(twice, targets, 1e-12, folds)
    assert np.allclose(found, scores_of_other_folds(features, targets, 1e-12, folds), atol=1e-3)
