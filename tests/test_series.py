"""Series of unequal length and with gaps: laid out for readers, spread over steps again, decided where they end."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import firmbound
from firmbound.baselines.static_threshold import StaticThreshold, threshold_grid
from firmbound.early_classifier import EarlyClassifier
from firmbound.errors import InvalidInput
from firmbound.evaluation.calibration import calibration
from firmbound.evaluation.risk import believed_risk
from firmbound.series import Series, padded
from firmbound.tandem.data import ArraySource, LabelledBatch
from firmbound.tandem.training import Trainer
from firmbound.temperature import fit_temperature, helpful_temperature

NETWORK = firmbound.NetworkOptions(order=1, projection=8, hidden=16)
TRAINING = firmbound.TrainingOptions(epochs=4, batch=50, learning_rate=1e-2)


def autoregressive(sequences, seed, horizon=8):
    return firmbound.datasets.autoregressive((-0.7, 0.7), sequences, horizon, seed)


@st.composite
def ragged(draw):
    """(n, T, 2) values with lengths, and NaN at some steps."""
    count, horizon = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    random = np.random.default_rng(draw(st.integers(0, 10_000)))
    values = random.standard_normal((count, horizon, 2)).astype(np.float32)
    values[random.random((count, horizon)) < draw(st.sampled_from([0.0, 0.3]))] = np.nan
    return values, random.integers(1, horizon + 1, count)


@given(ragged())
def test_observations_stand_first_and_are_counted(case):
    values, lengths = case
    series = Series.of(values, lengths, missing="skip")
    for row, (one, length) in enumerate(zip(values, lengths, strict=True)):
        there = one[:length][~np.isnan(one[:length]).any(axis=1)]
        assert np.array_equal(series.values[row, : len(there)], there)
        assert not series.values[row, len(there) :].any()
        assert series.observations[row] == len(there)
        counts = np.cumsum(~np.isnan(one[:length]).any(axis=1))
        assert np.array_equal(series.seen[row, :length], counts)


@given(ragged(), st.integers(1, 8))
def test_cutting_and_lengthening_change_nothing_before_the_end(case, horizon):
    values, lengths = case
    series = Series.of(values, lengths, missing="skip")
    cut = series.until(horizon)
    again = Series.of(
        values[:, :horizon], np.minimum(lengths, values.shape[1:2][0:1]).clip(max=horizon), missing="skip"
    )
    assert np.array_equal(cut.values, again.values)
    assert np.array_equal(cut.seen, again.seen)
    assert np.array_equal(cut.lengths, again.lengths)
    longer = series.reaching(10)
    assert longer.horizon == max(10, series.horizon)
    assert np.array_equal(longer.until(series.horizon).values, series.values)


@given(ragged(), st.integers(2, 4))
def test_gathering_is_the_way_back_from_spreading(case, classes):
    """Evidence after each observation, spread over the steps and gathered again."""
    values, lengths = case
    series = Series.of(values, lengths, missing="skip")
    evidence = np.random.default_rng(0).standard_normal((*values.shape[:2], classes)).astype(np.float32)
    before = evidence.copy()
    evidence[np.arange(series.horizon) >= series.observations[:, None]] = 0.0
    spread = series.spread(before)
    assert np.array_equal(series.gathered(spread), evidence)
    assert np.array_equal(series.spread(series.gathered(spread)), spread)


def test_evidence_waits_where_nothing_was_seen():
    values = np.arange(8.0).reshape(1, 4, 2)
    values[0, [0, 2]] = np.nan
    series = Series.of(values, missing="skip")
    found = series.spread(np.array([[[1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [4.0, 0.0]]]))
    assert found[0, :, 0].tolist() == [0.0, 1.0, 1.0, 2.0]


def test_a_list_of_series_is_one_array_with_lengths():
    values, lengths = padded([np.ones((2, 3)), np.ones((4, 3))])
    assert values.shape == (2, 4, 3)
    assert lengths.tolist() == [2, 4]
    assert np.array_equal(Series.of([np.ones((2, 3)), np.ones((4, 3))]).lengths, lengths)
    for bad in ([np.ones((2, 3)), np.ones((2, 4))], [np.ones((2, 3)), np.ones((0, 3))], [np.ones((2, 3)), ["a"]]):
        with pytest.raises(InvalidInput, match="X"):
            Series.of(bad)
    with pytest.raises(InvalidInput, match="lengths"):
        Series.of([np.ones((2, 3)), np.ones((4, 3))], [2, 4])


@pytest.mark.parametrize(
    ("values", "lengths", "missing", "message"),
    [
        (np.full((2, 3, 1), np.nan), None, "refuse", "finite.*missing='skip'"),
        (np.full((2, 3, 1), np.inf), None, "skip", "finite"),
        (np.full((2, 3, 1), 1e300), None, "refuse", "finite"),
        (np.ones((2, 3, 1)), [1, 4], "refuse", "lengths.*1..3"),
        (np.ones((2, 3, 1)), [1.5, 2.0], "refuse", "lengths.*whole"),
        (np.ones((2, 3, 1)), [1], "refuse", "lengths.*2 whole"),
        (np.ones((2, 3, 1)), None, "guess", "missing"),
        (np.ones((2, 3)), None, "refuse", "shape"),
        (np.ones((0, 3, 1)), None, "refuse", "shape"),
        ([["a"]], None, "refuse", "numeric"),
    ],
)
def test_what_is_no_series_is_refused(values, lengths, missing, message):
    with pytest.raises(InvalidInput, match=message):
        Series.of(values, lengths, missing=missing)


def test_what_stands_after_an_end_is_never_looked_at():
    problem = autoregressive(400, 1)
    lengths = np.random.default_rng(0).integers(3, 9, 400)
    after = np.arange(8) >= lengths[:, None]
    clean, dirty = problem.features.copy(), problem.features.copy()
    clean[after], dirty[after] = 0.0, np.nan
    one, other = (
        EarlyClassifier(network=NETWORK, training=TRAINING, cost=0.3)
        .fit(X, problem.labels, lengths=lengths)
        .decide(X, lengths)
        for X in (clean, dirty)
    )
    assert np.array_equal(one.time, other.time)
    assert np.array_equal(one.label, other.label)
    assert np.all(one.time <= lengths)


@pytest.mark.parametrize("integrator", ["lstm", "transformer"])
@pytest.mark.parametrize("order", [0, 2])
@pytest.mark.parametrize("ratio_loss", ["lsel", "lllr"])
def test_losses_of_padded_sequences_are_those_of_the_sequences(integrator, order, ratio_loss):
    """A batch of lengths 6 and 3, with noise after the ends, against its two halves without padding."""
    problem, lengths = autoregressive(40, 1, horizon=6), np.repeat([6, 3], 20)
    values = problem.features.copy()
    values[20:, 3:] = 9.0
    network = firmbound.NetworkOptions(integrator=integrator, order=order, projection=8, hidden=8)
    shares = torch.tensor([0.5, 0.5])
    halves = [(slice(20), 6), (slice(20, 40), 3)]
    for weights in ({"multiplet_weight": 0.0}, {"ratio_weight": 0.0}):
        source = ArraySource.of(values, problem.labels, 2, lengths)
        trainer = Trainer(
            source, source, 2, network, firmbound.TrainingOptions(batch=40, ratio_loss=ratio_loss, **weights)
        )
        padded_loss = trainer.loss(LabelledBatch(values, problem.labels, lengths), shares).item()
        parts = [
            trainer.loss(LabelledBatch(values[half, :end], problem.labels[half], lengths[half]), shares).item()
            for half, end in halves
        ]
        starts = [end - order if "ratio_weight" in weights else 1 for _, end in halves]
        assert padded_loss == pytest.approx(np.average(parts, weights=starts), rel=1e-5)


def test_rules_of_unequal_lengths_are_those_of_their_own_problem():
    """Exact evidence: series that end at 3 or at 8, half and half. The rule must beat that of equal length on them."""
    train, fresh = (firmbound.datasets.gaussian(2, 40_000, 8, s, dimension=2, separation=0.6) for s in (1, 2))
    lengths = np.where(np.arange(40_000) % 2 == 0, 3, 8)
    mixed = firmbound.fit_stopping_rule(train.evidence, lengths=lengths, costs=[0.2])
    chosen = mixed.decide(fresh.evidence, lengths=lengths)
    assert np.all(chosen.time <= lengths)
    assert np.any(chosen.time == 3)
    plain = firmbound.fit_stopping_rule(train.evidence, costs=[0.2])
    risks = [
        believed_risk(rule.decide(fresh.evidence, lengths=lengths), fresh.evidence, rule.prior, rule.problem, 0.2)
        for rule in (mixed, plain)
    ]
    assert risks[0].mean() <= risks[1].mean() + 1e-4
    # At 4..7 only the long ones are there: the surfaces are those of series that all go on to 8.
    belief = np.linspace(-2, 2, 9)
    evidence = np.stack([belief, np.zeros(9)], axis=1)
    for t in (4, 6):
        expected = plain.continuation_risk(evidence, t=t)
        assert mixed.continuation_risk(evidence, t=t) == pytest.approx(expected, abs=0.06)
    # Before that, going on is worth less than where nobody ends: one more look may be the last.
    assert np.all(mixed.continuation_risk(evidence, t=1) >= plain.continuation_risk(evidence, t=1) - 0.02)


@pytest.mark.parametrize("method", ["cfl", "gp"])
def test_few_may_go_on(method):
    """A rule can be fitted though two series alone are longer than the rest."""
    problem = firmbound.datasets.gaussian(3, 200, 6, 1, dimension=3)
    lengths = np.full(200, 3)
    lengths[:2] = 6
    rule = firmbound.fit_stopping_rule(problem.evidence, lengths=lengths, costs=[0.3], method=method)
    chosen = rule.decide(problem.evidence, lengths=lengths)
    assert np.all(chosen.time <= lengths)
    with pytest.raises(InvalidInput, match="reach the horizon"):
        firmbound.fit_stopping_rule(problem.evidence, lengths=np.full(200, 3), costs=[0.3])


def test_the_horizon_ends_where_too_few_go_on():
    problem = autoregressive(300, 1, horizon=12)
    lengths = np.full(300, 6)
    lengths[:3] = 12
    classifier = EarlyClassifier(network=NETWORK, training=TRAINING, cost=0.1)
    classifier.fit(problem.features, problem.labels, lengths=lengths)
    assert classifier.rule_.problem.horizon == 6
    assert classifier.decide(problem.features, lengths).time.max() <= 6


def test_a_list_of_series_is_fitted_and_decided(tmp_path):
    problem = autoregressive(400, 1)
    lengths = np.random.default_rng(0).integers(3, 9, 400)
    pieces = [one[:length] for one, length in zip(problem.features, lengths, strict=True)]
    classifier = EarlyClassifier(network=NETWORK, training=TRAINING, cost=0.3).fit(pieces, problem.labels)
    chosen = classifier.decide(pieces)
    assert np.array_equal(chosen.time, classifier.decide(problem.features, lengths).time)
    for place in range(30):
        stream = classifier.stream()
        for x in pieces[place]:
            step = stream.push(x)
        step = stream.end()
        assert (step.time, step.label) == (chosen.time[place], chosen.label[place])
        assert step.decided
    with pytest.raises(InvalidInput, match="Give lengths"):
        classifier.decide(problem.features[:, :5])


SEEDS = st.integers(0, 10_000)


@pytest.fixture(scope="module")
def tolerant():
    problem = autoregressive(600, 1)
    return EarlyClassifier(network=NETWORK, training=TRAINING, cost=0.3, costs=[0.05, 1.0, 2.5], missing="skip").fit(
        problem.features, problem.labels
    )


@settings(deadline=None, max_examples=60)
@given(seed=SEEDS, cost=st.sampled_from([0.05, 0.3, 1.0, 2.5]), gaps=st.sampled_from([0.0, 0.3, 0.9]))
def test_streams_and_pools_are_the_batch(tolerant, seed, cost, gaps):
    """Whatever the lengths, the gaps, the cost and the place at which a stream is moved to another process."""
    random = np.random.default_rng(seed)
    X = autoregressive(12, seed).features
    X[random.random((12, 8)) < gaps] = np.nan
    lengths = random.integers(1, 9, 12)
    classifier = tolerant.at_cost(cost)
    chosen = classifier.decide(X, lengths)
    pool = classifier.pool(12)
    for t in range(8):
        pool.push(X[lengths > t, t], np.flatnonzero(lengths > t))
    ended = pool.end(np.arange(12))
    assert np.array_equal(ended.time, chosen.time)
    assert np.array_equal(classifier.classes_[ended.label], chosen.label)
    for place in range(12):
        stream = classifier.stream()
        moved = random.integers(0, 8)
        for t in range(lengths[place]):
            if t == moved:
                stream = classifier.stream(stream.state())
            stream.push(X[place, t])
        step = stream.end()
        assert (step.time, step.label, step.decided) == (chosen.time[place], chosen.label[place], True)
        assert ended.stopping_risk[place] == pytest.approx(step.stopping_risk, abs=1e-4)


def test_gaps_are_refused_unless_allowed(tolerant):
    X = autoregressive(5, 3).features
    X[2, 3] = np.nan
    assert len(tolerant.decide(X)) == 5
    strict = EarlyClassifier.of_parts(
        tolerant.reader_,
        tolerant.rule_,
        classes=tolerant.classes_,
        remaining=tolerant.remaining_,
        record=None,
        about={},
        cost=0.3,
    )
    for ask in (lambda: strict.decide(X), lambda: strict.stream().push(X[2, 3]), lambda: strict.pool(5).push(X[:, 3])):
        with pytest.raises(InvalidInput, match="finite"):
            ask()
    with pytest.raises(InvalidInput, match="before it ends"):
        strict.stream().end()
    with pytest.raises(InvalidInput, match="before they end"):
        strict.pool(2).end([0])
    with pytest.raises(InvalidInput, match="an observation at least"):
        EarlyClassifier(missing="skip", network=NETWORK, training=TRAINING).fit(
            np.full((40, 4, 2), np.nan), np.arange(40) % 2
        )


def test_static_thresholds_and_calibration_know_ends():
    problem = firmbound.datasets.gaussian(2, 3_000, 6, 1, dimension=2)
    lengths = np.random.default_rng(0).integers(1, 7, 3_000)
    noisy = problem.evidence.copy()
    noisy[np.arange(6) >= lengths[:, None]] = 1e3 * np.random.default_rng(1).standard_normal(2)
    for threshold in (0.0, 1.0, 50.0):
        chosen = StaticThreshold(threshold).decide(noisy, lengths)
        expected = np.minimum(StaticThreshold(threshold).decide(problem.evidence).time, lengths)
        assert np.array_equal(chosen.time, expected)
    assert threshold_grid(noisy, 5, lengths)[-1] < 100
    found, clean = calibration(noisy, problem.labels, lengths=lengths), calibration(problem.evidence, problem.labels)
    assert found.error.max() < 0.1
    assert found.largest_ratio <= clean.largest_ratio


def test_a_temperature_is_fitted_on_what_was_seen():
    problem = firmbound.datasets.gaussian(2, 4_000, 6, 1, dimension=2)
    lengths = np.random.default_rng(0).integers(1, 7, 4_000)
    sure = problem.evidence * 2.0
    sure[np.arange(6) >= lengths[:, None]] = 0.0
    prior = np.array([0.5, 0.5])
    assert fit_temperature(sure, problem.labels, prior, lengths) == pytest.approx(2.0, rel=0.1)
    assert helpful_temperature(sure, problem.labels, prior, lengths) == pytest.approx(2.0, rel=0.1)


def test_a_handful_of_unequal_series_is_fitted_without_any_choice():
    """Whichever of them are drawn for training, validation and judgement."""
    problem = autoregressive(12, 1)
    lengths = np.array([8, 3, 4, 3, 5, 3, 4, 3, 3, 4, 5, 3])
    for seed in range(6):
        classifier = EarlyClassifier(cost=0.3, seed=seed).fit(problem.features, np.arange(12) % 2, lengths=lengths)
        assert np.all(classifier.decide(problem.features, lengths).time <= lengths)
