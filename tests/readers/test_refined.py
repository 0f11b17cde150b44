"""A refined reader is a reader like others: whatever reads inside, streams and pools say what the batch says."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import firmbound
from firmbound.early_classifier import EarlyClassifier
from firmbound.errors import BundleError, InvalidInput
from firmbound.readers.beliefs import BeliefReader
from firmbound.readers.prefixes import PrefixClassifiers, PrefixFunction
from firmbound.readers.refined import INNER, REFINER, RefinedReader
from firmbound.refinement.options import RefinementOptions
from firmbound.tandem.model import TandemModel
from firmbound.tandem.network import TandemNetwork

HORIZON = 6
# A network that knows nothing says little, so its refinement has large weights: rounding grows by them.
CLOSE = 2e-4
SHARES = np.full(3, 1 / 3)
OPTIONS = {"units": 12, "folds": 3, "ridge": 10.0}


def gaussian(sequences, seed):
    return firmbound.datasets.gaussian(3, sequences, HORIZON, seed, dimension=3, separation=0.8)


def softmax(prefix):
    scores = 0.8 * np.asarray(prefix, dtype=float).sum(axis=1)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def tandem():
    torch.manual_seed(0)
    network = firmbound.NetworkOptions(order=1, projection=8, hidden=8)
    return TandemModel(TandemNetwork(3, 3, network), SHARES, SHARES)


def classifiers(train):
    reader = PrefixClassifiers(LogisticRegression(), classes=3, checkpoints=[1, 2, 4])
    reader.fit(train.features, train.labels)
    return reader


READERS = {
    "given": lambda train: BeliefReader("given", SHARES),
    "given, heard": lambda train: BeliefReader("given", SHARES),
    "network": lambda train: tandem(),
    "network, heard": lambda train: tandem(),
    "classifiers": classifiers,
    "classifiers, heard": classifiers,
    "function": lambda train: PrefixFunction(softmax, dimension=3, shares=SHARES, horizon=HORIZON, checkpoints=None),
}


@pytest.fixture(scope="module", params=READERS)
def reader(request):
    train = gaussian(150, 1)
    inner = READERS[request.param](train)
    hears = "heard" in request.param
    refiner, _ = firmbound.fit_refiner(
        inner.evidence(train.features),
        train.labels,
        features=train.features if hears else None,
        options=RefinementOptions(**OPTIONS, inputs="features" if hears else "evidence"),
    )
    return RefinedReader(inner, refiner)


def test_it_is_the_refined_evidence_of_the_reader_inside(reader):
    X = gaussian(20, 2).features
    features = X if reader.refiner.hears_features else None
    assert np.array_equal(reader.evidence(X), reader.refiner.refine(reader.reader.evidence(X), features))
    assert not np.allclose(reader.evidence(X), reader.reader.evidence(X), atol=1e-3)
    assert reader.dimension == 3
    assert isinstance(reader, firmbound.readers.protocol.EvidenceReader)
    if reader.refiner.hears_features:  # the same evidence after another observation is refined to another
        other = reader.refiner.refine(reader.reader.evidence(X), X[::-1])
        assert not np.allclose(other, reader.evidence(X), atol=1e-3)


def test_streams_are_the_batch(reader):
    X = gaussian(10, 2).features
    batch = reader.evidence(X)
    for one, expected in zip(X, batch, strict=True):
        stream = reader.stream()
        found = np.stack([stream.push(x) for x in one])
        assert stream.time == HORIZON
        assert found.dtype == np.float64
        assert np.allclose(found, expected, atol=CLOSE)


def test_a_pool_is_the_batch_also_where_series_begin_at_different_times(reader):
    X = gaussian(40, 3).features
    batch = reader.evidence(X)
    pool, random = reader.pool(12), np.random.default_rng(0)
    series, at = np.arange(12), np.zeros(12, dtype=np.int64)
    fresh = 12
    for _ in range(30):
        here = random.permutation(np.flatnonzero((random.random(12) < 0.6) & (at < HORIZON)))
        if len(here):
            found = pool.advance(here, X[series[here], at[here]])
            assert np.allclose(found, batch[series[here], at[here]], atol=CLOSE)
            at[here] += 1
        done = np.flatnonzero((at == HORIZON) | (random.random(12) < 0.05))[: 40 - fresh]  # some end before
        if len(done):
            pool.reset(done)
            series[done], at[done] = np.arange(fresh, fresh + len(done)), 0
            fresh += len(done)
    assert fresh == 40


def test_a_state_goes_on_and_does_not_grow(reader):
    X = gaussian(3, 4).features
    for one in X:
        stream, sizes = reader.stream(), []
        states, said = [stream.state()], [np.zeros(3)]
        for x in one:
            said.append(stream.push(x))
            states.append(stream.state())
            sizes.append(sum(part.nbytes for name, part in states[-1].items() if "inner/" not in name))
        assert len(set(sizes)) == 1
        for t, state in enumerate(states[:-1]):  # what was handed out stays as it was, whatever came later
            other = reader.stream()
            assert np.array_equal(other.restore(state), said[t])
            assert other.time == t
            assert all(np.array_equal(other.push(x), found) for x, found in zip(one[t:], said[t + 1 :], strict=True))


def test_a_stream_may_go_on_beyond_the_horizon(reader):
    stream = reader.stream()
    for x in np.resize(gaussian(1, 4).features, (3 * HORIZON, 3)):
        assert np.isfinite(stream.push(x)).all()


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.pop("past/units"),
        lambda state: state.pop("refined"),
        lambda state: state.pop("inner/time"),
        lambda state: state.update({"past/units": state["past/units"][:, 1:]}),
        lambda state: state.update({"past/last": state["past/last"].astype(np.float64)}),
        lambda state: state.update({"past/total": state["past/total"] * np.nan}),
        lambda state: state.update({"past/units": state["past/units"] + 2}),
        lambda state: state.update({"refined": state["refined"][:2]}),
        lambda state: state.update({"refined": state["refined"].astype(np.float32)}),
        lambda state: state.update({"refined": state["refined"] - np.inf}),
        lambda state: state.update({"inner/evidence": state["inner/evidence"][:2]}),
    ],
)
def test_foreign_states_are_refused_and_change_nothing(reader, change):
    X = gaussian(2, 5).features
    stream, other, same = reader.stream(), reader.stream(), reader.stream()
    for x in X[0, :3]:
        stream.push(x)
    for x in X[1, :2]:
        other.push(x)
        same.push(x)
    state = {name: np.array(part) for name, part in stream.state().items()}
    with np.errstate(invalid="ignore"):
        change(state)
    with pytest.raises((ValueError, KeyError)):
        other.restore(state)
    assert np.array_equal(other.push(X[1, 2]), same.push(X[1, 2]))


def test_an_observation_that_is_refused_is_as_if_it_had_not_come(reader):
    X = gaussian(5, 6).features
    stream, pool = reader.stream(), reader.pool(5)
    batch = reader.evidence(X)
    for t in range(HORIZON):
        for bad in (np.zeros(2), np.full(3, np.nan)):
            with pytest.raises(InvalidInput):
                stream.push(bad)
        assert np.allclose(stream.push(X[0, t]), batch[0, t], atol=CLOSE)
        with pytest.raises((InvalidInput, IndexError, RuntimeError, ValueError)):
            pool.advance(np.arange(5), X[:, t, :2])
        assert np.allclose(pool.advance(np.arange(5), X[:, t]), batch[:, t], atol=CLOSE)


def test_a_reader_inside_that_fails_leaves_all_as_it_was():
    away = [False]

    def shaky(prefix):
        if away[0] and prefix.shape[1] == 3:
            raise RuntimeError("the model server is away")
        return softmax(prefix)

    train = gaussian(150, 1)
    inner = PrefixFunction(shaky, dimension=3, shares=SHARES, horizon=HORIZON, checkpoints=None)
    refiner, _ = firmbound.fit_refiner(inner.evidence(train.features), train.labels)
    reader, X = RefinedReader(inner, refiner), gaussian(4, 2).features
    batch, stream, pool = reader.evidence(X), reader.stream(), reader.pool(4)
    at = np.array([2, 2, 1, 0])  # only some fail, after others were read
    for t in range(2):
        stream.push(X[0, t])
        here = np.flatnonzero(at > t)
        pool.advance(here, X[here, t])
    away[0] = True
    with pytest.raises(RuntimeError):
        stream.push(X[0, 2])
    with pytest.raises(RuntimeError):
        pool.advance(np.arange(4), X[np.arange(4), at])
    away[0] = False
    for _ in range(4):
        found = pool.advance(np.arange(4), X[np.arange(4), at])
        assert np.allclose(found, batch[np.arange(4), at], atol=CLOSE)
        at += 1
    assert np.allclose(stream.push(X[0, 2]), batch[0, 2], atol=CLOSE)


@pytest.mark.parametrize("size", [1e10, 1e30, 3e38])
def test_observations_of_any_size_leave_pool_and_stream_together(reader, size):
    """Refused by the reader inside, or read: in both cases all parts stay at one time, and all evidence is finite."""
    X = gaussian(4, 7).features.astype(np.float32)
    huge = np.float32(size) * np.array([1, -1, -1], dtype=np.float32)
    stream, pool = reader.stream(), reader.pool(4)
    for t in range(3):
        try:
            assert np.isfinite(stream.push(huge)).all()
        except InvalidInput:
            stream.push(X[0, t])
        try:
            found = pool.advance(np.arange(4), np.where(np.arange(4)[:, None] == 2, huge, X[:, t]))
            assert np.isfinite(found).all()
        except InvalidInput:
            pool.advance(np.arange(4), X[:, t])
    assert stream.time == 3
    assert np.isfinite(stream.push(X[0, 3])).all()
    assert np.isfinite(pool.advance(np.arange(4), X[:, 3])).all()
    if hasattr(pool._inner, "_time"):
        assert np.array_equal(pool._inner._time, pool._time)


def test_it_must_hear_what_the_reader_reads():
    train = firmbound.datasets.gaussian(3, 60, 4, 1, dimension=5)
    options = RefinementOptions(**OPTIONS, inputs="features")
    refiner, _ = firmbound.fit_refiner(train.evidence, train.labels, features=train.features, options=options)
    with pytest.raises(InvalidInput, match="refiner"):
        RefinedReader(BeliefReader("given", SHARES), refiner)


SOURCES = {"given": "given", "classifiers": LogisticRegression(), "function": softmax, "network": "network"}


def two_classes(sequences, seed, source):
    problem = firmbound.datasets.gaussian(2, sequences, HORIZON, seed, dimension=2, separation=0.8)
    return problem.evidence if source == "given" else problem.features, problem.labels


def refined_classifier(source, inputs="evidence", refine="always"):
    return EarlyClassifier(
        cost=0.1,
        costs=[0.5],
        evidence=SOURCES[source],
        refine=refine,
        refinement=RefinementOptions(units=8, folds=2, ridge=30.0, inputs=inputs),
        training=firmbound.TrainingOptions(epochs=1, batch=50),
        network=firmbound.NetworkOptions(order=1, projection=8, hidden=8),
    ).fit(*two_classes(300, 1, source))


@pytest.mark.parametrize("inputs", ["evidence", "features"])
@pytest.mark.parametrize("source", SOURCES)
def test_saved_is_loaded_and_streams_go_on(source, inputs, tmp_path):
    classifier = refined_classifier(source, inputs)
    assert isinstance(classifier.reader_, RefinedReader)
    assert classifier.reader_.refiner.hears_features == (inputs == "features")
    classifier.save(tmp_path / "model")
    loaded = EarlyClassifier.load(tmp_path / "model", classify=softmax if source == "function" else None)
    X, _ = two_classes(40, 2, source)
    assert np.array_equal(loaded.reader_.evidence(X), classifier.reader_.evidence(X))
    one, other = classifier.decide(X), loaded.decide(X)
    assert np.array_equal(one.time, other.time)
    assert np.array_equal(one.label, other.label)
    assert loaded.get_params()["refinement"] == classifier.refinement
    assert loaded.about_["refined"] is True
    files = {file.name for file in (tmp_path / "model").rglob("*") if file.is_file()}
    assert files == {"header.json", "arrays.safetensors"}
    pool = loaded.pool(40)
    for t in range(HORIZON):
        steps = pool.push(X[:, t])
    assert np.array_equal(steps.time, one.time)
    assert np.array_equal(steps.label, one.label)
    for place in range(10):
        stream = classifier.stream()
        for t in range(HORIZON):
            if t == 2:
                stream = loaded.stream(stream.state())
            step = stream.push(X[place, t])
        assert (step.time, step.label) == (one.time[place], one.label[place])


def test_states_with_and_without_refinement_are_not_exchanged():
    plain, refined = (refined_classifier("given", refine=asked) for asked in ("never", "always"))
    for one, other in ((plain, refined), (refined, plain)):
        stream = one.stream()
        stream.push([0.1, -0.1])
        one.stream(stream.state())
        with pytest.raises(BundleError, match="no state"):
            other.stream(stream.state())


def test_parts_of_another_classifier_are_refused(tmp_path):
    classifier = refined_classifier("given")
    classifier.save(tmp_path / "model")
    other = firmbound.datasets.gaussian(3, 60, 4, 1, dimension=5)
    for inputs, features in (("evidence", None), ("features", other.features)):
        options = RefinementOptions(**OPTIONS, inputs=inputs)
        refiner, _ = firmbound.fit_refiner(other.evidence, other.labels, features=features, options=options)
        refiner.save(tmp_path / "model" / "reader" / REFINER)
        with pytest.raises(BundleError, match="refiner"):
            EarlyClassifier.load(tmp_path / "model")
    for gone in (INNER, REFINER):
        classifier.save(tmp_path / gone)
        (tmp_path / gone / "reader" / gone).rename(tmp_path / f"{gone} taken out")
        with pytest.raises(BundleError, match="no model"):
            EarlyClassifier.load(tmp_path / gone)
