"""TCN-Transformer: its loss against a loop, a reach that is what it claims, halts that follow alpha."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from firmbound import InvalidInput
from firmbound.baselines.tcn_transformer import (
    HaltingLoss,
    TcnTransformer,
    TcnTransformerNetwork,
    levels_for,
    receptive_field,
)
from firmbound.baselines.training import Lesson, RivalTraining
from firmbound.trajectories import Batch

QUICK = RivalTraining(epochs=10, batch=50, learning_rate=5e-3, device="cpu")
ALPHAS = (0.1, 0.3, 0.9)


def problem(count, seed, lengths=None):
    """Three classes with a first observation that tells nothing, and others that tell a little each."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 3, count)
    told = (np.arange(12) >= 1)[:, None] * np.eye(3)[labels][:, None]
    return Batch(labels, 3, random.normal(size=(count, 12, 3)) + 1.2 * told, lengths=lengths)


@pytest.fixture(scope="module")
def learned():
    rival = TcnTransformer(ALPHAS, channels=16, heads=2, training=QUICK)
    return rival.fit(problem(200, 1), problem(100, 2), seed=0)


@pytest.mark.parametrize(("alpha", "every_step"), [(0.3, 0.0), (0.5, 0.2), (1.0, 0.0), (0.0, 0.1)])
def test_the_loss_is_that_of_a_loop(alpha, every_step):
    torch.manual_seed(0)
    ends = [5, 1, 3, 4]
    said, labels = torch.randn(4, 5, 4, dtype=torch.float64), torch.tensor([0, 2, 1, 1])
    lesson = Lesson(torch.zeros(4, 5, 1), labels, torch.arange(5) < torch.tensor(ends)[:, None])
    wanted = []
    for row, (end, label) in enumerate(zip(ends, labels.tolist(), strict=True)):
        on, total, crossed = 1.0, 0.0, []
        for t in range(1, end + 1):
            *scores, halting = said[row, t - 1].tolist()
            crossed.append(math.log(sum(math.exp(s) for s in scores)) - scores[label])
            own = math.exp(scores[label]) / sum(math.exp(s) for s in scores)
            now = 1.0 / (1.0 + math.exp(-halting)) if t < end else 1.0
            total += on * now * (alpha * crossed[-1] - (1.0 - alpha) * own * (1.0 - t / 5))
            on *= 1.0 - now
        wanted.append(total + every_step * np.mean(crossed))
    assert HaltingLoss(alpha, every_step).of(said, lesson).item() == pytest.approx(np.mean(wanted))


def test_late_steps_learn_though_a_network_halts_early():
    said = torch.zeros(1, 6, 4)
    said[..., -1] = 30.0  # it halts at once
    lesson = Lesson(torch.zeros(1, 6, 1), torch.tensor([1]), torch.ones(1, 6, dtype=torch.bool))
    slopes = []
    for every_step in (0.0, 0.1):
        given = said.clone().requires_grad_()
        HaltingLoss(0.5, every_step).of(given, lesson).backward()
        slopes.append(given.grad[0, -1, :3].abs().sum().item())
    assert slopes[0] < 1e-9
    assert slopes[1] > 1e-3


@pytest.mark.parametrize(("horizon", "levels"), [(2, 1), (5, 1), (6, 2), (13, 2), (14, 3), (29, 3), (50, 4), (500, 4)])
def test_convolutions_see_the_whole_sequence_or_have_four_levels(horizon, levels):
    assert levels_for(horizon) == levels
    assert receptive_field(levels) >= min(horizon, receptive_field(4))


def test_the_receptive_field_is_what_convolutions_depend_on():
    torch.manual_seed(0)
    network = TcnTransformerNetwork(2, 3, 12, channels=8, blocks=1, heads=2, dropout=0.0)
    reach = receptive_field(levels_for(12))
    features = torch.randn(64, 2, 40, requires_grad=True)  # many: a ReLU may be closed for one
    network.levels(features)[..., 30].sum().backward()
    touched = features.grad.abs().sum(dim=(0, 1)) > 0
    assert touched.nonzero().flatten().tolist() == list(range(31 - reach, 31))


@pytest.mark.parametrize("training", [True, False])
def test_the_network_is_causal(training):
    torch.manual_seed(0)
    network = TcnTransformerNetwork(3, 3, 12, channels=9, blocks=2, heads=3, dropout=0.0).train(training)
    features = torch.randn(5, 12, 3)
    with torch.no_grad():
        before = network(features)
        assert before.shape == (5, 12, 4)
        for t in range(1, 12):
            changed = features.clone()
            changed[:, t:] = 9.0 * torch.randn(5, 12 - t, 3)
            after = network(changed)
            torch.testing.assert_close(after[:, :t], before[:, :t], rtol=1e-4, atol=1e-5)
            assert (after[:, t:] - before[:, t:]).abs().max() > 0.01
            # A stream that ends here is the same as one that goes on.
            torch.testing.assert_close(network(features[:, :t]), before[:, :t], rtol=1e-4, atol=1e-5)


def test_steps_that_look_alike_are_told_apart_by_their_place():
    torch.manual_seed(0)
    network = TcnTransformerNetwork(3, 3, 5, channels=8, blocks=1, heads=2, dropout=0.0).eval()
    with torch.no_grad():
        said = network(torch.ones(1, 40, 3))[0, 10:]  # beyond what the padding of convolutions reaches
    assert (said[1:] - said[:-1]).abs().amax(dim=1).min() > 1e-4


def test_dropout_is_of_training_alone():
    torch.manual_seed(0)
    network = TcnTransformerNetwork(3, 3, 12, channels=8, blocks=1, heads=2, dropout=0.5)
    features = torch.randn(2, 12, 3)
    with torch.no_grad():
        assert not torch.equal(network(features), network(features))
        network.eval()
        assert torch.equal(network(features), network(features))


def test_it_learns(learned):
    fresh = problem(300, 3)
    points = learned.points(fresh)
    assert [point.setting for point in points] == list(ALPHAS)
    errors = [np.mean(point.decisions.label != fresh.labels) for point in points]
    assert errors[-1] < 0.12  # by chance 0.67
    assert max(errors) < 0.4


def test_the_more_earliness_weighs_the_earlier_it_halts(learned):
    times = [point.decisions.time.mean() for point in learned.points(problem(300, 3))]
    assert times == sorted(times)
    assert times[0] < times[-1] - 2


def test_beliefs_are_those_at_the_first_likely_halt(learned):
    fresh = problem(40, 3)
    for network, point in zip(learned.networks, learned.points(fresh), strict=True):
        with torch.no_grad():
            said = network(torch.as_tensor(fresh.features, dtype=torch.float32))
        for row, (time, belief) in enumerate(zip(point.decisions.time, point.belief, strict=True)):
            halts = [t for t in range(1, 13) if said[row, t - 1, -1].sigmoid() > 0.5 or t == 12]
            assert time == halts[0]
            np.testing.assert_allclose(belief, said[row, time - 1, :-1].softmax(dim=0), atol=1e-5)
            assert point.decisions.label[row] == belief.argmax()


def test_the_future_changes_no_decision(learned, random):
    fresh = problem(100, 3)
    for setting, point in enumerate(learned.points(fresh)):
        features = fresh.features.copy()
        later = np.arange(12) >= point.decisions.time[:, None]
        features[later] = 9.0 * random.normal(size=(later.sum(), 3))
        after = learned.points(Batch(fresh.labels, 3, features))[setting]
        assert np.array_equal(after.decisions.time, point.decisions.time)
        assert np.array_equal(after.decisions.label, point.decisions.label)
        np.testing.assert_allclose(after.belief, point.belief, rtol=1e-4, atol=1e-5)


def test_what_stands_after_an_end_changes_nothing():
    found = []
    for filling in (0.0, 1e30):
        parts = []
        for seed in (1, 2):
            ends = np.random.default_rng(seed).integers(1, 13, 60)
            part = problem(60, seed, ends)
            features = part.features.copy()
            features[np.arange(12) >= ends[:, None]] = filling
            parts.append(Batch(part.labels, 3, features, lengths=ends))
        rival = TcnTransformer((0.3,), channels=8, heads=2, training=replace(QUICK, epochs=2))
        (point,) = rival.fit(*parts, seed=0).points(parts[1])
        assert np.all(point.decisions.time <= parts[1].lengths)
        found.append(point)
    assert np.array_equal(found[0].decisions.time, found[1].decisions.time)
    assert np.array_equal(found[0].belief, found[1].belief)


def test_the_same_seed_gives_the_same_decisions():
    rival = TcnTransformer((0.3,), channels=8, heads=2, training=replace(QUICK, epochs=3, dropout=0.2))
    fresh = problem(100, 3)
    one, again, other = (rival.fit(problem(100, 1), problem(60, 2), seed=seed).points(fresh)[0] for seed in (0, 0, 1))
    assert np.array_equal(one.decisions.time, again.decisions.time)
    assert np.array_equal(one.belief, again.belief)
    assert not np.array_equal(one.belief, other.belief)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("alpha", {"alpha": ()}),
        ("alpha", {"alpha": 0.3}),
        ("alpha", {"alpha": (0.3, 1.1)}),
        ("alpha", {"alpha": (-0.1,)}),
        ("alpha", {"alpha": (float("nan"),)}),
        ("channels", {"channels": 0}),
        ("channels", {"channels": 10, "heads": 4}),
        ("blocks", {"blocks": 0}),
        ("heads", {"heads": 1.5}),
        ("every_step", {"every_step": -0.1}),
        ("every_step", {"every_step": float("inf")}),
    ],
)
def test_bad_options_are_refused(name, options):
    with pytest.raises(InvalidInput, match=name):
        TcnTransformer(**options)
