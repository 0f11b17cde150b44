"""EARLIEST: every term of its loss against loops, a policy gradient that is right on average, halts that make sense."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from firmbound import InvalidInput
from firmbound.baselines.earliest import (
    Earliest,
    EarliestLoss,
    EarliestNetwork,
    Reading,
    chance_of_halting,
    first_halt,
)
from firmbound.baselines.halting import HaltingNetworks, halting_law
from firmbound.baselines.training import Lesson, RivalTraining
from firmbound.trajectories import Batch

QUICK = RivalTraining(epochs=15, batch=50, learning_rate=1e-2, device="cpu")
ONSET = 4  # observations that tell nothing


def problem(count, seed, lengths=None, onset=ONSET, size=2.0):
    """Three classes that nobody can tell before the fifth of twelve observations, or before another."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 3, count)
    told = (np.arange(12) >= onset)[:, None] * np.eye(3)[labels][:, None]
    return Batch(labels, 3, random.normal(size=(count, 12, 3)) + size * told, lengths=lengths)


@pytest.fixture(scope="module")
def learned():
    """Of three penalties, from the least to the largest."""
    return Earliest((1e-10, 0.1, 3.0), 16, training=QUICK).fit(problem(200, 1), problem(100, 2), seed=0)


def some_reading(rows=6, horizon=5, seed=0):
    """Numbers of double precision that a network could have said, and lengths of all kinds."""
    torch.manual_seed(seed)
    kind = {"dtype": torch.float64, "requires_grad": True}
    reading = Reading(
        torch.randn(rows, horizon, 3, **kind), torch.randn(rows, horizon, **kind), torch.rand(rows, horizon, **kind)
    )
    ends = torch.tensor([horizon, 1, 2, 3, horizon, horizon])[:rows]
    there = torch.arange(horizon) < ends[:, None]
    return reading, Lesson(torch.zeros(rows, horizon, 1), torch.randint(0, 3, (rows,)), there), ends.tolist()


def sigmoid(x):
    return 1.0 / (1.0 + math.exp(-x))


def cross_entropy(scores, label):
    return math.log(sum(math.exp(s) for s in scores)) - scores[label]


def test_the_law_of_halting_is_that_of_a_loop():
    reading, lesson, ends = some_reading()
    law = halting_law(reading.halting, lesson.there)
    for row, end in enumerate(ends):
        on = 1.0
        for t in range(5):
            now = sigmoid(reading.halting[row, t].item()) if t < end - 1 else float(t == end - 1)
            assert law[row, t].item() == pytest.approx(on * now)
            on *= 1.0 - now
    torch.testing.assert_close(law.sum(dim=1), torch.ones(6, dtype=torch.float64))


def test_the_law_of_halting_has_slopes_everywhere():
    halting = torch.tensor([[300.0, -300.0, 0.0], [-300.0, -300.0, 300.0]], requires_grad=True)
    law = halting_law(halting, torch.tensor([[True, True, False], [True, True, True]]))
    assert law.tolist() == [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    law.square().sum().backward()
    assert torch.isfinite(halting.grad).all()


def test_sequences_halt_at_the_first_halt_or_at_their_ends(random):
    halting = torch.as_tensor(random.random((200, 6)) < 0.2)
    ends = random.integers(1, 7, 200)
    found = first_halt(halting, torch.arange(6) < torch.as_tensor(ends)[:, None])
    for row, end in enumerate(ends):
        wanted = next((t for t in range(end) if halting[row, t]), end - 1)
        assert found[row] == wanted


def test_explorers_halt_at_any_time_alike():
    there = torch.arange(6) < torch.tensor([6, 3])[:, None]
    chance = chance_of_halting(torch.full((2, 6), 9.0), there, exploration=1.0).double()
    law = halting_law(torch.logit(chance), there)
    np.testing.assert_allclose(law[0], np.full(6, 1 / 6), atol=1e-5)
    np.testing.assert_allclose(law[1], [1 / 3] * 3 + [0] * 3, atol=1e-5)
    halting = torch.tensor([[-2.0, 0.0, 2.0]])  # without exploration the controller decides
    chance = chance_of_halting(halting, torch.ones(1, 3, dtype=torch.bool), exploration=0.0)
    torch.testing.assert_close(chance, halting.sigmoid())


def price(chances, waiting):
    """Of having waited at steps with these chances of halting."""
    paid = [-math.log(chance) for chance in chances]
    return (sum(paid) / len(paid) if waiting == "mean" else sum(paid)) if paid else 0.0


@pytest.mark.parametrize("waiting", ["mean", "sum"])
def test_the_loss_of_drawn_halts_is_that_of_a_loop(waiting):
    reading, lesson, ends = some_reading()
    chance = chance_of_halting(reading.halting, lesson.there, exploration=0.3)
    halt = torch.tensor([2, 0, 1, 1, 4, 0])  # at the end, before it and at once
    found = EarliestLoss(0.7, waiting).drawn(reading, lesson, chance, halt).item()
    wanted = []
    for row, (end, h) in enumerate(zip(ends, halt.tolist(), strict=True)):
        label, scores = lesson.labels[row].item(), reading.scores[row, h].tolist()
        reward = 1.0 if scores.index(max(scores)) == label else -1.0
        worth, chances = reading.worth[row].tolist(), chance[row].tolist()
        total = cross_entropy(scores, label)
        for t in range(h + 1):
            if t < end - 1:
                action = math.log(chances[t]) if t == h else math.log(1.0 - chances[t])
                total -= action * (reward - worth[t])
            total += (worth[t] - reward) ** 2 / (h + 1)
        wanted.append(total + 0.7 * price(chances[:h], waiting))
    assert found == pytest.approx(np.mean(wanted))


@pytest.mark.parametrize("waiting", ["mean", "sum"])
def test_the_expected_loss_is_that_of_a_loop_over_all_halts(waiting):
    reading, lesson, ends = some_reading()
    found = EarliestLoss(0.7, waiting).expected(reading, lesson).item()
    wanted = 0.0
    for row, end in enumerate(ends):
        chances, label, on = [sigmoid(z) for z in reading.halting[row].tolist()], lesson.labels[row].item(), 1.0
        for h in range(end):
            scores = reading.scores[row, h].tolist()
            reward = 1.0 if scores.index(max(scores)) == label else -1.0
            now = chances[h] if h < end - 1 else 1.0
            wanted += on * now * (cross_entropy(scores, label) - reward + 0.7 * price(chances[:h], waiting)) / 6
            on *= 1.0 - now
    assert found == pytest.approx(wanted)


def test_reinforce_follows_the_slope_of_the_expected_reward():
    """Over all halts, weighed by their chances, its gradient is that of the mean reward, whatever the baseline."""
    for row in range(6):
        reading, lesson, ends = some_reading()
        reading = Reading(*(part[row : row + 1] for part in reading))
        lesson = Lesson(*(part[row : row + 1] for part in lesson[:3]))
        halting = reading.halting.detach().requires_grad_()
        reading = reading._replace(halting=halting)
        law = halting_law(halting, lesson.there)
        right = torch.where(reading.scores.argmax(dim=2) == lesson.labels[:, None], 1.0, -1.0)
        (wanted,) = torch.autograd.grad(-(law * right).sum(), halting)
        found = torch.zeros_like(halting)
        for h in range(ends[row]):
            chance = chance_of_halting(halting, lesson.there, exploration=0.0)
            loss = EarliestLoss(0.0).drawn(reading, lesson, chance, torch.tensor([h]))
            found += law[0, h].item() * torch.autograd.grad(loss, halting)[0]
        torch.testing.assert_close(found, wanted)


def test_the_baseline_learns_from_its_error_alone():
    reading, lesson, _ = some_reading()
    chance = chance_of_halting(reading.halting, lesson.there, exploration=0.3)
    halt = torch.tensor([2, 0, 1, 1, 4, 0])
    (slopes,) = torch.autograd.grad(EarliestLoss(0.7).drawn(reading, lesson, chance, halt), reading.worth)
    said = reading.scores[torch.arange(6), halt].argmax(dim=1)
    reward = torch.where(said == lesson.labels, 1.0, -1.0)[:, None]
    asked = torch.arange(5) <= halt[:, None]
    wanted = 2 * (reading.worth - reward) / (6 * (halt[:, None] + 1))
    torch.testing.assert_close(slopes, wanted.where(asked, 0.0).detach())


def test_the_baseline_learns_without_bending_the_states():
    torch.manual_seed(0)
    network = EarliestNetwork(3, 8, 3, 12, 0.0)
    features = torch.randn(4, 12, 3)
    network.read(features).worth.sum().backward()
    assert network.baseline.weight.grad.abs().sum() > 0
    assert all(weight.grad is None for weight in network.recurrent.parameters())
    network.read(features).halting.sum().backward()
    assert all(weight.grad.abs().sum() > 0 for weight in network.recurrent.parameters())


def test_validation_draws_nothing_and_training_does():
    torch.manual_seed(0)
    network, loss = EarliestNetwork(3, 8, 3, 12, 0.0), EarliestLoss(0.1)
    lesson = Lesson(torch.randn(30, 12, 3), torch.randint(0, 3, (30,)), torch.ones(30, 12, dtype=torch.bool), 0.0)
    assert loss(network, lesson) != loss(network, lesson)
    network.eval()
    assert loss(network, lesson) == loss(network, lesson)


def test_it_learns_what_to_say_and_that_waiting_pays(learned):
    fresh = problem(300, 3)
    patient = learned.points(fresh)[0]
    assert patient.setting == 1e-10
    assert np.mean(patient.decisions.label != fresh.labels) < 0.15  # by chance 0.67
    assert np.mean(patient.decisions.time > ONSET) > 0.95


def test_larger_penalties_halt_no_later(learned):
    times = [point.decisions.time.mean() for point in learned.points(problem(300, 3))]
    assert times == sorted(times, reverse=True)
    assert times[-1] < times[0] - 3


def test_it_halts_once_it_has_seen_enough():
    """With observations that tell a little each, clear sequences are halted before unclear ones."""
    train, validation, fresh = (problem(n, seed, onset=0, size=1.0) for n, seed in ((400, 1), (100, 2), (300, 3)))
    rival = Earliest((0.1,), 16, "sum", replace(QUICK, epochs=25, batch=25))
    (point,) = rival.fit(train, validation, seed=0).points(fresh)
    time = point.decisions.time
    assert 3 < time.mean() < 11
    assert time.std() > 1
    assert np.mean(point.decisions.label != fresh.labels) < 0.1
    top = np.sort(fresh.features[:, :6].sum(axis=1), axis=1)
    assert np.corrcoef(top[:, -1] - top[:, -2], time)[0, 1] < -0.3


def test_beliefs_are_the_discriminators_at_the_halt(learned):
    fresh = problem(40, 3)
    for network, point in zip(learned.networks, learned.points(fresh), strict=True):
        with torch.no_grad():
            reading = network.read(torch.as_tensor(fresh.features, dtype=torch.float32))
        for row, (time, belief) in enumerate(zip(point.decisions.time, point.belief, strict=True)):
            halts = [t for t in range(1, 13) if sigmoid(reading.halting[row, t - 1].item()) > 0.5 or t == 12]
            assert time == halts[0]
            np.testing.assert_allclose(belief, reading.scores[row, time - 1].softmax(dim=0), atol=1e-5)
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
        np.testing.assert_allclose(after.belief, point.belief, rtol=1e-4, atol=1e-6)


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
        rival = Earliest((0.1,), 8, training=replace(QUICK, epochs=2))
        (point,) = rival.fit(*parts, seed=0).points(parts[1])
        assert np.all(point.decisions.time <= parts[1].lengths)
        found.append(point)
    assert np.array_equal(found[0].decisions.time, found[1].decisions.time)
    assert np.array_equal(found[0].belief, found[1].belief)


def test_a_sequence_that_never_halts_is_decided_at_its_end():
    fresh = problem(30, 3, np.random.default_rng(3).integers(1, 13, 30))

    class Silent(torch.nn.Module):
        def forward(self, features):
            return torch.zeros(*features.shape[:2], 4)

    (point,) = HaltingNetworks((Silent(),), (1.0,), "cpu").points(fresh)  # one half is not above one half
    assert np.array_equal(point.decisions.time, fresh.lengths)
    np.testing.assert_allclose(point.belief, 1 / 3)


def test_the_same_seed_gives_the_same_decisions():
    rival = Earliest((0.1,), 8, training=replace(QUICK, epochs=4))
    fresh = problem(100, 3)
    one, again, other = (rival.fit(problem(100, 1), problem(60, 2), seed=seed).points(fresh)[0] for seed in (0, 0, 1))
    assert np.array_equal(one.decisions.time, again.decisions.time)
    assert np.array_equal(one.belief, again.belief)
    assert not np.array_equal(one.belief, other.belief)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("penalty", ()),
        ("penalty", 0.1),
        ("penalty", (0.1, -1.0)),
        ("penalty", (float("nan"),)),
        ("hidden", 0),
        ("waiting", "median"),
    ],
)
def test_bad_options_are_refused(name, value):
    with pytest.raises(InvalidInput, match=name):
        Earliest(**{name: value})
