"""Whatever comes in, out comes an answer or an error of ours, and no file is touched. More than 2,000 cases."""

import hashlib
import json
import shutil
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load, load_file, save, save_file
from sklearn.linear_model import LogisticRegression

import firmbound
from firmbound.bundle import ARRAYS, HEADER, header_sum
from firmbound.early.prefix_decisions import decide_prefixes
from firmbound.errors import BundleError, FirmboundError
from flows.cli_stream import parse_line

pytestmark = pytest.mark.filterwarnings("ignore::firmbound.errors.NotConvergedWarning")  # sixty sequences of noise
MANY = settings(
    max_examples=400,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
SOME = settings(MANY, max_examples=120)

DTYPES = st.sampled_from(["f8", "f4", "f2", "i8", "u1", "?", "c16", "U3", "O", "M8[s]", "m8[s]", "S2"])
SHAPES = st.one_of(
    hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5),
    st.tuples(st.integers(0, 6), st.just(5), st.just(2)),
)
SOME_ARRAYS = DTYPES.flatmap(
    lambda dtype: hnp.arrays(dtype, SHAPES) if dtype != "O" else hnp.arrays("O", SHAPES, elements=SCALARS)
)
SCALARS = st.one_of(
    st.floats(), st.integers(-(10**30), 10**30), st.booleans(), st.none(), st.text(max_size=3), st.binary(max_size=3)
)
NESTED = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4), max_leaves=10)
HUGE = st.sampled_from([np.full((2, 5, 2), 1e300), np.full((2, 5, 2), 1e-320), np.full((3, 5, 2), 3e38, "f4")])
ANYTHING = st.one_of(SOME_ARRAYS, NESTED, HUGE, st.dictionaries(st.text(max_size=2), SCALARS, max_size=2))
GOOD_X = np.random.default_rng(0).standard_normal((60, 5, 2))
GOOD_Y = np.arange(60) % 3


@pytest.fixture(scope="module")
def fitted():
    """Quick, with unequal lengths and gaps allowed: the most that can go wrong."""
    X = GOOD_X + GOOD_Y[:, None, None]
    classifier = firmbound.EarlyClassifier(
        evidence=LogisticRegression(), costs=[0.5, 1.0], cost=0.2, missing="skip", method="gp"
    )
    return classifier.fit(X, GOOD_Y)


@pytest.fixture(scope="module")
def network():
    training = firmbound.TrainingOptions(epochs=1, batch=20)
    return firmbound.EarlyClassifier(cost=0.2, costs=[0.5], training=training).fit(GOOD_X, GOOD_Y)


@pytest.fixture(scope="module")
def refined():
    """Hears features too."""
    options = firmbound.RefinementOptions(inputs="features", units=6, ridge=10.0, folds=2)
    classifier = firmbound.EarlyClassifier(
        evidence=LogisticRegression(),
        costs=[0.5],
        cost=0.2,
        missing="skip",
        method="gp",
        refine="always",
        refinement=options,
        checkpoints=[1, 3],
    )
    return classifier.fit(GOOD_X + GOOD_Y[:, None, None], GOOD_Y)


def ours(ask, *arguments, **named):
    """Nothing but an answer or an error of ours."""
    with suppress(FirmboundError):
        return ask(*arguments, **named)
    return None


def as_many_labels(sequences):
    """Good ones, so that what is wrong is the sequences."""
    try:
        return GOOD_Y[: len(sequences)]
    except TypeError:  # a scalar, or an array without dimensions
        return GOOD_Y


@MANY
@given(X=ANYTHING, lengths=st.one_of(st.none(), ANYTHING))
def test_whatever_is_to_be_decided(fitted, network, refined, X, lengths):
    for classifier in (fitted, network, refined):
        for ask in (classifier.decide, classifier.record, classifier.series):
            ours(ask, X, lengths=lengths)
        ours(decide_prefixes, classifier, X, lengths)


@MANY
@given(X=ANYTHING, y=ANYTHING)
def test_whatever_is_to_be_scored(fitted, X, y):
    for ask in (fitted.score, fitted.front, fitted.drift):
        ours(ask, X, y)
        ours(ask, GOOD_X, y)


@MANY
@given(X=ANYTHING, y=ANYTHING, lengths=st.one_of(st.none(), ANYTHING))
def test_whatever_is_to_be_fitted(X, y, lengths):
    quick = firmbound.EarlyClassifier(evidence="given", costs=[0.5], cost=0.2)
    ours(quick.fit, X, y, lengths=lengths)
    ours(quick.fit, GOOD_X, y)
    ours(quick.fit, X, GOOD_Y)
    options = firmbound.RefinementOptions(units=4, ridge=1.0)
    ours(quick.set_params(refine="always", refinement=options).fit, X, y, lengths=lengths)


@SOME
@given(evidence=ANYTHING, labels=ANYTHING, lengths=st.one_of(st.none(), ANYTHING), features=ANYTHING)
def test_whatever_is_to_be_refined(refined, evidence, labels, lengths, features):
    options = firmbound.RefinementOptions(units=4, ridge=1.0)
    hearing = firmbound.RefinementOptions(units=4, ridge=1.0, inputs="features")
    ours(firmbound.fit_refiner, evidence, labels, lengths=lengths, options=options)
    ours(firmbound.fit_refiner, evidence, as_many_labels(evidence), options=options)
    ours(firmbound.fit_refiner, GOOD_X, GOOD_Y % 2, lengths=lengths, features=features, options=hearing)
    ours(firmbound.fit_refiner, GOOD_X, labels, features=GOOD_X, options=hearing)
    ours(refined.reader_.refiner.refine, evidence, features)
    ours(refined.reader_.refiner.refine, np.zeros((2, 5, 3)), features)


@SOME
@given(name=st.sampled_from(list(firmbound.EarlyClassifier().get_params())), value=ANYTHING)
def test_whatever_a_parameter_is_set_to(name, value):
    quick = firmbound.EarlyClassifier(
        evidence="given", costs=[0.5], cost=0.2, training=firmbound.TrainingOptions(epochs=1, batch=10)
    )
    X = np.random.default_rng(0).standard_normal((30, 4, 3))
    ours(quick.set_params(**{name: value}).fit, X, np.arange(30) % 3)


@MANY
@given(pushed=st.lists(ANYTHING, max_size=3), state=st.one_of(st.none(), st.binary(max_size=200)))
def test_whatever_is_pushed(fitted, network, refined, pushed, state):
    for classifier in (fitted, network, refined):
        ours(classifier.stream, state)
        stream, pool = classifier.stream(), classifier.pool(4)
        for one in pushed:
            ours(stream.push, one)
            ours(pool.push, one)
            ours(pool.push, GOOD_X[:2, 0], one)
            ours(pool.reset, one)
            ours(pool.end, one)
        ours(stream.end)
        assert stream.push(GOOD_X[0, 0]).time >= 1  # it works on


@MANY
@given(value=ANYTHING, other=st.one_of(st.floats(), ANYTHING))
def test_whatever_is_asked_of_the_front(fitted, value, other):
    for ask in (fitted.at_cost, fitted.at_time, fitted.at_error, fitted.pool):
        ours(ask, value)
    ours(fitted.at_error, 0.5, other)


@MANY
@given(line=st.one_of(st.text(max_size=30), NESTED.map(lambda value: json.dumps(value, default=str))))
def test_whatever_line_comes(line):
    ours(parse_line, line)


@SOME
@given(data=st.data())
def test_whatever_is_changed_in_a_saved_classifier(fitted, network, refined, data, tmp_path_factory):
    """Loaded as it was, or refused with a BundleError; the files stay as they are."""
    classifier = data.draw(st.sampled_from([fitted, network, refined]))
    folder = tmp_path_factory.mktemp("saved") / "model"
    classifier.save(folder)
    file = data.draw(st.sampled_from(sorted(f for f in folder.rglob("*") if f.is_file())))
    content = file.read_bytes()
    if file.suffix == ".json":
        header = json.loads(content)
        change(header, data)
        if data.draw(st.booleans()) and isinstance(
            header.get("sha256"), dict
        ):  # by someone who knows how sums are made
            header["sha256"][HEADER] = header_sum(header)
        file.write_text(json.dumps(header))
    else:
        place = data.draw(st.integers(0, len(content) - 1))
        cut = data.draw(st.booleans())
        file.write_bytes(content[:place] if cut else content[:place] + b"\x00\xff" + content[place + 2 :])
    before = {f: f.read_bytes() for f in folder.rglob("*") if f.is_file()}
    try:
        loaded = firmbound.EarlyClassifier.load(folder)
        ours(loaded.decide, GOOD_X)
    except BundleError:
        pass
    assert {f: f.read_bytes() for f in folder.rglob("*") if f.is_file()} == before
    shutil.rmtree(folder)


@SOME
@given(data=st.data())
def test_whatever_stands_in_arrays_whose_sums_are_right(fitted, network, refined, data, tmp_path_factory):
    classifier = data.draw(st.sampled_from([fitted, network, refined]))
    folder = tmp_path_factory.mktemp("forged") / "model"
    classifier.save(folder)
    readers = ["reader/inner", "reader/refiner"] if classifier is refined else ["reader"]
    part = folder / data.draw(st.sampled_from(["classifier", *readers, "rule"]))
    arrays = load_file(part / ARRAYS)
    name = data.draw(st.sampled_from(sorted(arrays)))
    forged = np.array(arrays.pop(name))
    kind = data.draw(st.sampled_from(["gone", "nan", "negative", "huge", "cut", "flat", "empty", "other type"]))
    with np.errstate(all="ignore"):
        found = {
            "gone": None,
            "nan": np.full(forged.shape, np.nan),
            "negative": -forged.astype(float),
            "huge": forged.astype(float) * 1e300,
            "cut": forged[:-1],
            "flat": forged.ravel(),
            "empty": forged[:0],
            "other type": forged.astype(np.int16),
        }[kind]
    if found is not None:
        arrays[name] = np.ascontiguousarray(found)
    save_file(arrays, part / ARRAYS)
    header = json.loads((part / HEADER).read_text())
    header["sha256"][ARRAYS] = hashlib.sha256((part / ARRAYS).read_bytes()).hexdigest()
    header["sha256"][HEADER] = header_sum(header)
    (part / HEADER).write_text(json.dumps(header))
    with np.errstate(all="ignore"):  # NumPy warns of what is far beyond its range
        loaded = ours(firmbound.EarlyClassifier.load, folder)
        if loaded is not None:
            for ask in (loaded.decide, loaded.drift):
                ours(ask, GOOD_X)
            stream = ours(loaded.stream)
            if stream is not None:
                ours(stream.push, GOOD_X[0, 0])
    shutil.rmtree(folder)


@MANY
@given(data=st.data())
def test_whatever_stands_in_a_state(fitted, network, refined, data):
    classifier = data.draw(st.sampled_from([fitted, network, refined]))
    stream = classifier.stream()
    for x in GOOD_X[0, : data.draw(st.integers(0, 3))]:
        stream.push(x)
    arrays = load(stream.state())
    name = data.draw(st.sampled_from(sorted(arrays)))
    values = st.sampled_from([np.inf, np.nan, -1, 10**9, 1e300, 0])
    shape = data.draw(st.sampled_from([arrays[name].shape, (), (1,), (3,), (2, 2)]))
    with np.errstate(over="ignore"):
        arrays[name] = np.full(shape, data.draw(values), dtype=data.draw(st.sampled_from(["f8", "f4"])))
    resumed = ours(classifier.stream, save(arrays))
    if resumed is not None:
        ours(resumed.push, GOOD_X[0, 0])


def change(tree, data):
    """One value, somewhere in a header, is another or gone."""
    name = data.draw(st.sampled_from(sorted(tree)))
    if isinstance(tree[name], dict) and tree[name] and data.draw(st.booleans()):
        change(tree[name], data)
    elif data.draw(st.booleans()):
        del tree[name]
    else:
        tree[name] = data.draw(
            NESTED.filter(lambda value: not isinstance(value, bytes)).map(str) | st.integers() | st.none()
        )
