"""The training that rivals share: the best epoch is kept, data alone counts, and a seed decides everything."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from torch import nn

from firmbound import InvalidInput
from firmbound.baselines.training import (
    RivalTraining,
    cross_entropy_over_time,
    lesson_of,
    mean_over_steps,
    outputs,
    train,
)
from firmbound.errors import TrainingDiverged
from firmbound.tandem.data import LabelledBatch
from firmbound.trajectories import Batch

CPU = torch.device("cpu")


def sequences(count, seed, lengths=None):
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, count)
    features = random.normal(size=(count, 4, 2)) + labels[:, None, None]
    return Batch(labels, 2, features, lengths=lengths)


def make():
    return nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.2), nn.Linear(3, 2))


def cross_entropy(network, lesson):
    return mean_over_steps(cross_entropy_over_time(network(lesson.features), lesson.labels), lesson.there)


def weights(network):
    return {name: value.clone() for name, value in network.state_dict().items()}


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


@dataclass
class Watched:
    """A loss that remembers what it was asked, and says on validation sequences what it is told to say."""

    told: list = field(default_factory=list)
    lessons: list = field(default_factory=list)
    after_epoch: list = field(default_factory=list)
    gradients: list = field(default_factory=list)
    scale: float = 1.0

    def __call__(self, network, lesson):
        if network.training:
            self.lessons.append(lesson)
            return self.scale * cross_entropy(network, lesson)
        self.after_epoch.append(weights(network))
        self.gradients.append(nn.utils.get_total_norm([p.grad for p in network.parameters()]).item())
        return torch.tensor(self.told[len(self.after_epoch) - 1])


@pytest.mark.parametrize(
    ("told", "best"), [([3.0, 1.0, 2.0, 1.5], 1), ([4.0, 3.0, 2.0, 1.0], 3), ([1.0, 2.0, 3.0, 1.0], 0)]
)
def test_the_epoch_of_least_validation_loss_is_kept(told, best):
    watched = Watched(told)
    network = train(make, watched, sequences(50, 1), sequences(30, 2), RivalTraining(epochs=4, batch=40), 0)
    assert len(watched.after_epoch) == 4
    assert not network.training
    for epoch, then in enumerate(watched.after_epoch):
        assert same(weights(network), then) == (epoch == best)


def test_whoever_watches_is_told_the_loss_of_every_epoch_and_may_end_it():
    told = []

    def watch(epoch, loss):
        told.append((epoch, loss))
        if loss > 2.0:
            raise InterruptedError

    options = RivalTraining(epochs=4, batch=40, after_epoch=watch)
    data = sequences(50, 1), sequences(30, 2)
    train(make, Watched([2.0, 1.0, 1.5, 0.5]), *data, options, 0)
    assert told == [(1, 2.0), (2, 1.0), (3, 1.5), (4, 0.5)]
    with pytest.raises(InterruptedError):
        train(make, Watched([1.0, 3.0, 1.0, 1.0]), *data, options, 0)
    assert told[4:] == [(1, 1.0), (2, 3.0)]
    assert options == RivalTraining(epochs=4, batch=40)  # it is no option


def test_every_sequence_is_seen_once_an_epoch_in_a_new_order():
    watched = Watched([1.0] * 3)
    batch = sequences(50, 1)
    train(make, watched, batch, sequences(20, 2), RivalTraining(epochs=3, batch=20), 0)
    assert [len(lesson.labels) for lesson in watched.lessons] == [20, 20, 10] * 3
    epochs = [torch.cat([part.features for part in watched.lessons[i : i + 3]]).numpy() for i in (0, 3, 6)]
    for seen in epochs:
        assert np.array_equal(np.sort(seen[:, 0, 0]), np.sort(batch.features[:, 0, 0].astype(np.float32)))
    assert not np.array_equal(epochs[0], epochs[1])
    assert [lesson.progress for lesson in watched.lessons] == [0.0] * 3 + [1 / 3] * 3 + [2 / 3] * 3


def test_long_gradients_are_cut():
    watched = Watched([1.0], scale=1e4)
    train(make, watched, sequences(50, 1), sequences(30, 2), RivalTraining(epochs=1, batch=50, clip=0.3), 0)
    assert watched.gradients[0] == pytest.approx(0.3, rel=1e-3)


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop", "lion"])
def test_every_optimiser_learns(optimizer):
    options = RivalTraining(optimizer=optimizer, epochs=15, batch=20, learning_rate=1e-2)
    network = train(make, cross_entropy, sequences(200, 1), sequences(100, 2), options, 0)
    fresh = sequences(300, 3)
    said = outputs(network, fresh, "cpu").sum(axis=1)
    assert np.mean(said.argmax(axis=1) != fresh.labels) < 0.15


def test_a_seed_decides_everything_and_nothing_else_is_disturbed():
    options = RivalTraining(epochs=2, batch=20)
    data = sequences(50, 1), sequences(30, 2)
    torch.manual_seed(7)
    before = torch.get_rng_state()
    one = weights(train(make, cross_entropy, *data, options, 0))
    assert torch.equal(torch.get_rng_state(), before)
    torch.randn(5)  # whatever else draws
    assert same(one, weights(train(make, cross_entropy, *data, options, 0)))
    assert not same(one, weights(train(make, cross_entropy, *data, options, 1)))


def test_a_loss_that_is_no_number_is_an_error():
    data = sequences(50, 1), sequences(30, 2)
    with pytest.raises(TrainingDiverged, match="learning_rate"):
        train(make, lambda network, lesson: cross_entropy(network, lesson) * torch.nan, *data, RivalTraining(), 0)
    with pytest.raises(TrainingDiverged, match="nan"):
        train(make, Watched([1.0, float("nan")]), *data, RivalTraining(epochs=2), 0)


def test_numbers_after_an_end_change_nothing(random):
    ends = random.integers(1, 5, 60)
    batch = sequences(60, 1, ends)
    features = batch.features.copy()
    features[np.arange(4) >= ends[:, None]] = 1e38  # would overflow in the first layer
    other = Batch(batch.labels, 2, features, lengths=ends)
    options = RivalTraining(epochs=2, batch=20)
    one, two = (train(make, cross_entropy, part, part, options, 0) for part in (batch, other))
    assert same(weights(one), weights(two))
    assert np.array_equal(outputs(one, batch, "cpu"), outputs(one, other, "cpu"))


def test_a_lesson_knows_which_steps_are_data():
    features = np.ones((2, 3, 1))
    lesson = lesson_of(LabelledBatch(features, np.array([1, 0]), np.array([2, 3])), CPU, 0.5)
    assert lesson.there.tolist() == [[True, True, False], [True, True, True]]
    assert lesson.features[..., 0].tolist() == [[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]
    assert lesson.labels.tolist() == [1, 0]
    assert lesson.progress == 0.5


def test_outputs_in_pieces_are_those_of_all():
    network = train(make, cross_entropy, sequences(50, 1), sequences(30, 2), RivalTraining(epochs=1), 0)
    batch = sequences(50, 3)
    whole = outputs(network, batch, "cpu")
    assert whole.shape == (50, 4, 2)
    assert whole.dtype == np.float32
    np.testing.assert_allclose(outputs(network, batch, "cpu", together=7), whole, rtol=1e-6)


def test_means_and_cross_entropies_are_those_of_a_loop(random):
    scores, labels = random.normal(size=(5, 4, 3)), random.integers(0, 3, 5)
    ends = np.array([4, 1, 2, 3, 4])
    crossed = cross_entropy_over_time(torch.as_tensor(scores), torch.as_tensor(labels))
    means = []
    for row, (label, end) in enumerate(zip(labels, ends, strict=True)):
        losses = []
        for t in range(end):
            losses.append(np.log(np.exp(scores[row, t]).sum()) - scores[row, t, label])
            assert crossed[row, t].item() == pytest.approx(losses[-1])
        means.append(np.mean(losses))
    there = torch.arange(4) < torch.as_tensor(ends)[:, None]
    assert mean_over_steps(crossed, there).item() == pytest.approx(np.mean(means))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("optimizer", "sgd"),
        ("learning_rate", 0.0),
        ("learning_rate", float("nan")),
        ("weight_decay", -1.0),
        ("batch", 0),
        ("batch", 2.5),
        ("epochs", 0),
        ("dropout", 1.0),
        ("clip", 0.0),
        ("device", "tpu"),
    ],
)
def test_bad_options_are_refused(name, value):
    with pytest.raises(InvalidInput, match=name):
        RivalTraining(**{name: value})


def test_sequences_without_features_are_refused():
    bare = Batch(np.array([0, 1]), 2, evidence=np.zeros((2, 4, 2)))
    with pytest.raises(InvalidInput, match="features"):
        train(make, cross_entropy, bare, bare, RivalTraining(), 0)
