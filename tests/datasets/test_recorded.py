"""Recorded data: who is on which side, what a split holds, and one clear error for each kind of bad input."""

import warnings
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import firmbound
from firmbound.datasets.digits import digits
from firmbound.datasets.recorded import SequenceOptions, recorded_splits
from firmbound.datasets.recordings import ArrayRecordings, SourceError
from firmbound.datasets.splits import GroupsDifferWarning, SplitOptions, select
from firmbound.datasets.windows import WindowOptions
from firmbound.errors import InvalidInput


def recordings(count=60, classes=3, *, horizon=8, dimension=2, lengths=None, groups=None, origin="made", seed=0):
    random = np.random.default_rng(seed)
    labels = np.array([f"class {k}" for k in np.arange(count) % classes])
    ends = np.full(count, horizon) if lengths is None else np.asarray(lengths)
    values = random.standard_normal((count, horizon, dimension)).astype(np.float32)
    return ArrayRecordings(origin, labels, ends, values, groups)


def whole(split):
    return split.rows(slice(0, split.sequences))


@given(st.integers(0, 50), st.sampled_from([0.1, 0.25, 7]), st.sampled_from([0.2, 12]))
def test_drawn_by_class_every_series_is_on_one_side_and_classes_keep_their_shares(seed, validation, test):
    part = recordings(120)
    chosen = select({"all": part}, SplitOptions(validation=validation, test=test, seed=seed))
    rows = np.concatenate([found.rows for found in chosen.values()])
    assert sorted(rows.tolist()) == list(range(120))
    for found in chosen.values():
        counts = np.unique(part.labels[found.rows], return_counts=True)[1]
        assert len(counts) == 3
        assert counts.max() - counts.min() <= 2
    again = select({"all": part}, SplitOptions(validation=validation, test=test, seed=seed))
    assert all(np.array_equal(chosen[name].rows, again[name].rows) for name in chosen)


@given(st.integers(0, 50))
def test_drawn_by_group_no_speaker_is_on_two_sides(seed):
    speakers = np.repeat(np.arange(20), 6)
    part = recordings(120, groups=speakers)
    chosen = select({"all": part}, SplitOptions(validation=0.2, test=0.25, by="group", seed=seed))
    sides = [set(speakers[found.rows]) for found in chosen.values()]
    assert sum(len(side) for side in sides) == len(set.union(*sides)) == 20
    assert all(len(set(part.labels[found.rows])) == 3 for found in chosen.values())


def test_swapped_as_the_paper_does_with_forda():
    """6,600 training, 6,005 validation and 12,000 test segments of the archive's 3,601 and 1,320 series."""
    labels = {"train": np.arange(3601) % 2, "test": np.arange(1320) % 2}
    parts = {
        name: ArrayRecordings(name, y, np.full(len(y), 500), np.broadcast_to(np.float32(0), (len(y), 500, 1)))
        for name, y in labels.items()
    }
    options = SequenceOptions(
        WindowOptions(100, 24, 4), split=SplitOptions(validation=1201, taken_from="test", swap=True)
    )
    splits = recorded_splits(parts, options)
    assert {name: found.sequences for name, found in splits.items()} == {
        "train": 6600,
        "validation": 6005,
        "test": 12000,
    }
    assert (splits["train"].horizon, splits["train"].dimension) == (20, 24)
    assert not set(splits["validation"].series) & set(splits["test"].series)
    assert splits["train"].recordings.origin == "test"


def test_rows_are_the_chosen_series_and_their_labels():
    part = recordings(90)
    splits = recorded_splits({"all": part}, SequenceOptions(split=SplitOptions(test=0.3, validation=0.2)))
    for found in splits.values():
        batch = whole(found)
        np.testing.assert_array_equal(batch.features, part.values[found.series])
        assert [found.names[k] for k in batch.labels] == part.labels[found.series].tolist()
        some = found.rows(slice(3, 9))
        np.testing.assert_array_equal(some.features, batch.features[3:9])


def test_groups_that_cannot_make_the_share_are_told_of():
    groups = np.repeat([0, 1, 2], [100, 10, 10])
    part = recordings(120, groups=groups)
    with pytest.warns(GroupsDifferWarning, match="asked for; whole groups make"):
        select({"train": part, "test": part}, SplitOptions(validation=0.4, by="group"))
    even = recordings(120, groups=np.arange(120) % 12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        select({"all": even}, SplitOptions(test=0.25, validation=0.33, by="group"))


def test_training_sequences_of_sorted_classes_are_mixed_and_mixed_ones_stay():
    part = recordings(300)
    order = np.argsort(part.labels, kind="stable")
    sorted_part = ArrayRecordings("sorted", part.labels[order], part.lengths, part.values[order])
    options = SequenceOptions(split=SplitOptions(test=0.2, validation=0.2))
    mixed, kept = (recorded_splits({"all": given}, options)["train"] for given in (sorted_part, part))
    assert (np.diff(kept.series) > 0).all()
    assert np.count_nonzero(np.diff(mixed.labels)) > 100
    assert sorted(mixed.series.tolist()) == sorted(set(mixed.series.tolist()))


def test_unequal_ends_and_what_stands_after_them():
    lengths = np.tile([8, 5, 6], 40)
    part = recordings(120, lengths=lengths)
    part.values[np.arange(8) >= lengths[:, None]] = np.nan
    splits = recorded_splits({"all": part}, SequenceOptions(split=SplitOptions(test=0.2, validation=0.2)))
    for found in splits.values():
        batch = whole(found)
        np.testing.assert_array_equal(batch.lengths, lengths[found.series])
        assert (batch.features[np.arange(8) >= batch.lengths[:, None]] == 0).all()


def test_the_horizon_ends_where_few_training_sequences_go_on():
    lengths = np.full(120, 5)
    lengths[0] = 8
    splits = recorded_splits(
        {"all": recordings(120, lengths=lengths)}, SequenceOptions(split=SplitOptions(test=0.2, validation=0.2))
    )
    assert splits["test"].horizon == 5
    assert whole(splits["test"]).features.shape[1] == 5


def test_posteriors_become_evidence_beyond_the_prior():
    random = np.random.default_rng(1)
    posteriors = random.dirichlet(np.ones(3), size=(90, 4))
    labels = np.repeat([0, 1, 2], [45, 30, 15])
    part = ArrayRecordings("beliefs", labels, np.full(90, 4), posteriors)
    split = SplitOptions(test=0.2, validation=0.2)
    options = SequenceOptions(split=split, content="posteriors", prior=(0.2, 0.3, 0.5))  # another than was learned
    train = recorded_splits({"all": part}, options)["train"]
    evidence = whole(train).evidence
    believed = np.exp(evidence) * np.array(train.shares)
    np.testing.assert_allclose(
        believed / believed.sum(axis=-1, keepdims=True), posteriors[train.series], rtol=1e-5, atol=1e-7
    )
    assert train.dimension == 0


def test_digits_are_real_and_here():
    part = digits()["all"]
    assert part.values.shape == (1797, 8, 8)
    splits = recorded_splits({"all": part}, SequenceOptions(split=SplitOptions(test=0.3)))
    assert sum(found.sequences for found in splits.values()) == 1797
    assert splits["train"].names == tuple(range(10))


def test_missing_numbers_are_refused_by_place_or_held():
    part = recordings(60)
    part.values[7, 3, 1] = np.nan
    options = SplitOptions(test=0.2, validation=0.2)
    splits = recorded_splits({"all": part}, SequenceOptions(split=options))
    (holder,) = [found for found in splits.values() if 7 in found.series]
    with pytest.raises(SourceError, match=r"made: samples must be finite; series 7 .* sample 4 .*hold"):
        whole(holder)
    splits = recorded_splits({"all": part}, SequenceOptions(split=options, missing="hold"))
    (holder,) = [found for found in splits.values() if 7 in found.series]
    row = int(np.flatnonzero(holder.series == 7)[0])
    assert whole(holder).features[row, 3, 1] == part.values[7, 2, 1]


PART = recordings(30, origin="a.ts")
OTHER = recordings(30, classes=4, origin="b.ts")
WIDE = recordings(30, dimension=3, origin="c.ts")
SPOKEN = recordings(60, groups=np.repeat(np.arange(12), 5))
ALONE = recordings(60, origin="d.ts", groups=np.arange(60) % 3)  # whoever speaks says one word


def numbers():
    return ArrayRecordings("e.ts", np.arange(30) % 3, np.full(30, 8), np.zeros((30, 8, 2)))


def test_labels_of_another_kind_of_number_are_the_same_labels():
    one = numbers()
    other = ArrayRecordings("f.ts", one.labels.astype(float), one.lengths, one.values)
    splits = recorded_splits({"train": one, "test": other}, SequenceOptions())
    assert splits["test"].names == (0, 1, 2)
    np.testing.assert_array_equal(whole(splits["test"]).labels[:3], [0, 1, 2])


def test_a_short_series_is_named_by_its_own_number():
    lengths = np.full(60, 8)
    lengths[33] = 2
    with pytest.raises(SourceError, match=r"made: series must hold 3 samples.* series 33 has 2"):
        recorded_splits(
            {"all": recordings(60, lengths=lengths)},
            SequenceOptions(WindowOptions(window=3), split=SplitOptions(test=0.3)),
        )


def test_what_comes_after_the_horizon_is_not_looked_at():
    part = recordings(60)
    part.values[:, 6:] = np.nan
    splits = recorded_splits({"all": part}, SequenceOptions(horizon=6, split=SplitOptions(test=0.3)))
    assert whole(splits["test"]).features.shape[1:] == (6, 2)


def test_held_numbers_never_lengthen_a_series():
    part = recordings(60)
    part.values[:, 5:] = np.nan
    short = recorded_splits({"all": part}, SequenceOptions(horizon=6, missing="hold", split=SplitOptions(test=0.3)))
    held = whole(short["test"]).features
    np.testing.assert_array_equal(held[:, 5], held[:, 4])  # a gap at the horizon is no end
    splits = recorded_splits({"all": part}, SequenceOptions(missing="hold", split=SplitOptions(test=0.3)))
    with pytest.raises(SourceError, match="made: where series end must be told by lengths"):
        whole(splits["test"])


@pytest.mark.filterwarnings("ignore::firmbound.datasets.splits.GroupsDifferWarning")
def test_the_horizon_is_one_that_validation_sequences_reach_too():
    groups = np.arange(120) % 8
    lengths = np.where(groups == 3, 5, 8)
    part = recordings(120, lengths=lengths, groups=groups)
    for seed in range(20):
        options = SplitOptions(test=0.15, validation=0.15, by="group", seed=seed)
        splits = recorded_splits({"all": part}, SequenceOptions(split=options))
        reached = splits["validation"].steps.max()
        assert splits["train"].horizon <= reached


def test_many_segments_of_a_long_series_are_cut_from_one_copy():
    import tracemalloc

    values = np.zeros((4, 200_000, 1), dtype=np.float32)
    part = ArrayRecordings("long", np.arange(4) % 2, np.full(4, 200_000), values)
    options = SequenceOptions(WindowOptions(100, 10, 10), split=SplitOptions(test=2, validation=None))
    with pytest.raises(SourceError, match="long: `validation`"):
        recorded_splits({"all": part}, options)
    parts = {"train": part, "test": part, "validation": part}
    train = recorded_splits(parts, SequenceOptions(WindowOptions(100, 10, 10), split=SplitOptions(validation=None)))
    tracemalloc.start()
    train["train"].rows(slice(0, 4_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40e6  # 4,000 copies of a series would be 3.2 GB


@pytest.mark.parametrize(
    ("parts", "split", "words"),
    [
        ({"all": recordings(30, classes=1, origin="one.ts")}, {"test": 0.2}, "one.ts must hold two classes"),
        ({"train": PART, "test": OTHER}, {}, r"a.ts and b.ts must be of the same classes.*'class 3'"),
        ({"train": PART, "test": WIDE}, {}, r"`channels`.* 2 in a.ts and 3 in c.ts"),
        ({"all": PART}, {}, "a.ts: `test` must be a share or a number"),
        ({"train": PART, "test": PART}, {"test": 0.2}, "`test` must be null"),
        ({"train": PART, "test": PART}, {"validation": None}, "`validation` must be a share"),
        ({"train": PART, "test": PART, "validation": PART}, {}, "`validation` must be null"),
        ({"train": PART, "test": PART}, {"by": "group"}, "`by` must be 'class'"),
        ({"train": PART, "test": PART}, {"validation": 30}, "leave some of the 30 series"),
        ({"train": PART, "test": PART}, {"validation": 2}, "every one of 3 classes on both sides"),
        (
            {"train": PART, "test": numbers()},
            {},
            "numbers in every part, or text in every part; got .* in a.ts and int",
        ),
        ({"all": SPOKEN}, {"test": 0.7, "by": "group"}, "`test` must be half of the series at most"),
        ({"all": SPOKEN}, {"test": 0.05, "by": "group"}, r"`test` must ask for as few folds \(20\)"),
        ({"all": ALONE}, {"test": 0.3, "validation": 0.4, "by": "group"}, "d.ts: no .* sequence of .*'class"),
    ],
)
def test_bad_input_gets_one_clear_error(parts, split, words):
    with pytest.raises((SourceError, InvalidInput), match=words):
        recorded_splits(parts, SequenceOptions(split=SplitOptions(**split)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"labels": np.zeros(3, int)}, "labels must be 4"),
        ({"lengths": np.array([1, 2, 3, 9])}, "lengths must lie in 1..5; got values from 1 to 9"),
        ({"values": np.zeros((4, 5, 1), complex)}, "must be numbers"),
        ({"values": np.zeros(4)}, r"shape \(n, T, d\)"),
        ({"labels": np.array([0, 1, np.nan, 1])}, "known for every series"),
        ({"labels": np.array([None, 1, 2, 1])}, "numbers or text"),
    ],
)
def test_recordings_check_themselves(change, words):
    known = {"labels": np.arange(4), "lengths": np.full(4, 5), "values": np.zeros((4, 5, 1))}
    with pytest.raises(SourceError, match=f"here: .*{words}|here: {words}"):
        ArrayRecordings(origin="here", **(known | change))


class TestPadding:
    """Series of unequal length, from files to decisions: what stands after an end is never looked at."""

    LENGTHS = np.random.default_rng(4).integers(3, 9, size=240)

    @classmethod
    def decided(cls, after):
        """Train, fit and decide with these numbers (240, 8, 2) after the ends."""
        part = recordings(240, 2, lengths=cls.LENGTHS, seed=9)
        signal = np.unique(part.labels, return_inverse=True)[1][:, None, None] - 0.5
        values = np.where((np.arange(8) < cls.LENGTHS[:, None])[:, :, None], part.values + signal, after)
        part = ArrayRecordings("padded", part.labels, cls.LENGTHS, values.astype(np.float32))
        splits = recorded_splits({"all": part}, SequenceOptions(split=SplitOptions(test=0.3, validation=0.2)))
        train, valid, test = (whole(found) for found in splits.values())
        model = firmbound.fit_tandem(
            train.features,
            train.labels,
            lengths=train.lengths,
            validation=(valid.features, valid.labels, valid.lengths),
            network=firmbound.NetworkOptions(order=2, projection=4, hidden=4, dropout=0.2),
            training=firmbound.TrainingOptions(epochs=1, batch=40, shift=1, noise=0.1, mask=1),
        )
        rule = firmbound.fit_stopping_rule(
            model.evidence(train.features), lengths=train.lengths, costs=[0.3], prior=model.prior
        )
        chosen = rule.decide(model.evidence(test.features), lengths=test.lengths)
        assert (chosen.time <= test.lengths).all()
        return np.stack([chosen.time, chosen.label])

    @settings(max_examples=10)
    @given(st.one_of(st.just(np.nan), st.floats(-1e30, 1e30), st.integers(0, 1000)))
    def test_no_padded_number_influences_a_decision(self, padding):
        after = padding
        if isinstance(padding, int):
            after = 1e3 * np.random.default_rng(padding).standard_normal((240, 8, 2))
        np.testing.assert_array_equal(self.decided(after), self.undisturbed())

    @classmethod
    @cache
    def undisturbed(cls):
        return cls.decided(0.0)
