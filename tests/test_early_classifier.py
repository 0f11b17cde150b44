"""What users hold: fitted once on a small problem, then moved along its front, streamed, saved and judged."""

import json
import subprocess
import sys
from contextlib import suppress

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score, train_test_split

import firmbound
from firmbound.bundle import read_header
from firmbound.early.drift import compare
from firmbound.early.learning import split
from firmbound.early_classifier import EarlyClassifier, NoRuleQualifies, NotFitted
from firmbound.errors import BundleError, InvalidInput
from firmbound.readers.refined import RefinedReader
from firmbound.tandem.model import TandemModel
from firmbound.tandem.network import TandemNetwork

NETWORK = firmbound.NetworkOptions(order=1, projection=16, hidden=16)
TRAINING = firmbound.TrainingOptions(epochs=8, batch=50, learning_rate=1e-2)
NAMES = np.array(["calm", "wild"])


def series(sequences, seed):
    problem = firmbound.datasets.autoregressive((-0.7, 0.7), sequences, 8, seed)
    return problem.features, NAMES[problem.labels]


def make(**changes):
    return EarlyClassifier(
        **{"cost": 0.3, "costs": [0.05, 1.0, 2.5], "network": NETWORK, "training": TRAINING} | changes
    )


@pytest.fixture(scope="module")
def fitted():
    return make().fit(*series(1_500, 1))


@pytest.fixture(scope="module")
def fresh():
    return series(600, 2)


def test_decisions_come_early_and_in_the_callers_words(fitted, fresh):
    X, y = fresh
    chosen = fitted.decide(X)
    assert set(chosen.label) <= set(NAMES)
    assert np.mean(chosen.label == y) > 0.85
    assert chosen.time.min() >= 1
    assert chosen.time.mean() < 6
    assert np.array_equal(fitted.predict(X), chosen.label)
    wrong = chosen.label != y
    assert fitted.score(X, y) == pytest.approx(-np.mean(10.0 * wrong + 0.3 * chosen.time))


def test_the_front_trades_time_for_error(fitted, fresh):
    points = fitted.front(*fresh)
    assert [p.cost for p in points] == [0.05, 0.3, 1.0, 2.5]
    times = [p.mean_time for p in points]
    assert times == sorted(times, reverse=True)
    assert points[0].error < points[-1].error
    for p in points:
        assert p.error_low <= p.error <= p.error_high
        other = fitted.at_cost(p.cost)
        assert other.decide(fresh[0]).time.mean() == pytest.approx(p.mean_time)
        assert -other.score(*fresh) == pytest.approx(p.risk)
        doubt = 1 - other.record(fresh[0]).confidence.mean()  # penalty 10 for any error
        assert p.believed_risk == pytest.approx(10.0 * doubt + p.cost * p.mean_time)
        assert p.risk_gap == pytest.approx(p.risk - p.believed_risk)
        assert 0 < p.risk_gap_error < p.risk_error + p.believed_risk_error
    assert fitted.cost == 0.3  # moving along the front leaves the original where it was


def test_a_time_or_an_error_can_be_asked_for(fitted, fresh):
    slow, quick = fitted.at_time(8), fitted.at_time(1)
    assert slow.cost < quick.cost
    promised = fitted.at_error(0.2)
    assert np.mean(promised.predict(fresh[0]) != fresh[1]) < 0.2
    assert promised.cost >= fitted.at_error(0.15).cost
    with pytest.raises(NoRuleQualifies, match="225 held-out sequences"):
        fitted.at_error(0.001)
    with pytest.raises(NoRuleQualifies, match="Hold out 2995 at least"):
        fitted.at_error(0.001)


def test_streams_are_the_batch(fitted, fresh):
    X, _ = fresh
    for cost in (0.05, 1.0):
        classifier = fitted.at_cost(cost)
        chosen = classifier.decide(X[:60])
        for place in range(60):
            stream = classifier.stream()
            steps = [stream.push(x) for x in X[place]]
            first = next(step for step in steps if step.decided)
            assert (first.time, first.label) == (chosen.time[place], chosen.label[place])
            assert all(step is first for step in steps[first.time - 1 :])  # a decision stays
            assert all(step.expected_remaining_time > 0 for step in steps[: first.time - 1])
            assert first.expected_remaining_time == 0


def test_expected_remaining_times_are_right_on_average(fitted, fresh):
    X, _ = fresh
    said, was = [], []
    time = fitted.decide(X).time
    for place in np.flatnonzero(time > 2)[:200]:
        stream = fitted.stream()
        stream.push(X[place, 0])
        said.append(stream.push(X[place, 1]).expected_remaining_time)
        was.append(time[place] - 2)
    assert np.mean(said) == pytest.approx(np.mean(was), rel=0.15)


def test_a_stream_goes_on_in_another_process(fitted, fresh, tmp_path):
    X, _ = fresh
    classifier = fitted.at_cost(0.05)
    place = int(np.argmax(classifier.decide(X).time))
    stream = classifier.stream()
    for x in X[place, :3]:
        stream.push(x)
    state = stream.state()
    assert len(state) < 64_000
    classifier.save(tmp_path / "model")
    (tmp_path / "state").write_bytes(state)
    np.save(tmp_path / "rest.npy", X[place, 3:])
    script = (
        "import sys, numpy as np, firmbound; folder = sys.argv[1]\n"
        "stream = firmbound.EarlyClassifier.load(folder + '/model').stream(open(folder + '/state', 'rb').read())\n"
        "for x in np.load(folder + '/rest.npy'): step = stream.push(x)\n"
        "print(step.time, step.label, step.stopping_risk)\n"
    )
    said = subprocess.check_output([sys.executable, "-c", script, str(tmp_path)], text=True).split()
    for x in X[place, 3:]:
        step = stream.push(x)
    assert said[:2] == [str(step.time), step.label]
    assert float(said[2]) == pytest.approx(step.stopping_risk, rel=1e-5)
    with pytest.raises(BundleError, match="no state"):
        classifier.stream(state[:-20])
    with pytest.raises(BundleError, match="no state"):
        classifier.stream(b"nonsense")


@pytest.mark.parametrize("order", [0, 1, 3])
def test_a_pool_is_its_streams(order, fresh):
    """Also when series begin at different times, skip turns, and places are used again."""
    X, _ = fresh
    network = firmbound.NetworkOptions(order=order, projection=16, hidden=16)
    quick = firmbound.TrainingOptions(epochs=2, batch=50, learning_rate=1e-2)
    classifier = make(network=network, training=quick).fit(*series(600, 1)).at_cost(0.05)
    random = np.random.default_rng(0)
    pool, streams = classifier.pool(20), [classifier.stream() for _ in range(20)]
    at = np.zeros(20, dtype=int)
    for turn in range(14):
        here = np.flatnonzero((random.random(20) < 0.7) & (at < 8))
        steps = pool.push(X[here, at[here]], here)
        for row, place in enumerate(here):
            step = streams[place].push(X[place, at[place]])
            assert (steps.decided[row], NAMES[steps.label[row]]) == (step.decided, step.label)
            assert steps.time[row] == step.time
            assert steps.posterior[row] == pytest.approx(step.posterior, abs=1e-5)
            assert steps.stopping_risk[row] == pytest.approx(step.stopping_risk, abs=1e-4)
        at[here] += 1
        if turn == 6:
            pool.reset([3, 4])
            streams[3], streams[4] = classifier.stream(), classifier.stream()
            at[[3, 4]] = 0
    for bad, message in (([0, 0], "different"), ([25], "different"), ([0.5], "whole"), ([[1]], "whole")):
        with pytest.raises(InvalidInput, match=message):
            pool.push(X[: len(bad), 0], bad)
    with pytest.raises(InvalidInput, match="a row a stream"):
        pool.push(X[:3, 0])


def test_saved_is_loaded(fitted, fresh, tmp_path):
    fitted.save(tmp_path / "model")
    again = EarlyClassifier.load(tmp_path / "model")
    X, y = fresh
    assert np.array_equal(again.predict(X), fitted.predict(X))
    assert again.score(X, y) == fitted.score(X, y)
    assert again.at_error(0.2).cost == fitted.at_error(0.2).cost
    assert again.get_params()["network"] == NETWORK
    assert again.front(X, y) == fitted.front(X, y)
    assert again.record_.points(again.rule_) == fitted.record_.points(fitted.rule_)
    points = read_header(tmp_path / "model" / "classifier")["metrics"]
    assert [point["risk_gap"] for point in points] == [p.risk_gap for p in fitted.record_.points(fitted.rule_)]
    arrays = tmp_path / "model" / "classifier" / "arrays.safetensors"
    arrays.write_bytes(arrays.read_bytes()[:-5])
    with pytest.raises(BundleError, match="changed or cut short"):
        EarlyClassifier.load(tmp_path / "model")
    with pytest.raises(BundleError, match="no model"):
        EarlyClassifier.load(tmp_path / "nothing")


def test_drift_of_what_was_held_out_is_none(fitted, fresh, tmp_path):
    """Also after saving and loading, and where many are sure alike."""
    fitted.save(tmp_path / "model")
    for classifier in (fitted, EarlyClassifier.load(tmp_path / "model")):
        record = classifier.record_.row(0)
        assert all(change.p == 1 for change in compare(record, record, list(NAMES)).changes)
        assert not classifier.drift(*fresh).found


def test_what_is_no_classifier_is_not_written_over(fitted, tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.txt").write_text("years")
    with pytest.raises(BundleError, match="not replaced"):
        fitted.save(tmp_path / "precious")
    with pytest.raises(BundleError, match="not replaced"):
        fitted.rule_.save(tmp_path / "precious")
    assert (tmp_path / "precious" / "thesis.txt").read_text() == "years"
    fitted.save(tmp_path / "model")
    fitted.at_cost(1.0).save(tmp_path / "model")  # one of ours is
    assert EarlyClassifier.load(tmp_path / "model").cost == 1.0


def test_headers_are_sealed(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    file = tmp_path / "model" / "classifier" / "header.json"
    said = json.loads(file.read_text())
    assert said["dataset"].pop("evidence") == "a network, whose options were given"
    assert said["dataset"].pop("refined") is isinstance(fitted.reader_, RefinedReader)
    assert "on 225 validation sequences realised risk changes by" in said["dataset"].pop("refinement")
    assert said["dataset"] == {"sequences": 1500, "held_out": 225, "horizon": 8, "dimension": 2, "classes": 2}
    assert [point["cost"] for point in said["metrics"]] == [0.05, 0.3, 1.0, 2.5]
    said["classes"] = said["classes"][::-1]
    file.write_text(json.dumps(said))
    with pytest.raises(BundleError, match="changed since"):
        EarlyClassifier.load(tmp_path / "model")


@pytest.mark.parametrize("integrator", ["lstm", "transformer"])
def test_an_observation_that_no_network_can_read_is_as_if_it_had_not_come(integrator, fresh):
    X, _ = fresh
    network = firmbound.NetworkOptions(integrator=integrator, order=1, projection=16, hidden=16)
    training = firmbound.TrainingOptions(epochs=1, batch=50)
    classifier = make(network=network, training=training).fit(*series(600, 1)).at_cost(0.05)
    stream, other, pool = classifier.stream(), classifier.stream(), classifier.pool(3)
    extreme = np.array([3e38, -3e38])
    for x in X[0, :3]:
        for refused in (lambda: stream.push(extreme), lambda: pool.push(np.stack([X[0, 0], extreme, X[0, 0]]))):
            with suppress(InvalidInput):
                refused()
                return  # this one can be read: nothing to recover from
        assert stream.push(x).stopping_risk == other.push(x).stopping_risk
        assert pool.push(np.stack([x, x, x])).time.tolist() == [other.time] * 3


def test_numbers_of_numpy_are_numbers(fitted, tmp_path):
    assert fitted.at_cost(np.float32(0.3)).cost == 0.3
    assert fitted.at_time(np.int64(3)).cost == fitted.at_time(3).cost
    assert fitted.at_error(np.float32(0.5)).cost == fitted.at_error(0.5).cost
    X, y = series(300, 1)
    short = firmbound.TrainingOptions(epochs=2, batch=50)
    numbers = {"cost": np.float64(0.3), "costs": (np.float32(0.05), np.int64(1)), "validation": np.float64(0.2)}
    make(training=short, **numbers).fit(X, y).save(tmp_path / "model")
    assert EarlyClassifier.load(tmp_path / "model").validation == 0.2


def test_without_any_choice_digits_are_told_early():
    """Pixels as they come, 0 to 16. Small data: what reads them is what validation sequences speak for."""
    data = load_digits()
    X, X_new, y, y_new = train_test_split(data.images, data.target, test_size=0.3, stratify=data.target, random_state=0)
    classifier = EarlyClassifier(cost=0.08).fit(X, y)
    assert "risk on validation data" in classifier.about_["evidence"]
    chosen = classifier.decide(X_new)
    all_rows = LogisticRegression(max_iter=2_000).fit(X.reshape(len(X), -1) / 16, y)
    right = all_rows.score(X_new.reshape(len(X_new), -1) / 16, y_new)
    assert np.mean(chosen.label == y_new) > right - 0.01
    assert chosen.time.mean() < 0.7 * 8


def test_without_any_choice_series_with_a_memory_are_told_too():
    """Signs of products, which no logistic regression of the values sees: here the network is chosen."""
    X, y = series(1_500, 1)
    classifier = EarlyClassifier(cost=0.3).fit(1000 * X + 50, y)  # the network trains on standardised values
    assert isinstance(classifier.reader_, TandemModel)
    fresh, truth = series(600, 2)
    assert np.mean(classifier.predict(1000 * fresh + 50) == truth) > 0.9


def test_a_network_reads_features_as_they_are():
    """Trained on standardised ones; the first layer takes mean and scale in."""
    random = np.random.default_rng(0)
    model = TandemModel(TandemNetwork(3, 2, NETWORK), np.array([0.5, 0.5]), np.array([0.5, 0.5]))
    mean, scale = np.array([5.0, -100.0, 0.0]), np.array([2.0, 300.0, 1e-3])
    X = random.standard_normal((4, 6, 3))
    assert np.allclose(model.reading(mean, scale).evidence(X * scale + mean), model.evidence(X), atol=1e-3)


def test_scikit_learn_holds_it(fresh):
    X, y = fresh
    quick = make(training=firmbound.TrainingOptions(epochs=3, batch=50, learning_rate=1e-2))
    copied = clone(quick)
    assert copied.get_params() == quick.get_params()
    copied.set_params(cost=0.05)
    assert quick.cost == 0.3
    scores = cross_val_score(quick, X, y, cv=3)
    assert scores.shape == (3,)
    assert np.all(scores < 0)
    assert np.all(scores > -10)


def test_fitting_twice_gives_the_same(fresh):
    X, y = fresh
    one, other = (make().fit(X, y).decide(X) for _ in range(2))
    assert np.array_equal(one.time, other.time)
    assert np.array_equal(one.label, other.label)


def test_before_fitting_nothing_is_decided(fresh):
    for ask in ("decide", "predict"):
        with pytest.raises(NotFitted, match="Call fit"):
            getattr(make(), ask)(fresh[0])
    with pytest.raises(NotFitted):
        make().stream()
    with pytest.raises(NotFitted):
        make().at_error(0.1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"X": np.zeros((10, 3))}, "X.*shape|features.*shape"),
        ({"y": ["a"] * 600}, "two classes"),
        ({"y": ["a"] * 3}, "one label a sequence"),
        ({"y": np.where(np.arange(600) == 2, np.nan, 1.0)}, "known"),
        ({"y": np.where(np.arange(600) < 2, "rare", "often")}, "enough sequences"),
        ({"held_out": 0.7}, "held_out"),
        ({"validation": 0.9}, "validation"),
        ({"cost": -1.0}, "costs"),
        ({"cost": "cheap"}, "cost"),
        ({"penalty": "dear"}, "penalty"),
        ({"prior": [0.5, 0.6]}, "prior"),
        ({"method": "magic"}, "method"),
    ],
)
def test_what_cannot_be_fitted_is_refused_at_once(changes, message, fresh):
    X, y = changes.pop("X", fresh[0]), changes.pop("y", fresh[1])
    with pytest.raises(InvalidInput, match=message):
        make(
            **changes,
        ).fit(X, y)


def test_labels_that_were_not_there_are_refused(fitted, fresh):
    with pytest.raises(InvalidInput, match="hold labels of"):
        fitted.score(fresh[0], np.full(600, "new"))
    with pytest.raises(InvalidInput, match="shape"):
        fitted.front(fresh[0], fresh[1][:-1])


@pytest.fixture(scope="module")
def waves():
    """Evidence that swings: what it was before says much of what it means."""
    return firmbound.datasets.oscillating(1_500, 15, 1), firmbound.datasets.oscillating(1_500, 15, 2)


def given(**changes):
    return EarlyClassifier(**{"cost": 0.05, "costs": [0.02], "evidence": "given"} | changes)


def test_evidence_with_a_memory_is_refined_and_it_says_why(waves):
    train, fresh = waves
    plain = given(refine="never").fit(train.evidence, train.labels)
    classifier = given().fit(train.evidence, train.labels)
    assert isinstance(classifier.reader_, RefinedReader)
    assert classifier.about_["refined"] is True
    assert classifier.about_["refinement"].startswith(
        "it pays: on 1,275 validation sequences realised risk changes by -"
    )
    assert (plain.about_["refined"], plain.about_["refinement"]) == (False, "asked for")
    for cost in (0.02, 0.05):
        scores = [one.at_cost(cost).score(fresh.evidence, fresh.labels) for one in (plain, classifier)]
        assert scores[1] > 0.9 * scores[0]  # negative costs: a tenth cheaper on sequences nobody saw
    assert classifier.record_.wrong.mean() < plain.record_.wrong.mean()


def test_without_refinement_rules_are_fitted_on_evidence_as_it_is(waves):
    train, fresh = waves
    classifier = given(refine="never").fit(train.evidence, train.labels)
    seen = np.concatenate(split(train.labels, 0.15, 0.15, 0)[:2])
    rule = firmbound.fit_stopping_rule(
        train.evidence[seen], costs=[0.02, 0.05], penalty=10.0, prior=np.bincount(train.labels[seen]) / len(seen)
    )
    chosen, expected = classifier.decide(fresh.evidence), rule.decide(fresh.evidence, cost=0.05)
    assert np.array_equal(chosen.time, expected.time)
    assert np.array_equal(chosen.label, expected.label)


@pytest.mark.parametrize("sequences", [100, 1_000])
def test_where_refinement_does_not_pay_nothing_changes(sequences):
    """Of exact evidence there is nothing to be learned, and of few sequences neither."""
    train = firmbound.datasets.gaussian(2, sequences, 8, 1, dimension=2, separation=0.7)
    plain, classifier = (given(refine=asked).fit(train.evidence, train.labels) for asked in ("never", "auto"))
    assert not classifier.about_["refined"]
    assert ("too few" if sequences == 100 else "it does not pay") in classifier.about_["refinement"]
    chosen, expected = (one.decide(train.evidence) for one in (classifier, plain))
    assert np.array_equal(chosen.time, expected.time)
    assert np.array_equal(chosen.label, expected.label)


@pytest.mark.parametrize("refinement", [None, firmbound.RefinementOptions(folds=40)])
def test_a_class_too_rare_for_folds_is_no_error_unless_refinement_was_asked_for(refinement):
    train = firmbound.datasets.gaussian(2, 300, 6, 1, dimension=2)
    network = {"evidence": "network", "network": NETWORK, "training": firmbound.TrainingOptions(epochs=1, batch=50)}
    labels = np.where(np.arange(300) < (3 if refinement is None else 60), "rare", "often")
    changes = {**network, "validation": 0.4, "refinement": refinement, "costs": [0.5]}
    classifier = given(**changes).fit(train.features, labels)
    assert classifier.about_["refinement"].startswith("too few to refine by: the rarest class is there")
    with pytest.raises(InvalidInput, match="of every class at least"):
        given(**{**changes, "refinement": firmbound.RefinementOptions(folds=40), "refine": "always"}).fit(
            train.features, labels
        )


@pytest.mark.parametrize("inputs", ["evidence", "features"])
def test_streams_with_gaps_are_the_batch_where_evidence_is_refined(inputs):
    """And where series end at different times: what is missing is no step of the memory."""
    train, fresh = (
        firmbound.datasets.autoregressive((-0.7, 0.7), count, 8, seed) for count, seed in ((400, 1), (40, 2))
    )
    random = np.random.default_rng(0)

    def torn(problem):
        lengths = random.integers(5, 9, len(problem.labels))
        X = problem.features.astype(float)
        gaps = random.random(X.shape[:2]) < 0.25
        gaps[:, 1] = False
        X[gaps] = np.nan
        return X, lengths

    X, lengths = torn(train)
    classifier = make(
        missing="skip",
        refine="always",
        refinement=firmbound.RefinementOptions(units=16, folds=2, ridge=30.0, inputs=inputs),
        training=firmbound.TrainingOptions(epochs=2, batch=50, learning_rate=1e-2),
    ).fit(X, train.labels, lengths=lengths)
    assert isinstance(classifier.reader_, RefinedReader)
    X, lengths = torn(fresh)
    for slow in (classifier.at_cost(0.05), classifier.at_cost(1.0)):
        chosen, evidence = slow.decide(X, lengths=lengths), slow.read(slow.series(X, lengths))
        pool = slow.pool(len(X))
        for place, (one, end) in enumerate(zip(X, lengths, strict=True)):
            stream = slow.stream()
            for t, x in enumerate(one[:end]):
                step = stream.push(x)
                if not step.decided or step.time == t + 1:
                    assert np.allclose(stream._evidence, evidence[place, t], atol=1e-3)
            step = stream.end()
            assert (step.time, step.label) == (chosen.time[place], chosen.label[place])
        for t in range(8):
            here = np.flatnonzero(lengths > t)
            pool.push(X[here, t], here)
        ended = pool.end(np.arange(len(X)))
        assert np.array_equal(ended.time, chosen.time)
        assert np.array_equal(classifier.classes_[ended.label], chosen.label)


@pytest.mark.parametrize("bad", [{"refine": "perhaps"}, {"refine": True}, {"refinement": {"units": 3}}])
def test_refinements_that_are_none_are_refused_by_name(bad, waves):
    with pytest.raises(InvalidInput, match=f"`{next(iter(bad))}`"):
        given(**bad).fit(waves[0].evidence, waves[0].labels)
