"""Training: learns what is there, the same way twice, and goes on after a kill as if nothing had been."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

import firmbound
from firmbound.bundle import read_bundle, write_bundle
from firmbound.errors import BundleError, InvalidInput, NumericalError
from firmbound.evaluation.calibration import calibration
from firmbound.scaling import Moments
from firmbound.store import StoreDescription, TrajectoryStore, create_store
from firmbound.tandem.data import ArraySource, StoreSource, shuffled_batches
from firmbound.tandem.model import TandemModel, fit_tandem, fit_tandem_from
from firmbound.tandem.options import NetworkOptions, TrainingOptions
from firmbound.tandem.training import Trainer

SMALL = NetworkOptions(order=1, projection=8, hidden=8)
QUICK = TrainingOptions(epochs=3, batch=100, learning_rate=3e-3)


def problem(sequences, seed, classes=2):
    return firmbound.datasets.gaussian(classes, sequences, 8, seed, dimension=4, separation=0.8)


def fit(training=QUICK, network=SMALL, sequences=1_000, data=None, **more):
    train, held_out = data or (problem(sequences, 1), problem(300, 2))
    return fit_tandem(
        train.features,
        train.labels,
        validation=(held_out.features, held_out.labels),
        network=network,
        training=training,
        **more,
    )


def weights(model):
    return {name: value.numpy() for name, value in model.network.state_dict().items()}


def same(one, other):
    return all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("integrator", ["lstm", "transformer"])
def test_learned_ratios_are_the_true_ones(classes, integrator):
    train, held_out, fresh = problem(6_000, 1, classes), problem(1_000, 2, classes), problem(2_000, 3, classes)
    order = 0 if integrator == "lstm" else 1
    network = NetworkOptions(integrator=integrator, order=order, projection=16, hidden=16, heads=2, units=16)
    training = TrainingOptions(epochs=12, batch=100, learning_rate=3e-3, weight_decay=1e-4)
    model = fit_tandem(
        train.features,
        train.labels,
        validation=(held_out.features, held_out.labels),
        prior=np.full(classes, 1 / classes),
        network=network,
        training=training,
    )
    found = model.evidence(fresh.features)[:, -1].astype(float)
    exact = fresh.evidence[:, -1].astype(float)
    ratio, truth = found[:, 0] - found[:, 1], exact[:, 0] - exact[:, 1]
    assert np.corrcoef(ratio, truth)[0, 1] > 0.97
    assert 0.8 < np.polyfit(truth, ratio, 1)[0] < 1.2


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop", "lion"])
@pytest.mark.parametrize("loss", ["lsel", "lllr"])
def test_every_optimiser_lowers_every_loss(optimizer, loss):
    seen = []
    rate = 3e-4 if optimizer == "lion" else 3e-3
    training = TrainingOptions(optimizer=optimizer, ratio_loss=loss, epochs=3, batch=100, learning_rate=rate)
    fit(training, progress=lambda *shown: seen.append(shown))
    assert [shown[:2] for shown in seen] == [(1, 3), (2, 3), (3, 3)]
    assert seen[-1][3] < seen[0][3]


def test_the_same_seed_gives_the_same_network():
    network = NetworkOptions(integrator="transformer", order=1, projection=8, heads=2, dropout=0.3)
    one = fit(network=network)
    torch.randn(5)  # whatever else draws
    assert same(weights(one), weights(fit(network=network)))
    other = TrainingOptions(epochs=3, batch=100, learning_rate=3e-3, seed=1)
    assert not same(weights(one), weights(fit(other, network)))


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop", "lion"])
def test_interrupted_and_resumed_equals_undisturbed(tmp_path, optimizer, monkeypatch):
    network = NetworkOptions(integrator="transformer", order=1, projection=8, heads=2, dropout=0.2)
    training = TrainingOptions(optimizer=optimizer, epochs=4, batch=100, learning_rate=1e-3)
    undisturbed = fit(training, network)

    def stop(epoch, *_):
        if epoch == 2:
            raise Interrupted

    with pytest.raises(Interrupted):
        fit(training, network, checkpoint=tmp_path / "check", progress=stop)
    seen, trained = [], []
    train_epoch = Trainer._train_epoch
    monkeypatch.setattr(Trainer, "_train_epoch", lambda self, *a: trained.append(1) or train_epoch(self, *a))
    resumed = fit(training, network, checkpoint=tmp_path / "check", progress=lambda epoch, *_: seen.append(epoch))
    assert seen == [1, 2, 3, 4]  # also what lies behind the checkpoint is told
    assert len(trained) == 2
    assert same(weights(undisturbed), weights(resumed))


def test_killed_and_resumed_equals_undisturbed(tmp_path):
    """kill -9 at any moment: a whole checkpoint is there or none, and a new process ends where the old one would have.

    Each run is a process of its own: what else a process has loaded may change the last bit of its products.
    """
    script = (
        "import sys\n"
        "from tests.tandem.test_training import fit, TrainingOptions\n"
        "training = TrainingOptions(epochs=25, batch=100, patience=None)\n"
        "fit(training, checkpoint=sys.argv[1]).save(sys.argv[2])\n"
    )

    def start(name):
        folders = [str(tmp_path / f"{name}-checkpoint"), str(tmp_path / name)]
        return subprocess.Popen([sys.executable, "-W", "ignore", "-c", script, *folders])

    running = start("resumed")
    while not (tmp_path / "resumed-checkpoint" / "header.json").is_file():
        assert running.poll() is None
        time.sleep(0.02)
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    assert not (tmp_path / "resumed").exists()
    assert start("resumed").wait() == 0
    assert start("undisturbed").wait() == 0
    resumed, undisturbed = (tmp_path / name / "arrays.safetensors" for name in ("resumed", "undisturbed"))
    assert resumed.read_bytes() == undisturbed.read_bytes()


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
    fit(checkpoint=tmp_path / "check")
    with pytest.raises(BundleError, match="other network"):
        fit(network=NetworkOptions(order=2, projection=8, hidden=8), checkpoint=tmp_path / "check")
    with pytest.raises(BundleError, match="other training"):
        fit(TrainingOptions(epochs=9, batch=100), checkpoint=tmp_path / "check")
    with pytest.raises(BundleError, match="other data"):
        fit(sequences=900, checkpoint=tmp_path / "check")
    same_shape = problem(1_000, 7), problem(300, 2)
    with pytest.raises(BundleError, match="other data"):
        fit(data=same_shape, checkpoint=tmp_path / "check")


def test_a_checkpoint_that_lost_its_name_is_found(tmp_path):
    """A kill between the two renames that replace a checkpoint leaves the old one under a hidden name."""
    whole = fit(checkpoint=tmp_path / "check")
    (tmp_path / "check").rename(tmp_path / ".check.replaced")
    again = fit(checkpoint=tmp_path / "check", progress=lambda *_: None)
    assert same(weights(whole), weights(again))
    assert not (tmp_path / ".check.replaced").exists()


def test_the_prior_to_believe_in_is_not_the_one_that_was_learned():
    """Labels three to one, a believer who holds them even: evidence is the same, for it holds no prior."""
    train, held_out = (
        firmbound.datasets.gaussian(2, n, 8, s, dimension=4, prior=[0.75, 0.25]) for n, s in ((1_000, 1), (300, 2))
    )
    models = [fit(data=(train, held_out), prior=prior) for prior in (None, [0.5, 0.5])]
    one, other = (model.evidence(held_out.features) for model in models)
    assert np.array_equal(one, other)
    assert models[0].prior[0] == pytest.approx(np.mean(train.labels == 0))
    assert models[1].prior.tolist() == [0.5, 0.5]


def test_the_validation_loss_does_not_depend_on_batches():
    train, held_out = (
        firmbound.datasets.gaussian(3, n, 8, s, dimension=4, prior=[0.9, 0.05, 0.05]) for n, s in ((300, 1), (300, 2))
    )
    sources = [ArraySource.of(part.features, part.labels, 3) for part in (train, held_out)]
    losses = [Trainer(*sources, 3, SMALL, TrainingOptions(batch=batch)).validation_loss() for batch in (300, 100, 7, 1)]
    assert losses == pytest.approx([losses[0]] * 4, rel=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch": 10.5}, "batch.*whole"),
        ({"epochs": True}, "epochs.*whole"),
        ({"seed": -1}, "seed"),
        ({"learning_rate": "1e-3"}, "learning_rate.*number"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"patience": 0}, "patience"),
        ({"ratio_weight": 0.0, "multiplet_weight": 0.0}, "Nothing is learned"),
    ],
)
def test_training_options_that_cannot_be_are_refused(changes, message):
    with pytest.raises(InvalidInput, match=message):
        TrainingOptions(**changes)


def test_labels_and_features_that_cannot_be_learned_from_are_refused():
    good = problem(100, 1)
    for labels, message in (
        (np.zeros(100, dtype=int), "two classes"),
        (np.where(np.arange(100) == 3, np.nan, good.labels), "integers"),
    ):
        with pytest.raises(InvalidInput, match=message):
            fit_tandem(good.features, labels, validation=(good.features, labels), network=SMALL)
    huge = np.where(np.arange(8)[:, None] == 3, 1e39, good.features.astype(np.float64))
    with pytest.raises(InvalidInput, match=r"features.*finite"):
        fit_tandem(huge, good.labels, validation=(good.features, good.labels), network=SMALL)
    model = fit()
    with pytest.raises(InvalidInput, match=r"features.*finite"):
        model.evidence(huge)
    with pytest.raises(InvalidInput, match=r"observation.*finite"):
        model.stream().push([np.nan, 0.0, 0.0, 0.0])
    with pytest.raises(InvalidInput, match=r"observation.*4 numbers"):
        model.stream().push([0.0])


def test_elsewhere_is_a_copy():
    model = fit()
    assert model.on("cpu").network is not model.network


def test_training_ends_when_validation_no_longer_improves():
    seen = []
    training = TrainingOptions(epochs=60, batch=50, learning_rate=0.02, patience=2, schedule="constant")
    fit(training, sequences=200, progress=lambda *shown: seen.append(shown))
    assert len(seen) < 60
    best = min(range(len(seen)), key=lambda index: seen[index][3])
    assert len(seen) == best + 1 + 2


def test_divergence_names_step_rate_and_checkpoint(tmp_path):
    training = TrainingOptions(epochs=30, batch=50, learning_rate=1e37, clip=None, schedule="constant")
    with pytest.raises(
        NumericalError, match=r"diverged with a learning rate of 1e\+37 at step \d+: the loss is"
    ) as at_once:
        fit(training, checkpoint=tmp_path / "check")
    assert ("no checkpoint" in str(at_once.value)) == (not (tmp_path / "check").exists())
    fit(TrainingOptions(epochs=2, batch=50), checkpoint=tmp_path / "other")

    class Poisoned(ArraySource):
        """From the second epoch on, a batch is no number."""

        def read(self, rows):
            values = super().read(rows).copy()
            return values * np.nan if reads.append(rows) or len(reads) > 11 else values

    reads: list[slice] = []
    train, held_out = problem(1_000, 1), problem(300, 2)
    with pytest.raises(NumericalError, match=r"last good checkpoint, of epoch 1, is .*poisoned"):
        fit_tandem_from(
            Poisoned.of(train.features, train.labels, 2),
            ArraySource.of(held_out.features, held_out.labels, 2),
            np.array([0.5, 0.5]),
            SMALL,
            QUICK,
            checkpoint=tmp_path / "poisoned",
        )
    assert (tmp_path / "poisoned").is_dir()


@pytest.mark.parametrize("temperatures", [[1.7], [0.6, 0.9, 1.1, 1.3]])
def test_a_saved_model_is_the_same_and_streams(tmp_path, temperatures):
    model, fresh = replace(fit(), temperatures=np.array(temperatures)), problem(20, 9)
    model.save(tmp_path / "model")
    again = TandemModel.load(tmp_path / "model")
    assert again.temperatures.tolist() == temperatures
    evidence = model.evidence(fresh.features)
    assert np.array_equal(evidence, again.evidence(fresh.features))
    assert np.array_equal(evidence.max(axis=-1), np.zeros((20, 8)))
    stream = again.stream()
    for t in range(8):
        pushed = stream.push(fresh.features[0, t])
        assert np.allclose(pushed - pushed.max(), evidence[0, t], atol=1e-5)
        elsewhere = again.stream()
        assert np.array_equal(elsewhere.restore(stream.state()), pushed)
    pool = again.pool(2)
    for t in range(8):  # the second begins two observations later
        both = np.array([0, 1] if t > 1 else [0])
        pushed = pool.advance(both, np.stack([fresh.features[one, t - 2 * one] for one in both]).astype(np.float32))
        for one, row in zip(both, pushed, strict=True):
            assert np.allclose(row, evidence[one, t - 2 * one], atol=1e-5)


def test_models_with_one_temperature_are_still_read_and_broken_ones_are_not(tmp_path):
    model = replace(fit(), temperatures=np.array([1.7]))
    header, arrays = _parts_of(model, tmp_path / "model")
    del header["temperatures"]
    write_bundle(tmp_path / "older", kind="tandem", header=header | {"temperature": 1.7}, arrays=arrays)
    assert TandemModel.load(tmp_path / "older").temperatures.tolist() == [1.7]
    for place, broken in enumerate(([], [0.0], [1.0, -1.0], [[1.0]], ["warm"], None)):
        write_bundle(tmp_path / str(place), kind="tandem", header=header | {"temperatures": broken}, arrays=arrays)
        with pytest.raises(BundleError, match="no TANDEM model"):
            TandemModel.load(tmp_path / str(place))


def _parts_of(model, path):
    model.save(path)
    header, arrays = read_bundle(path, kind="tandem")
    own = ("network", "dimension", "classes", "oblivious", "temperatures")
    return {name: header[name] for name in own}, arrays


def test_stores_are_streamed_and_train_like_arrays(tmp_path):
    train, held_out = problem(1_000, 1), problem(300, 2)
    about = StoreDescription("toy", "train", (1,), 1_000, 8, 2, 4, (0.5, 0.5), True)
    with create_store(tmp_path / "train.zarr", about) as writer:
        writer.write(0, train.batch(0))
    source = StoreSource(TrajectoryStore(tmp_path / "train.zarr"))
    arrays = ArraySource.of(train.features, train.labels, 2)
    validation = ArraySource.of(held_out.features, held_out.labels, 2)
    prior = np.array([0.5, 0.5])
    one, other = (fit_tandem_from(each, validation, prior, SMALL, QUICK) for each in (source, arrays))
    assert same(weights(one), weights(other))


def test_a_checkpoint_of_another_scale_is_refused(tmp_path):
    train = problem(1_000, 1)
    about = StoreDescription("toy", "train", (1,), 1_000, 8, 2, 4, (0.5, 0.5), True)
    with create_store(tmp_path / "train.zarr", about) as writer:
        writer.write(0, train.batch(0))

    def start(scaling):
        source = StoreSource(TrajectoryStore(tmp_path / "train.zarr"), scaling)
        return fit_tandem_from(source, source, np.full(2, 0.5), SMALL, QUICK, checkpoint=tmp_path / "check")

    scaling = Moments.of(train.features).scaling()
    start(scaling)
    start(scaling)
    for other in (None, replace(scaling, mean=scaling.mean + 0.1), replace(scaling, scale=scaling.scale * 2)):
        with pytest.raises(BundleError, match="other data"):
            start(other)


@pytest.mark.parametrize("sequences", [1, 99, 100, 4_001, 9_050])
def test_every_sequence_is_seen_once_an_epoch_in_a_new_order(sequences):
    features = np.arange(sequences, dtype=np.float32)[:, None, None].repeat(2, axis=1)
    lengths = 1 + np.arange(sequences) % 2
    source = ArraySource.of(features, np.zeros(sequences, dtype=np.int64), 1, lengths)
    epochs = []
    for epoch in range(2):
        batches = list(shuffled_batches(source, 64, (0, epoch)))
        assert all(len(batch.labels) == 64 for batch in batches[:-1])
        epochs.append(np.concatenate([batch.features[:, 0, 0] for batch in batches]))
        assert np.array_equal(np.concatenate([batch.lengths for batch in batches]), 1 + epochs[-1] % 2)
        assert np.array_equal(np.sort(epochs[-1]), np.arange(sequences))
    assert sequences == 1 or not np.array_equal(*epochs)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": np.zeros(40, dtype=int)}, "labels"),
        ({"features": np.full((40, 5, 3), np.nan)}, "finite"),
        ({"network": NetworkOptions(order=5)}, "order"),
        ({"training": TrainingOptions(batch=41)}, "batch"),
        ({"validation": (np.zeros((4, 5, 2)), np.array([0, 1, 0, 1]))}, "validation"),
        ({"labels": np.array([0, 2] * 20)}, "every class"),
        ({"prior": [0.5, 0.6]}, "sum to 1"),
        ({"labels": np.array(["a", "b"] * 20)}, "labels"),
        ({"labels": np.array([0, -1] * 20)}, "labels"),
        ({"labels": np.array([0, 1] * 19)}, "labels"),
    ],
)
def test_bad_input_is_refused(change, message):
    labels = np.array([0, 1] * 20)
    arguments = {"features": np.zeros((40, 5, 3)), "labels": labels, "training": TrainingOptions(batch=10)}
    arguments |= {"validation": (np.zeros((4, 5, 3)), labels[:4])} | change
    features, given = arguments.pop("features"), arguments.pop("labels")
    with pytest.raises(InvalidInput, match=message):
        fit_tandem(features, given, **arguments)


BAD_SHAPES = [{"integrator": "oracle"}, {"order": -1}, {"order": 1.5}, {"activation": "step"}, {"dropout": 1.0}]
BAD_SHAPES += [{"output_activation": "step"}, {"hidden": 0}, {"projection": 0}, {"blocks": 0}, {"units": "many"}]


@pytest.mark.parametrize("options", BAD_SHAPES)
def test_bad_networks_are_refused(options):
    (name,) = options
    with pytest.raises(InvalidInput, match=name):
        NetworkOptions(**options)


def test_heads_must_divide_the_projection():
    with pytest.raises(InvalidInput, match="multiple of heads"):
        NetworkOptions(integrator="transformer", projection=10, heads=4)


BAD_TRAINING = [{"optimizer": "luck"}, {"learning_rate": 0.0}, {"weight_decay": -1.0}, {"batch": 0}, {"epochs": 0}]
BAD_TRAINING += [{"ratio_loss": "mse"}, {"schedule": "steps"}, {"clip": 0.0}, {"patience": 0}, {"device": "abacus"}]


@pytest.mark.parametrize("options", BAD_TRAINING)
def test_bad_training_is_refused(options):
    (name,) = options
    with pytest.raises(InvalidInput, match=name):
        TrainingOptions(**options)
    with pytest.raises(InvalidInput, match="Nothing is learned"):
        TrainingOptions(ratio_weight=0.0, multiplet_weight=0.0)


def test_the_trainer_keeps_the_losses_of_all_epochs():
    train, held_out = problem(400, 1), problem(100, 2)
    sources = [ArraySource.of(each.features, each.labels, 2) for each in (train, held_out)]
    trainer = Trainer(*sources, 2, SMALL, QUICK)
    trainer.run()
    assert [set(row) for row in trainer.state.history] == [{"train_loss", "validation_loss"}] * 3


def test_a_temperature_is_fitted_on_validation_sequences():
    """Held down by a strong weight decay, a network is not sure enough; the temperature takes that back."""
    training = TrainingOptions(epochs=6, batch=50, learning_rate=1e-2, weight_decay=3e-2)
    plain, fitted = (fit(training, calibrate=calibrate) for calibrate in (False, True))
    assert plain.temperatures.tolist() == [1.0]
    fresh = problem(2_000, 3)
    losses = [
        calibration(model.evidence(fresh.features), fresh.labels, model.prior).negative_log_likelihood.mean()
        for model in (plain, fitted)
    ]
    assert fitted.temperatures.mean() < 0.9
    assert losses[1] < losses[0]
    sure = replace(plain, temperatures=np.array([0.3]))
    held_out = problem(300, 2)
    again = sure.calibrated(ArraySource.of(held_out.features, held_out.labels, 2))
    assert np.array_equal(again.temperatures, fitted.temperatures)  # what it was before does not matter
    assert np.allclose(again.evidence(fresh.features), fitted.evidence(fresh.features))


@pytest.mark.parametrize("integrator", ["lstm", "transformer"])
def test_memory_matters_where_series_remember(integrator):
    """Autoregressive classes with equal spread by time: a network of order 1 learns what one of order 0 cannot."""
    train, held_out, fresh = (
        firmbound.datasets.autoregressive((-0.6, 0.6), n, 8, s) for n, s in ((4_000, 1), (500, 2), (1_000, 3))
    )
    found = []
    for order in (0, 1):
        options = NetworkOptions(integrator=integrator, order=order, projection=16, hidden=16, heads=2, units=16)
        model = fit_tandem(
            train.features,
            train.labels,
            validation=(held_out.features, held_out.labels),
            network=options,
            training=TrainingOptions(epochs=8, batch=100, learning_rate=5e-3),
        )
        learned, exact = (e[:, -1, 0] - e[:, -1, 1] for e in (model.evidence(fresh.features), fresh.evidence))
        found.append((np.corrcoef(learned, exact)[0, 1], np.mean((learned > 0) == (fresh.labels == 0))))
    assert found[0][1] < 0.6  # both classes have the same spread: single observations say nothing
    assert found[1][0] > 0.9
    assert found[1][1] > 0.9
