"""People who have a model already: its beliefs get rules, fronts, promises, streams and a folder like the network's."""

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import firmbound
from firmbound.early_classifier import EarlyClassifier
from firmbound.errors import BundleError, InvalidInput
from firmbound.posterior import posterior

NAMES = np.array(["a", "b", "c"])
COSTS = {"cost": 0.3, "costs": [0.1, 1.0]}


def gaussian(sequences, seed):
    return firmbound.datasets.gaussian(3, sequences, 6, seed, dimension=3, separation=0.8)


def exact(prefix):
    """The true posteriors of `gaussian`, from prefixes (n, t, d)."""
    scores = 0.8 * np.asarray(prefix, dtype=float).sum(axis=1)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


class Module(torch.nn.Module):
    def forward(self, prefix):
        assert not self.training
        return (0.8 * prefix.sum(1)).softmax(-1)


SOURCES = {
    "logistic": LogisticRegression(),
    "pipeline": make_pipeline(StandardScaler(), LogisticRegression()),
    "forest": RandomForestClassifier(30, random_state=0),
    "callable": exact,
    "torch": Module(),
    "posteriors": "posteriors",
    "given": "given",
}


def features_of(source, problem):
    if source == "posteriors":
        return posterior(problem.evidence, np.full(3, 1 / 3))
    return problem.evidence if source == "given" else problem.features


@pytest.fixture(scope="module", params=SOURCES)
def made(request):
    train = gaussian(900, 1)
    classifier = EarlyClassifier(evidence=SOURCES[request.param], **COSTS)
    return request.param, classifier.fit(features_of(request.param, train), NAMES[train.labels])


@pytest.fixture(scope="module")
def best_rule():
    """Of exact evidence, and of many sequences."""
    return firmbound.fit_stopping_rule(gaussian(5_000, 3).evidence, costs=[0.3])


def test_every_source_decides_early_and_mostly_right(made, best_rule):
    name, classifier = made
    fresh = gaussian(600, 2)
    chosen = classifier.decide(features_of(name, fresh))
    best = best_rule.decide(fresh.evidence)
    wrong = np.mean(chosen.label != NAMES[fresh.labels])
    assert wrong < np.mean(best.label != fresh.labels) + (0.12 if name == "forest" else 0.05)
    assert chosen.time.mean() < 5
    points = classifier.front(features_of(name, fresh), NAMES[fresh.labels])
    assert [point.cost for point in points] == [0.1, 0.3, 1.0]


def test_streams_and_pools_read_as_the_batch_does(made):
    name, classifier = made
    X = np.asarray(features_of(name, gaussian(40, 4)))
    chosen = classifier.decide(X)
    pool = classifier.pool(40)
    for t in range(6):
        steps = pool.push(X[:, t])
    assert np.array_equal(steps.time, chosen.time)
    assert np.array_equal(NAMES[steps.label], chosen.label)
    for place in range(40):
        stream = classifier.stream()
        for t in range(6):
            if t == 2:
                stream = classifier.stream(stream.state())
            step = stream.push(X[place, t])
        assert (step.time, step.label) == (chosen.time[place], chosen.label[place])
    pool.reset([0])
    again = pool.push(X[1:2, 0], [0])
    assert again.time[0] == 1


def test_every_source_is_saved_and_loaded(made, tmp_path):
    name, classifier = made
    X = features_of(name, gaussian(60, 5))
    classifier.save(tmp_path / "model")
    own = SOURCES[name] if name in ("callable", "torch") else None
    if own is not None:
        with pytest.raises(BundleError, match="Load with `classify`"):
            EarlyClassifier.load(tmp_path / "model")
    if name == "forest":
        with pytest.raises(BundleError, match="load it with `trusted`"):
            EarlyClassifier.load(tmp_path / "model")
    loaded = EarlyClassifier.load(tmp_path / "model", classify=own, trusted=["sklearn.tree._tree.Tree"])
    one, other = classifier.decide(X), loaded.decide(X)
    assert np.array_equal(one.time, other.time)
    assert np.array_equal(one.label, other.label)
    assert loaded.at_error(0.5).cost == classifier.at_error(0.5).cost
    files = {file.name for file in (tmp_path / "model").rglob("*") if file.is_file()}
    assert files == {"header.json", "arrays.safetensors"}


def test_a_reader_that_fails_once_has_seen_nothing():
    away = [False]

    def shaky(prefix):
        if away[0]:
            raise RuntimeError("the model server is away")
        return exact(prefix)

    train = gaussian(120, 1)
    classifier = EarlyClassifier(evidence=shaky, **COSTS).fit(train.features, train.labels).at_cost(0.1)
    stream, pool, steady = classifier.stream(), classifier.pool(1), EarlyClassifier(evidence=exact, **COSTS)
    other = steady.fit(train.features, train.labels).at_cost(0.1).stream()
    for one in (lambda x: stream.push(x), lambda x: pool.push(x[None])):
        one(train.features[0, 0])
        away[0] = True
        with pytest.raises(RuntimeError):
            one(train.features[0, 1])
        away[0] = False
        one(train.features[0, 1])
    for x in train.features[0, :2]:
        step = other.push(x)
    assert stream.last.stopping_risk == pytest.approx(step.stopping_risk)
    assert pool._stopping[0] == pytest.approx(step.stopping_risk)
    classifier.stream(stream.state())


class Homemade(ClassifierMixin, BaseEstimator):
    """A classifier that scikit-learn does not know."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        return np.full((len(X), len(self.classes_)), 1 / len(self.classes_))


def test_a_type_that_is_not_known_is_not_loaded_unseen(tmp_path):
    train = gaussian(120, 1)
    EarlyClassifier(evidence=Homemade(), **COSTS).fit(train.features, train.labels).save(tmp_path / "model")
    with pytest.raises(BundleError, match="not loaded unseen"):
        EarlyClassifier.load(tmp_path / "model")


def test_what_stops_too_soon_is_not_believed():
    """A forest knows its own training sequences by heart: rules must go by what others say of them."""
    random = np.random.default_rng(0)
    X, y = random.standard_normal((300, 4, 5)), random.integers(0, 2, 300)
    classifier = EarlyClassifier(evidence=RandomForestClassifier(20, random_state=0), **COSTS).fit(X, y)
    believed = classifier.record(X).confidence.mean()
    held_out = classifier.record_.confidence[1].mean()
    assert held_out < 0.75  # nothing can be known: nobody is sure
    assert believed > held_out


@pytest.mark.parametrize(
    ("evidence", "X", "message"),
    [
        ("posteriors", np.full((30, 4, 3), 0.5), "sum to 1"),
        ("posteriors", np.full((30, 4, 2), 0.5), "one a class"),
        ("given", np.zeros((30, 4, 5)), "one a class"),
        (lambda x: np.ones((len(x), 7)) / 7, np.zeros((30, 4, 5)), "classify"),
        (lambda x: "nothing", np.zeros((30, 4, 5)), "classify"),
        ("magic", np.zeros((30, 4, 5)), "evidence"),
        (LogisticRegression, np.zeros((30, 4, 5)), "evidence"),
    ],
)
def test_beliefs_that_are_none_are_refused(evidence, X, message):
    with pytest.raises(InvalidInput, match=message):
        EarlyClassifier(evidence=evidence, **COSTS).fit(X, np.arange(30) % 3)


def test_checkpoints_that_too_few_reach_are_left_out():
    train = gaussian(300, 1)
    lengths = np.full(300, 3)
    lengths[:4] = 6
    reader = firmbound.PrefixClassifiers(LogisticRegression(), classes=3)
    evidence = reader.fit(train.features, train.labels, lengths)
    assert reader.asked.tolist() == [1, 2, 3]
    assert np.array_equal(evidence[:, 3], evidence[:, 2])
    shorter = reader.evidence(train.features[:, :2])
    assert np.allclose(shorter, reader.evidence(train.features)[:, :2])
