"""Evidence of sequences by networks that have not seen them: nothing leaks, all is read, and it is honest."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import firmbound
from firmbound.errors import InvalidInput
from firmbound.posterior import posterior
from firmbound.tandem.cross_fitting import Chosen, Fold, evidence_of_fold, fit_in_folds, in_one_piece
from firmbound.tandem.data import ArraySource
from firmbound.tandem.model import fit_tandem_from
from firmbound.tandem.options import NetworkOptions, TrainingOptions
from firmbound.temperature import at_times, helpful_temperatures

SMALL = NetworkOptions(order=1, projection=8, hidden=8)
QUICK = TrainingOptions(epochs=2, batch=50, learning_rate=3e-3)
EVEN = np.full(2, 0.5)


def source(sequences, seed, horizon=5):
    problem = firmbound.datasets.gaussian(2, sequences, horizon, seed, dimension=3, separation=0.7)
    return ArraySource.of(problem.features, problem.labels, 2)


@given(st.lists(st.integers(0, 29), unique=True, max_size=30), st.integers(0, 30), st.integers(0, 30))
def test_chosen_sequences_are_read_as_if_they_lay_side_by_side(rows, start, stop):
    whole = source(30, 0, horizon=2)
    rows = np.array(sorted(rows), dtype=np.int64)
    chosen, part = Chosen(whole, rows), slice(start, stop)
    assert np.array_equal(chosen.read(part), whole.features[rows][part])
    assert np.array_equal(chosen.labels, whole.labels[rows])


def test_every_sequence_is_in_one_fold_and_seen_by_all_others():
    whole = source(31, 0)
    held = [Fold(number, 3).held(whole).rows for number in range(3)]
    assert np.array_equal(np.sort(np.concatenate(held)), np.arange(31))
    for number, own in enumerate(held):
        assert np.array_equal(np.sort(np.concatenate([own, Fold(number, 3).seen(whole).rows])), np.arange(31))


def test_what_is_said_of_a_fold_owes_nothing_to_its_sequences():
    """Numbers of all but one sequence of the fold are changed past recognition: what is said of that one stays."""
    whole, held_out, fold = source(200, 1), source(100, 2), Fold(1, 4)
    told = evidence_of_fold(fold, whole, held_out, EVEN, SMALL, QUICK)
    own, features = fold.held(whole).rows, whole.features.copy()
    features[own[1:]] = 50 - features[own[1:]]
    again = evidence_of_fold(fold, replace(whole, features=features), held_out, EVEN, SMALL, QUICK)
    assert np.array_equal(told[0], again[0])
    assert not np.allclose(told[1], again[1])
    features[fold.seen(whole).rows[0]] += 1
    other = evidence_of_fold(fold, replace(whole, features=features), held_out, EVEN, SMALL, QUICK)
    assert not np.array_equal(told[0], other[0])  # it does learn from the others


def test_temperatures_are_those_of_unseen_evidence_and_the_network_is_the_plain_one():
    whole, held_out = source(200, 1), source(100, 2)
    model, unseen = fit_in_folds(whole, held_out, EVEN, SMALL, QUICK, folds=2)
    raw = in_one_piece(whole, [evidence_of_fold(Fold(n, 2), whole, held_out, EVEN, SMALL, QUICK) for n in range(2)])
    shares = np.bincount(whole.labels) / 200
    expected = helpful_temperatures(raw, whole.labels, shares, whole.lengths)
    assert np.array_equal(model.temperatures, expected)
    assert np.allclose(unseen, raw / at_times(expected, np.arange(1, 6))[:, None], rtol=1e-6)
    plain = fit_tandem_from(whole, held_out, EVEN, SMALL, QUICK, calibrate=False)
    features = held_out.features
    assert np.allclose(model.cooled(plain.evidence(features)), model.evidence(features), rtol=1e-5, atol=1e-6)


def test_a_network_is_too_sure_of_what_it_knows_and_not_of_what_it_does_not():
    """Few sequences, learned by heart: errors and beliefs in them differ on known sequences as on no others."""
    whole, held_out, fresh = source(150, 1), source(150, 2), source(4_000, 3)
    by_heart = TrainingOptions(epochs=60, batch=25, learning_rate=1e-2)
    network = NetworkOptions(order=4, projection=32, hidden=32)
    model, unseen = fit_in_folds(whole, held_out, EVEN, network, by_heart, folds=5)
    known = model.evidence(whole.features)

    def loss(evidence, labels):
        believed = posterior(evidence[:, -1].astype(float), EVEN)
        return -np.log(believed[np.arange(len(labels)), labels]).mean()

    true = loss(model.evidence(fresh.features), fresh.labels)
    assert loss(known, whole.labels) < 0.8 * true
    assert 0.9 * true < loss(unseen, whole.labels) < 1.2 * true


def test_a_class_of_one_sequence_cannot_be_left_out():
    whole = source(20, 0)
    labels = np.zeros(20, dtype=np.int64)
    labels[3] = 1
    with pytest.raises(InvalidInput, match=r"`folds` must leave a sequence of every class .*got a class of 1"):
        fit_in_folds(replace(whole, labels=labels), source(20, 1), EVEN, SMALL, replace(QUICK, batch=10), folds=2)
