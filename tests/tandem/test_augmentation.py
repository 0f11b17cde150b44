"""Augmentation: what it may change, what it must not, and that it repeats itself."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import firmbound
from firmbound.tandem.augmentation import augmented
from firmbound.tandem.options import NetworkOptions, TrainingOptions


def drawn(features, ends=None, seed=0, **options):
    torch.manual_seed(seed)
    return augmented(torch.as_tensor(features), ends, TrainingOptions(**options))


def counted(n=50, horizon=12):
    """Every number says which step it is of."""
    return torch.arange(1.0, horizon + 1)[None, :, None].repeat(n, 1, 2)


def test_nothing_chosen_changes_nothing_and_draws_nothing():
    features = counted()
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    assert augmented(features, None, TrainingOptions()) is features
    assert torch.equal(torch.random.get_rng_state(), before)


@given(st.integers(0, 10**6), st.integers(1, 11))
def test_shifted_sequences_are_the_same_steps_earlier_or_later(seed, most):
    found = drawn(counted(), seed=seed, shift=most).numpy()[:, :, 0]
    steps = np.diff(found, axis=1)
    assert set(np.unique(steps)) <= {0.0, 1.0}
    moved = found - np.arange(1, 13)
    by = np.array([row[np.abs(row).argmax()] for row in moved])
    assert np.abs(by).max() <= most
    for row, offset in zip(found, by, strict=True):
        np.testing.assert_array_equal(row, np.clip(np.arange(1, 13) + offset, 1, 12))


def test_what_stands_after_an_end_never_comes_in():
    features = counted()
    ends = torch.arange(50) % 10 + 3
    features[torch.arange(12)[None] >= ends[:, None]] = torch.nan
    found = drawn(features, ends, shift=5)
    assert torch.isfinite(found).all()
    assert (found[:, :, 0] <= ends[:, None]).all()


def test_noise_is_of_every_number_and_offsets_are_of_a_sequence():
    zeros = torch.zeros(4000, 5, 2)
    noise, offset = (drawn(zeros, **{name: 0.3})[..., 0].numpy() for name in ("noise", "offset"))
    assert noise.std() == pytest.approx(0.3, abs=0.01)
    assert np.corrcoef(noise[:, 0], noise[:, 1])[0, 1] == pytest.approx(0, abs=0.06)
    assert offset.std() == pytest.approx(0.3, abs=0.02)
    assert (offset == offset[:, :1]).all()


def test_masks_are_neighbouring_steps_and_reach_both_ends():
    found = drawn(torch.ones(3000, 8, 2), mask=3)[:, :, 0].numpy() == 0
    assert found.sum(axis=1).max() == 3
    assert found[:, 0].any()
    assert found[:, -1].any()
    edges = np.abs(np.diff(found.astype(int), axis=1)).sum(axis=1) + found[:, 0] + found[:, -1]
    assert edges.max() <= 2


def test_training_with_all_of_it_repeats_itself_and_resumes(tmp_path):
    train, valid = (firmbound.datasets.gaussian(2, 300, 6, seed, dimension=3) for seed in (1, 2))
    options = TrainingOptions(epochs=4, batch=50, shift=2, noise=0.1, offset=0.1, mask=2, patience=None)
    network = NetworkOptions(order=5, projection=8, hidden=8, dropout=0.3)

    def fit(training, checkpoint=None):
        return firmbound.fit_tandem(
            train.features,
            train.labels,
            validation=(valid.features, valid.labels),
            network=network,
            training=training,
            checkpoint=checkpoint,
        )

    undisturbed, again = fit(options), fit(options)

    class Stop(Exception):
        pass

    def stop(epoch, *_):
        if epoch == 2:
            raise Stop

    with pytest.raises(Stop):
        firmbound.fit_tandem(
            train.features,
            train.labels,
            validation=(valid.features, valid.labels),
            network=network,
            training=options,
            checkpoint=tmp_path / "training",
            progress=stop,
        )
    resumed = fit(options, tmp_path / "training")
    for name, value in undisturbed.network.state_dict().items():
        assert torch.equal(value, again.network.state_dict()[name])
        assert torch.equal(value, resumed.network.state_dict()[name])


def test_dropout_is_for_training_alone():
    train, valid = (firmbound.datasets.gaussian(2, 200, 6, seed, dimension=3) for seed in (1, 2))
    model = firmbound.fit_tandem(
        train.features,
        train.labels,
        validation=(valid.features, valid.labels),
        network=NetworkOptions(order=2, projection=8, hidden=8, dropout=0.5),
        training=TrainingOptions(epochs=1, batch=50),
    )
    once, twice = (model.evidence(valid.features) for _ in range(2))
    np.testing.assert_array_equal(once, twice)
    stream = model.stream()
    for t in range(6):
        np.testing.assert_allclose(stream.push(valid.features[0, t]), once[0, t], atol=1e-5)
