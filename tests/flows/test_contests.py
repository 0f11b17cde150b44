"""Sequences that take part in a repeat of the study: by lot, with all classes and the horizon kept."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from firmbound.tandem.options import TrainingOptions
from firmbound.trajectories import Batch
from flows.contests import drawn_rows, field_options, long_enough, some_of
from flows.params import read_params


@given(st.lists(st.integers(1, 60), min_size=2, max_size=6), st.integers(0, 5), st.data())
def test_classes_keep_their_shares(counts, seed, data):
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    most = data.draw(st.integers(len(counts), len(labels)))
    rows = drawn_rows(labels, None, most, seed)
    assert len(rows) == len(set(rows.tolist())) == most
    assert np.all(np.diff(rows) > 0)
    drawn = np.bincount(labels[rows], minlength=len(counts))
    assert drawn.min() >= 1
    assert np.all(np.abs(drawn - most * np.array(counts) / len(labels)) <= len(counts))


def test_another_seed_draws_others():
    labels = np.arange(1_000) % 2
    assert not np.array_equal(drawn_rows(labels, None, 100, 0), drawn_rows(labels, None, 100, 1))
    assert np.array_equal(drawn_rows(labels, None, 100, 1), drawn_rows(labels, None, 100, 1))


@given(st.integers(0, 20))
def test_one_of_the_longest_takes_part(seed):
    """Else the horizon of a repeat would be another than that of the data set."""
    random = np.random.default_rng(seed)
    lengths = random.integers(2, 8, size=200)
    lengths[random.integers(200)] = 9
    whole = Batch(np.arange(200) % 4, 4, random.normal(size=(200, 9, 1)), None, lengths)
    some = some_of(whole, 12, seed)
    assert some.lengths.max() == 9
    rows = drawn_rows(whole.labels, lengths, 12, seed)
    assert np.array_equal(some.features, whole.features[rows])
    assert np.bincount(some.labels).tolist() == [3, 3, 3, 3]


@given(st.integers(1, 20_000), st.integers(1, 500), st.integers(1, 60), st.integers(1, 3_000))
def test_the_network_of_a_study_makes_as_many_updates_as_rivals(sequences, batch, epochs, updates):
    training = long_enough(TrainingOptions(batch=batch, epochs=epochs), sequences, updates)
    an_epoch = -(-sequences // batch)
    assert training.epochs >= epochs
    assert training.epochs * an_epoch >= updates
    assert training.epochs == epochs or (training.epochs - 1) * an_epoch < updates


@given(st.integers(100, 60_000))
def test_rivals_make_no_fewer_updates_and_see_no_fewer_sequences(sequences):
    params = read_params("params/real.yaml")
    for dataset in ("forda", "mnist_rows", "asc40"):
        least = params.study.networks.updates
        own = long_enough(params.tandem[dataset].options()[1], sequences, least)
        theirs = field_options(dataset, params, sequences, {}).training
        assert theirs.epochs * sequences >= own.epochs * sequences
        assert theirs.epochs * -(-sequences // theirs.batch) >= own.epochs * -(-sequences // own.batch)
        assert theirs.epochs * -(-sequences // theirs.batch) >= least
