import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import zarr

from firmbound.datasets import gaussian
from firmbound.errors import InvalidInput, StoreError
from firmbound.store import SHARD_ROWS, StoreDescription, TrajectoryStore, create_store
from firmbound.trajectories import Batch

PROBLEM = gaussian(classes=3, sequences=SHARD_ROWS + 500, horizon=4, dimension=5, seed=1)
ABOUT = StoreDescription("toy", "train", (1,), PROBLEM.sequences, 4, 3, 5, PROBLEM.prior, evidence=True)


def write(path, about=ABOUT, problem=PROBLEM, shards=None):
    with create_store(path, about) as writer:
        for shard in range(about.shards) if shards is None else shards:
            writer.write(shard, problem.rows(about.rows(shard)))


@pytest.fixture
def store(tmp_path):
    write(tmp_path / "toy.zarr")
    return tmp_path / "toy.zarr"


def test_what_goes_in_comes_out(store):
    opened = TrajectoryStore(store)
    assert opened.description == ABOUT
    assert np.array_equal(opened.labels, PROBLEM.labels)
    assert np.array_equal(opened.evidence(), PROBLEM.evidence)
    for t in (1, 4):
        assert np.array_equal(opened.evidence_at(t), PROBLEM.evidence[:, t - 1])
    features = np.concatenate([batch.features for batch in opened.batches()])
    assert np.array_equal(features, PROBLEM.features)
    assert [batch.features for batch in opened.batches(features=False)] == [None, None]


def test_reading_is_in_shards(store):
    assert [len(batch.labels) for batch in TrajectoryStore(store).batches()] == [SHARD_ROWS, 500]


def test_few_files_and_what_the_format_promises(store):
    group = zarr.open_group(store, mode="r")
    assert group.metadata.zarr_format == 3
    for name in ("labels", "features", "evidence"):
        array = group[name]
        assert array.shards is not None
        assert "zstd" in str(array.compressors).lower()
        assert len([f for f in (store / name / "c").rglob("*") if f.is_file()]) == 2
    assert group["evidence"].chunks[1] == 1  # one time step can be read alone
    described = dict(group.attrs)["firmbound"]
    for key in ("schema_version", "dataset", "split", "seed", "sequences", "horizon", "classes", "dimension", "prior"):
        assert key in described


def test_shards_may_be_written_in_any_order(tmp_path, store):
    write(tmp_path / "other.zarr", shards=[1, 0])
    assert np.array_equal(TrajectoryStore(tmp_path / "other.zarr").evidence(), TrajectoryStore(store).evidence())


def test_an_unfinished_store_is_never_seen(tmp_path):
    with pytest.raises(StoreError, match="1 of 2 shards"):
        write(tmp_path / "half.zarr", shards=[0])
    assert list(tmp_path.iterdir()) == []


def test_a_failed_rewrite_keeps_the_old_store(store):
    with pytest.raises(StoreError):
        write(store, shards=[1])
    assert np.array_equal(TrajectoryStore(store).labels, PROBLEM.labels)


def test_data_that_are_all_zeros_are_written_too(tmp_path):
    about = replace(ABOUT, sequences=10, dimension=0)
    with create_store(tmp_path / "zeros.zarr", about) as writer:
        writer.write(0, Batch(np.zeros(10, int), 3, evidence=np.zeros((10, 4, 3))))
    assert not TrajectoryStore(tmp_path / "zeros.zarr").evidence().any()


@pytest.mark.parametrize(
    "damage", ["missing shard", "truncated shard", "flipped byte", "no description", "version", "gone"]
)
def test_damaged_stores_are_refused(store, damage):
    shard = store / "evidence" / "c" / "1" / "0" / "0"
    header = store / "zarr.json"
    if damage == "missing shard":
        shard.unlink()
    elif damage == "truncated shard":
        shard.write_bytes(shard.read_bytes()[:-10])
    elif damage == "flipped byte":
        content = bytearray(shard.read_bytes())
        content[30] ^= 255
        shard.write_bytes(bytes(content))
    elif damage == "gone":
        shutil.rmtree(store)
    else:
        described = json.loads(header.read_text())
        if damage == "version":
            described["attributes"]["firmbound"]["schema_version"] = 0
        else:
            described["attributes"] = {}
        header.write_text(json.dumps(described))
    messages = {
        "missing shard": "is missing",
        "truncated shard": "damaged",
        "flipped byte": "cannot be read",
        "no description": "no finished",
        "version": "schema version 0",
        "gone": "no store at",
    }
    with pytest.raises(StoreError, match=messages[damage]):
        TrajectoryStore(store).evidence()


@pytest.mark.parametrize(
    ("key", "value"), [("horizon", 9), ("classes", 2), ("sequences", 2), ("files", {}), ("files", [1]), ("prior", 3)]
)
def test_edited_descriptions_are_refused(store, key, value):
    header = store / "zarr.json"
    described = json.loads(header.read_text())
    described["attributes"]["firmbound"][key] = value
    header.write_text(json.dumps(described))
    with pytest.raises(StoreError, match="described wrongly"):
        TrajectoryStore(store)


def test_numbers_too_large_for_the_store_are_refused(tmp_path):
    about = replace(ABOUT, sequences=1, dimension=0)
    with pytest.raises(InvalidInput, match="finite"), create_store(tmp_path / "x", about) as writer:
        writer.write(0, Batch(np.zeros(1, int), 3, evidence=np.full((1, 4, 3), 1e39)))
    assert list(tmp_path.iterdir()) == []


def test_bad_questions_and_batches_are_refused(tmp_path, store):
    with pytest.raises(InvalidInput, match=r"1\.\.4"):
        TrajectoryStore(store).evidence_at(5)
    with pytest.raises(InvalidInput, match=r"0\.\.1"):
        ABOUT.rows(2)
    with pytest.raises(InvalidInput, match="500 sequences of shard 1"), create_store(tmp_path / "x", ABOUT) as writer:
        writer.write(1, PROBLEM.rows(ABOUT.rows(0)))
    with pytest.raises(InvalidInput, match="classes"):
        replace(ABOUT, classes=1)
    small = gaussian(classes=3, sequences=10, horizon=4, dimension=5, seed=1)
    with create_store(tmp_path / "y", replace(ABOUT, sequences=10, dimension=0)) as writer:
        writer.write(0, small.batch(0, with_features=False))
    with pytest.raises(StoreError, match="holds no features"):
        TrajectoryStore(tmp_path / "y").read("features")


def test_lengths_are_kept_where_sequences_end_early(tmp_path):
    problem = gaussian(2, 30, 5, 1, dimension=2)
    lengths = np.random.default_rng(0).integers(1, 6, 30)
    about = StoreDescription("d", "train", (1,), 30, 5, 2, 2, (0.5, 0.5), evidence=True, unequal=True)
    batch = Batch(problem.labels, 2, problem.features, problem.evidence, lengths)
    with create_store(tmp_path / "s.zarr", about) as writer:
        writer.write(0, batch)
    opened = TrajectoryStore(tmp_path / "s.zarr")
    assert np.array_equal(opened.lengths, lengths)
    assert np.array_equal(next(opened.batches()).lengths, lengths)
    with pytest.raises(InvalidInput, match="lengths"), create_store(tmp_path / "t.zarr", about) as writer:
        writer.write(0, Batch(problem.labels, 2, problem.features, problem.evidence))
    with pytest.raises(InvalidInput, match="lie in"):
        Batch(problem.labels, 2, problem.features, problem.evidence, lengths + 5)
