"""What is learned is honest (no sequence taught its own refinement), causal, and worth it where there is a memory."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import firmbound
from firmbound.evaluation.calibration import calibration
from firmbound.refinement import cross_fitting
from firmbound.refinement.cross_fitting import KNOTS, fit_refiner, fold_numbers, knot_times
from firmbound.refinement.options import RIDGES, RefinementOptions
from firmbound.refinement.readout import losses

QUICK = RefinementOptions(units=12, folds=3, ridge=10.0)
HEARING = RefinementOptions(units=12, folds=3, ridge=10.0, inputs="features")


def noise(sequences, horizon, classes, seed):
    """Evidence that wanders, and labels that have nothing to do with it."""
    random = np.random.default_rng(seed)
    evidence = np.cumsum(random.standard_normal((sequences, horizon, classes)), axis=1).astype(np.float32)
    labels = np.concatenate([np.arange(classes), random.integers(0, classes, sequences - classes)])
    return evidence, labels


@pytest.fixture(scope="module")
def oscillating():
    return firmbound.datasets.oscillating(2_000, 30, 1), firmbound.datasets.oscillating(2_000, 30, 2)


@pytest.fixture(scope="module")
def hearing():
    problem = firmbound.datasets.gaussian(3, 150, 6, 1, dimension=4)
    refiner, _ = fit_refiner(problem.evidence, problem.labels, features=problem.features, options=HEARING)
    return refiner, problem


@pytest.fixture(scope="module")
def deaf():
    problem = firmbound.datasets.gaussian(3, 150, 6, 1, dimension=4)
    return fit_refiner(problem.evidence, problem.labels, options=QUICK)[0], problem


# Honesty


@settings(max_examples=8)
@given(st.integers(0, 1_000), st.sampled_from([2, 3]), st.sampled_from([4, 25]))
def test_own_labels_teach_nothing_of_the_own_evidence(seed, classes, horizon):
    """Two sequences of one fold exchange their labels: to the bit, their whole fold is refined as before."""
    evidence, labels = noise(60, horizon, classes, seed)
    folds = fold_numbers(labels, 3, QUICK.seed)
    one, other = next(
        pair for pair in np.argwhere((folds[:, None] == folds) & (labels[:, None] != labels)) if _moves_no(pair, labels)
    )
    swapped = labels.copy()
    swapped[[one, other]] = labels[[other, one]]
    (_, before), (_, after) = (fit_refiner(evidence, known, options=QUICK) for known in (labels, swapped))
    own = folds == folds[one]
    assert np.array_equal(before[own], after[own])
    assert not np.array_equal(before[~own], after[~own])


def _moves_no(pair, labels):
    """Folds are drawn class by class, so most exchanges move other sequences to other folds too."""
    swapped = labels.copy()
    swapped[pair] = labels[pair[::-1]]
    return np.array_equal(fold_numbers(swapped, 3, QUICK.seed), fold_numbers(labels, 3, QUICK.seed))


def test_of_a_fold_only_its_share_of_the_classes_is_seen_elsewhere(monkeypatch):
    """A label that flips moves the shares, which evidence is relative to, by 1 / n: of all folds alike, and away from
    the new label. Posteriors, which hold the shares again, hardly move."""
    evidence, labels = noise(400, 5, 2, 0)
    folds = fold_numbers(labels, 3, 0)
    monkeypatch.setattr(cross_fitting, "fold_numbers", lambda *_: folds)
    flipped = labels.copy()
    flipped[7] = 1 - labels[7]
    (_, before), (_, after) = (fit_refiner(evidence, known, options=QUICK) for known in (labels, flipped))
    own = folds == folds[7]
    ratio = [found[own, :, 1] - found[own, :, 0] for found in (before, after)]
    shares = [np.bincount(known) / 400 for known in (labels, flipped)]
    moved = ratio[1] - ratio[0]
    towards = np.sign(flipped[7] - labels[7])
    expected = -(np.log(shares[1][1] / shares[1][0]) - np.log(shares[0][1] / shares[0][0]))
    assert np.sign(expected) == -towards
    assert np.allclose(moved, expected, atol=0.2 * abs(expected))
    assert abs(expected) < 5 / 400


def test_what_learned_from_a_sequence_knows_it_too_well_and_honest_evidence_does_not():
    evidence, labels = noise(120, 4, 2, 1)
    refiner, honest = fit_refiner(evidence, labels, options=RefinementOptions(ridge=1e-3, folds=5))
    seen = refiner.refine(evidence)
    assert np.mean(seen[:, -1].argmax(-1) == labels) > 0.8
    assert np.mean(honest[:, -1].argmax(-1) == labels) < 0.62


@pytest.mark.parametrize(("sequences", "allowed"), [(300, 0.04), (1_000, 0.015)])
def test_labels_of_pure_chance_leave_the_prior(sequences, allowed):
    """The given evidence is much too sure of itself; refined, it is about the prior, here and on others."""
    evidence, labels = noise(sequences, 8, 2, 2)
    fresh, truth = noise(2_000, 8, 2, 3)
    refiner, honest = fit_refiner(evidence, labels)
    shares = np.bincount(labels) / sequences
    for found, known in ((honest, labels), (refiner.refine(fresh), truth)):
        chance = -np.log(shares)[known].mean()
        assert calibration(found, known, shares).negative_log_likelihood.mean() < chance + allowed
    assert calibration(evidence, labels, shares).negative_log_likelihood.mean() > chance + 0.3


@pytest.mark.parametrize("classes", [2, 3])
def test_exact_evidence_stays_as_it_is(classes):
    train, fresh = (
        firmbound.datasets.gaussian(classes, 2_000, 8, seed, dimension=3, separation=0.7) for seed in (1, 2)
    )
    refiner, honest = fit_refiner(train.evidence, train.labels)
    assert refiner.ridge >= 1_000
    for found, problem in ((honest, train), (refiner.refine(fresh.evidence), fresh)):
        before, after = (calibration(one, problem.labels) for one in (problem.evidence, found))
        assert np.all(after.negative_log_likelihood < before.negative_log_likelihood + 0.003)
        assert np.abs(found - problem.evidence).mean() < 0.1


def test_evidence_with_a_memory_is_read_and_becomes_honest(oscillating):
    train, fresh = oscillating
    refiner, honest = fit_refiner(train.evidence, train.labels)
    assert refiner.ridge < 1_000
    for found, problem in ((honest, train), (refiner.refine(fresh.evidence), fresh)):
        before, after = (calibration(one, problem.labels) for one in (problem.evidence, found))
        assert after.negative_log_likelihood.mean() < before.negative_log_likelihood.mean() - 0.15
        assert after.error.mean() < 0.4 * before.error.mean()
        wrong = [np.mean(one[:, 15:].argmax(-1) != problem.labels[:, None]) for one in (problem.evidence, found)]
        assert wrong[1] < 0.9 * wrong[0]


# Causality, ends and steps


@settings(max_examples=25)
@given(st.integers(1, 5), st.integers(0, 1_000))
def test_what_comes_later_changes_nothing_before(hearing, deaf, known, seed):
    random = np.random.default_rng(seed)
    for refiner, problem in (hearing, deaf):
        evidence, features = problem.evidence[:20], problem.features[:20] if refiner.hears_features else None
        before = refiner.refine(evidence, features)
        other = evidence.copy()
        other[:, known:] = 30 * random.standard_normal(other[:, known:].shape)
        if features is not None:
            features = features.copy()
            features[:, known:] = random.standard_normal(features[:, known:].shape)
        after = refiner.refine(other, features)
        assert np.array_equal(before[:, :known], after[:, :known])
        assert not np.array_equal(before[:, known], after[:, known])
        cut = refiner.refine(evidence[:, :known], None if features is None else features[:, :known])
        assert np.array_equal(cut, before[:, :known])


@settings(max_examples=10)
@given(st.integers(0, 1_000), st.sampled_from([1e30, -1e300, 1.7e308]), st.booleans())
def test_what_stands_after_an_end_changes_nothing(seed, huge, hears):
    random = np.random.default_rng(seed)
    evidence, labels = noise(60, 7, 3, seed)
    features = random.standard_normal((60, 7, 2)) if hears else None
    lengths = random.integers(1, 8, 60)
    after = np.arange(7) >= lengths[:, None]
    options = HEARING if hears else QUICK
    refiner, honest = fit_refiner(evidence, labels, lengths=lengths, features=features, options=options)
    other = evidence.astype(np.float64)
    other[after] = huge * random.choice([-1.0, 1.0], (int(after.sum()), 3))
    if features is not None:
        features = features.copy()
        features[after] = huge
    again, same = fit_refiner(other, labels, lengths=lengths, features=features, options=options)
    assert np.array_equal(honest, same)
    assert not honest[after].any()
    assert np.array_equal(refiner.weights, again.weights)
    assert np.array_equal(refiner.scales, again.scales)


@pytest.mark.parametrize("reaching", [1, 2, 5])
def test_steps_that_few_sequences_reach_keep_what_was_learned_before(reaching):
    """Down to one: whoever is alone has nobody to learn from."""
    evidence, labels = noise(100, 9, 2, 0)
    lengths = np.full(100, 4)
    lengths[:reaching] = 8
    refiner, honest = fit_refiner(evidence, labels, lengths=lengths, options=QUICK)
    assert np.isfinite(honest).all()
    for late in range(4, 9):
        assert np.array_equal(refiner.weights[late], refiner.weights[3])
        assert refiner.scales[late] == refiner.scales[3]
    assert not np.array_equal(refiner.weights[3], refiner.weights[2])


def test_batch_is_step_by_step(hearing, deaf):
    for refiner, problem in (hearing, deaf):
        features = problem.features if refiner.hears_features else None
        found = refiner.refine(problem.evidence, features)
        past = refiner.listener.start(150)
        for time in range(1, 7):
            beside = None if features is None else features[:, time - 1]
            past, now = refiner.step(past, time, problem.evidence[:, time - 1], beside)
            assert np.array_equal(now, found[:, time - 1])
        assert np.array_equal(found.max(axis=-1), np.zeros((150, 6)))
        one = refiner.refine(problem.evidence[7:8], None if features is None else features[7:8])
        assert np.allclose(one[0], found[7], atol=1e-5)


def test_each_at_its_own_time(deaf):
    refiner, problem = deaf
    found = refiner.refine(problem.evidence)
    past = refiner.listener.start(150)
    past = type(past)(*(part.copy() for part in past))
    times = np.zeros(150, dtype=np.int64)
    random = np.random.default_rng(0)
    while times.min() < 6:
        rows = np.flatnonzero((random.random(150) < 0.5) & (times < 6))
        times[rows] += 1
        before = type(past)(*(part[rows] for part in past))
        after, now = refiner.steps(before, times[rows], problem.evidence[rows, times[rows] - 1])
        for part, new in zip(past, after, strict=True):
            part[rows] = new
        assert np.allclose(now, found[rows, times[rows] - 1], atol=1e-5)


def test_many_sequences_are_refined_in_blocks_as_few_are(deaf):
    refiner, _ = deaf
    evidence, _ = noise(4_100, 6, 3, 5)
    found = refiner.refine(evidence)
    for rows in (slice(1_990, 2_010), slice(4_080, 4_100)):
        assert np.allclose(refiner.refine(evidence[rows]), found[rows], atol=1e-5)


# Knots


@given(st.integers(1, 2_000))
def test_readouts_are_learned_from_the_first_step_to_the_last(horizon):
    knots = knot_times(horizon)
    assert knots[0] == 1
    assert knots[-1] == horizon
    assert len(knots) == min(horizon, KNOTS) or (horizon > KNOTS and len(knots) <= KNOTS)
    assert np.all(np.diff(knots) >= 1)
    assert np.all(np.diff(np.diff(knots)) >= -1)  # ever fewer, but for rounding


def test_between_knots_weights_of_even_columns_lie_on_a_line():
    evidence, labels = noise(60, 40, 2, 0)
    refiner, honest = fit_refiner(evidence, labels, options=QUICK)
    knots = knot_times(40) - 1
    assert len(knots) < 40
    steps = cross_fitting.walk(refiner.listener, evidence, None, np.full(60, 40), np.arange(60))
    spread = np.stack([step.columns.std(axis=0) for step in steps])
    even = refiner.weights[:, 1:] * spread[:, 1:, None]
    for place in range(even.shape[1]):
        for label in range(2):
            on_lines = np.interp(np.arange(40), knots, even[knots, place, label])
            assert np.allclose(even[:, place, label], on_lines, atol=1e-4)
    assert np.allclose(refiner.scales, np.interp(np.arange(40), knots, refiner.scales[knots]), atol=1e-5)
    assert np.isfinite(honest).all()


@pytest.mark.parametrize("horizon", [2, KNOTS, KNOTS + 1, 60])
def test_any_number_of_steps_is_refined(horizon):
    evidence, labels = noise(60, horizon, 2, 0)
    heard = []
    refiner, honest = fit_refiner(evidence, labels, options=QUICK, progress=lambda *at: heard.append(at))
    assert honest.shape == evidence.shape
    assert refiner.horizon == horizon
    assert heard == [(int(time), horizon) for time in knot_times(horizon)]


# Seeds, folds and rows


def test_a_seed_is_an_answer_to_the_bit(oscillating):
    part, labels = oscillating[0].evidence[:300, :8], oscillating[0].labels[:300]
    (one, honest), (same, as_honest) = (fit_refiner(part, labels) for _ in range(2))
    assert np.array_equal(honest, as_honest)
    assert np.array_equal(one.weights, same.weights)
    assert one.ridge == same.ridge
    other, _ = fit_refiner(part, labels, options=RefinementOptions(seed=1))
    assert not np.array_equal(one.listener.echo.back, other.listener.echo.back)


def test_rows_are_learned_from_in_any_order(monkeypatch):
    """But for the folds they come to lie in, which are drawn by their places."""
    evidence, labels = noise(120, 6, 3, 0)
    folds, order = fold_numbers(labels, 3, 0), np.random.default_rng(1).permutation(120)
    monkeypatch.setattr(cross_fitting, "fold_numbers", lambda *_: folds)
    one, honest = fit_refiner(evidence, labels, options=QUICK)
    monkeypatch.setattr(cross_fitting, "fold_numbers", lambda *_: folds[order])
    other, mixed = fit_refiner(evidence[order], labels[order], options=QUICK)
    assert np.allclose(honest[order], mixed, atol=0.01)
    assert np.allclose(one.weights, other.weights, atol=0.01)


def test_the_ridge_is_chosen_by_all_classes_though_they_come_one_by_one(monkeypatch):
    monkeypatch.setattr(cross_fitting, "PILOT_SEQUENCES", 500)
    problem = firmbound.datasets.gaussian(2, 1_500, 4, 1, dimension=3, separation=0.7)
    order = np.argsort(problem.labels, kind="stable")
    refiner, _ = fit_refiner(problem.evidence[order], problem.labels[order])
    assert refiner.ridge >= 1_000
    assert refiner.ridge in RIDGES


@given(st.integers(2, 6), st.integers(2, 5), st.integers(0, 1_000))
def test_every_class_lies_evenly_in_the_folds(folds, classes, seed):
    random = np.random.default_rng(seed)
    labels = random.permutation(np.repeat(np.arange(classes), random.integers(folds, 20, classes)))
    numbers = fold_numbers(labels, folds, seed)
    for label in range(classes):
        count = np.bincount(numbers[labels == label], minlength=folds)
        assert count.max() - count.min() <= 1
    assert np.array_equal(numbers, fold_numbers(labels, folds, seed))


def test_what_all_classes_share_is_not_learned_from():
    evidence, labels = noise(90, 5, 3, 0)
    shared = 1e3 * np.random.default_rng(0).standard_normal((90, 5, 1))
    (one, honest), (other, same) = (
        fit_refiner(given, labels, options=QUICK) for given in (evidence.astype(float), evidence + shared)
    )
    assert np.allclose(honest, same, atol=5e-3)
    assert np.allclose(one.refine(evidence), other.refine(evidence + shared), atol=5e-3)


@pytest.mark.parametrize("size", [0.0, 1e-200, 1e-30, 1e10, 1e38, 1e300])
def test_evidence_of_any_size_is_refined_to_numbers(size):
    evidence, labels = noise(60, 4, 3, 0)
    for options in (QUICK, RefinementOptions(units=8)):
        refiner, honest = fit_refiner(evidence * np.float64(size), labels, options=options)
        assert np.isfinite(honest).all()
        assert np.isfinite(refiner.refine(evidence * np.float64(size))).all()
    assert np.isfinite(refiner.refine(np.full((3, 4, 3), [1.7e308, -1.7e308, 0.0]))).all()


def test_steps_between_knots_are_as_good_as_the_knots():
    """Columns that hardly vary at first have huge weights: a line between those of two steps would be far off."""
    seen, fresh = (firmbound.datasets.autoregressive((0.1, 0.6), 4_000, 50, seed=seed) for seed in (1, 2))

    def marginal(problem):
        """Evidence that forgets that observations depend on each other."""
        spread = 1.0 / (1.0 - np.array(problem.coefficients) ** 2)
        squares = (problem.features.astype(np.float64) ** 2).sum(axis=-1, keepdims=True)
        return np.cumsum(-np.log(spread) - squares / (2 * spread), axis=1)

    options = firmbound.RefinementOptions(ridge=1.0)
    refiner, honest = firmbound.fit_refiner(marginal(seen), seen.labels, options=options)
    log_shares = np.log(np.bincount(seen.labels) / len(seen.labels))
    for evidence, labels in ((honest, seen.labels), (refiner.refine(marginal(fresh)), fresh.labels)):
        loss = np.array([losses(evidence[:, t], labels, log_shares).mean() for t in range(50)])
        assert np.diff(loss).max() < 0.03  # it falls as more is seen, at every step but for noise
