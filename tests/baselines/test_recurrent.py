"""Recurrent rivals: causal, learning, calibrated or not as promised; ranking losses against a loop."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

import firmbound
from firmbound import InvalidInput
from firmbound.baselines.probability_threshold import ThresholdOn
from firmbound.baselines.recurrent import MonotoneLstm, PlainGru, RecurrentModel, falls_below_best
from firmbound.baselines.training import RivalTraining
from firmbound.posterior import posterior
from firmbound.temperature import at_times
from firmbound.trajectories import Batch

QUICK = RivalTraining(epochs=15, batch=50, learning_rate=1e-2, device="cpu")
LEARNERS = [PlainGru(16, QUICK), MonotoneLstm("s", 16, training=QUICK), MonotoneLstm("m", 16, training=QUICK)]


def problem(count, seed, prior=None, separation=1.0):
    return firmbound.datasets.gaussian(3, count, 12, seed, dimension=3, separation=separation, prior=prior).batch(0)


@pytest.fixture(scope="module", params=LEARNERS, ids=["gru", "lstm-s", "lstm-m"])
def learned(request):
    return request.param, request.param.fit(problem(200, 1), problem(100, 2), seed=0)


def test_posteriors_are_probabilities_and_grow_right(learned):
    _, model = learned
    fresh = problem(300, 3)
    found = model.posteriors(fresh)
    assert found.shape == (300, 12, 3)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found.sum(axis=2), 1.0, atol=1e-6)
    errors = np.mean(found.argmax(axis=2) != fresh.labels[:, None], axis=0)
    assert errors[-1] < 0.15  # by chance 0.67
    assert errors[-1] < errors[0] - 0.15


def test_the_future_changes_no_earlier_belief(learned, random):
    _, model = learned
    one = problem(50, 3)
    before = model.posteriors(one)
    for t in (1, 5, 11):
        features = one.features.copy()
        features[:, t:] = 9.0 * random.normal(size=features[:, t:].shape)
        after = model.posteriors(Batch(one.labels, 3, features))
        np.testing.assert_allclose(after[:, :t], before[:, :t], rtol=1e-5, atol=1e-7)
        assert np.abs(after[:, t:] - before[:, t:]).max() > 0.1


def test_what_stands_after_an_end_changes_nothing():
    for learner in LEARNERS:
        short = replace(learner, training=replace(QUICK, epochs=2))
        found = []
        for filling in (0.0, 1e30):
            parts = []
            for seed in (1, 2):
                part, ends = problem(60, seed), np.random.default_rng(seed).integers(1, 13, 60)
                features = part.features.copy()
                features[np.arange(12) >= ends[:, None]] = filling
                parts.append(Batch(part.labels, 3, features, lengths=ends))
            found.append(ThresholdOn(short, 20).fit(*parts, seed=0).points(parts[1]))
        for one, other in zip(*found, strict=True):
            assert one.setting == other.setting
            assert np.array_equal(one.decisions.time, other.decisions.time)
            assert np.array_equal(one.belief, other.belief)


def test_the_same_seed_gives_the_same_beliefs(learned):
    short = replace(learned[0], training=replace(QUICK, epochs=3, dropout=0.2))
    fresh = problem(50, 3)
    one, again, other = (short.fit(problem(100, 1), problem(50, 2), seed=seed).posteriors(fresh) for seed in (0, 0, 1))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


@dataclass(frozen=True)
class Finished:
    """A learner that has learned before."""

    model: RecurrentModel

    def fit(self, train, validation, *, seed):
        return self.model


def test_with_a_threshold_it_is_a_rival(learned):
    fresh = problem(300, 3)
    points = ThresholdOn(Finished(learned[1]), 12).fit(problem(200, 1), problem(100, 2), seed=0).points(fresh)
    times = [point.decisions.time.mean() for point in points]
    errors = [np.mean(point.decisions.label != fresh.labels) for point in points]
    assert times == sorted(times)
    assert times[0] < 1.5
    assert times[-1] > 11
    assert min(errors) < 0.12 < errors[0]


def negative_log_likelihood(posteriors, labels):
    return -np.log(posteriors[np.arange(len(labels)), :, labels]).mean()


def test_temperatures_calibrate_the_gru_around_the_prior():
    prior = np.array([0.6, 0.3, 0.1])
    # It learns from sequences that are easier to tell, so it is too sure of others; with one epoch there is none to
    # choose that is less sure.
    train, validation = problem(200, 1, prior, separation=2.0), problem(200, 2, prior, separation=0.7)
    model = PlainGru(16, replace(QUICK, epochs=1, batch=2)).fit(train, validation, seed=0)
    np.testing.assert_allclose(model.prior, np.bincount(train.labels) / 200)
    assert model.temperatures.mean() > 1.1
    evidence = model.evidence(validation).astype(np.float64)
    cooler = evidence / at_times(model.temperatures, np.arange(1, evidence.shape[1] + 1))[:, None]
    np.testing.assert_allclose(model.posteriors(validation), posterior(cooler, model.prior), atol=1e-5)
    fresh = problem(400, 3, prior, separation=0.7)
    cooled, as_they_are = (m.posteriors(fresh) for m in (model, replace(model, temperatures=np.ones(1))))
    assert negative_log_likelihood(cooled, fresh.labels) < negative_log_likelihood(as_they_are, fresh.labels)


def test_nothing_calibrates_the_lstm():
    model = MonotoneLstm(units=8, training=QUICK).fit(problem(60, 1), problem(60, 2), seed=0)
    assert model.temperatures.tolist() == [1.0]
    batch = problem(20, 3)
    with torch.no_grad():
        scores = model.network(torch.as_tensor(batch.features))
    np.testing.assert_allclose(model.posteriors(batch), scores.softmax(dim=-1).numpy(), atol=1e-6)


@pytest.mark.parametrize("kind", ["s", "m"])
def test_ranking_losses_are_those_of_a_loop(kind, random):
    believed = random.dirichlet(np.ones(4), size=(10, 7))
    labels = random.integers(0, 4, 10)
    found = falls_below_best(torch.as_tensor(believed), torch.as_tensor(labels), kind).numpy()
    for row, label in enumerate(labels):
        scores = []
        for t in range(7):
            others = [believed[row, t, k] for k in range(4) if k != label]
            scores.append(believed[row, t, label] - (max(others) if kind == "m" else 0.0))
            wanted = max(0.0, max(scores[:-1]) - scores[-1]) if t else 0.0
            assert found[row, t] == pytest.approx(wanted, abs=1e-12)
    assert found.max() > 0.1


@pytest.mark.parametrize("kind", ["s", "m"])
def test_scores_that_never_fall_cost_nothing(kind, random):
    labels = torch.as_tensor(random.integers(0, 3, 8))
    sure = torch.as_tensor(np.sort(random.uniform(0.1, 1.0, (8, 6)), axis=1))
    rest = (1.0 - sure) / 2
    believed = torch.stack([rest, rest, rest], dim=2).scatter(
        2, labels[:, None, None].expand(-1, 6, 1), sure[..., None]
    )
    assert falls_below_best(believed, labels, kind).abs().max() < 1e-12
    assert falls_below_best(believed.flip(1), labels, kind).max() > 0.1


def test_a_margin_can_fall_while_the_probability_does_not():
    believed = torch.tensor([[[0.5, 0.25, 0.25], [0.5, 0.5, 0.0]]])
    labels = torch.tensor([0])
    assert falls_below_best(believed, labels, "s").sum() == 0
    assert falls_below_best(believed, labels, "m").tolist() == [[0.0, 0.25]]


@pytest.mark.parametrize("kind", ["s", "m"])
def test_the_ranking_loss_makes_beliefs_steadier(kind):
    fresh = problem(200, 3)
    falls = []
    for weight in (0.0, 5.0):
        learner = MonotoneLstm(kind, 16, ranking_weight=weight, training=QUICK)
        believed = learner.fit(problem(200, 1), problem(100, 2), seed=0).posteriors(fresh)
        falls.append(falls_below_best(torch.as_tensor(believed), torch.as_tensor(fresh.labels), kind).mean().item())
    assert falls[1] < 0.8 * falls[0]


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: PlainGru(units=0), "units"),
        (lambda: PlainGru(units=2.5), "units"),
        (lambda: MonotoneLstm(units=True), "units"),
        (lambda: MonotoneLstm(kind="x"), "kind"),
        (lambda: MonotoneLstm(ranking_weight=-1.0), "ranking_weight"),
        (lambda: MonotoneLstm(ranking_weight=float("nan")), "ranking_weight"),
        (lambda: MonotoneLstm(cross_entropy_weight=0.0), "cross_entropy_weight"),
    ],
)
def test_bad_options_are_refused(make, name):
    with pytest.raises(InvalidInput, match=name):
        make()


def test_a_class_that_never_occurs_is_refused():
    part = problem(40, 1)
    with pytest.raises(InvalidInput, match="positive"):
        PlainGru(8, QUICK).fit(Batch(part.labels, 4, part.features), part, seed=0)
