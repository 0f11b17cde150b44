"""Archives and arrays as they lie on disk: what is read equals what was written; damage is named with its path."""

import re
import zipfile

import numpy as np
import pytest
import zarr

from firmbound.datasets.archive import archive_recordings
from firmbound.datasets.array_files import ArrayNames, array_recordings
from firmbound.datasets.recorded import SequenceOptions, recorded_splits
from firmbound.datasets.recordings import SourceError

TS = """#made for a test
@problemName {name}
@timeStamps false
@missing {missing}
@univariate {univariate}
@equalLength {equal}
{sizes}@classLabel true a b
@data
"""


def ts_text(series, labels, *, missing=False):
    """series: list of (channels, T_i)."""
    equal = len({one.shape[1] for one in series}) == 1
    channels = series[0].shape[0]
    sizes = "" if channels == 1 else f"@dimensions {channels}\n"
    sizes += f"@seriesLength {series[0].shape[1]}\n" if equal else ""
    head = TS.format(
        name="Made",
        missing=str(missing).lower(),
        univariate=str(channels == 1).lower(),
        equal=str(equal).lower(),
        sizes=sizes,
    )
    rows = (
        ":".join(",".join("?" if np.isnan(x) else repr(float(x)) for x in channel) for channel in one) + f":{label}"
        for one, label in zip(series, labels, strict=True)
    )
    return head + "\n".join(rows) + "\n"


def write_both(folder, suffix, text):
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("TRAIN", "TEST"):
        (folder / f"Made_{part}{suffix}").write_text(text)


@pytest.fixture
def series(random):
    return [random.standard_normal((2, 7)).round(3) for _ in range(6)]


LABELS = ["a", "b", "a", "b", "b", "a"]


def test_multivariate_ts_of_equal_length(tmp_path, series):
    write_both(tmp_path / "Made", ".ts", ts_text(series, LABELS))
    part = archive_recordings(tmp_path, "Made")["train"]
    assert part.labels.tolist() == LABELS
    np.testing.assert_allclose(part.read(np.arange(6)), [one.T for one in series], rtol=1e-6)
    assert (part.lengths == 7).all()


def test_unequal_ts_with_missing_numbers(tmp_path, series):
    ragged = [one[:, : 4 + place % 3] for place, one in enumerate(series)]
    ragged[0][0, 1] = np.nan
    write_both(tmp_path, ".ts", ts_text(ragged, LABELS, missing=True))
    part = archive_recordings(tmp_path, "Made")["test"]
    np.testing.assert_array_equal(part.lengths, [4, 5, 6, 4, 5, 6])
    for row, one in enumerate(ragged):
        np.testing.assert_allclose(part.read(np.array([row]))[0, : one.shape[1]], one.T, rtol=1e-6)


def test_univariate_tsv_whose_padding_is_nan(tmp_path, random):
    values = random.standard_normal((4, 5)).round(3)
    lines = ["\t".join([str(k), *(repr(float(x)) for x in row)]) for k, row in zip([1, -1, 1, -1], values, strict=True)]
    lines[1] = lines[1].rsplit("\t", 2)[0] + "\tNaN\tNaN"
    write_both(tmp_path, ".tsv", "\n".join(lines) + "\n")
    part = archive_recordings(tmp_path, "Made")["train"]
    np.testing.assert_array_equal(part.lengths, [5, 3, 5, 5])
    assert part.labels.tolist() == [1, -1, 1, -1]
    np.testing.assert_allclose(part.read(np.array([0, 2, 3]))[..., 0], values[[0, 2, 3]], rtol=1e-6)


def test_arff_of_one_and_of_more_channels(tmp_path, series):
    one = "@relation Made\n@attribute att0 numeric\n@attribute target {a,b}\n@data\n1.5,2.5,a\n3.5,?,b\n"
    write_both(tmp_path / "one", ".arff", one)
    part = archive_recordings(tmp_path / "one", "Made")["train"]
    assert part.labels.tolist() == ["a", "b"]
    np.testing.assert_array_equal(part.lengths, [2, 1])
    rows = "".join(
        "'" + "\\n".join(",".join(map(str, c)) for c in s) + f"',{k}\n" for s, k in zip(series, LABELS, strict=True)
    )
    head = (
        "@relation Made\n@attribute rel relational\n@attribute att0 numeric\n@end rel\n@attribute target {a,b}\n@data\n"
    )
    write_both(tmp_path / "more", ".arff", head + rows)
    part = archive_recordings(tmp_path / "more", "Made")["train"]
    np.testing.assert_allclose(part.read(np.arange(6)), [s.T for s in series], rtol=1e-6)


def test_aeons_own_copies_of_real_sets_are_read():
    """JapaneseVowels: multivariate and of unequal length; GunPoint: univariate. Both come with aeon."""
    from pathlib import Path

    import aeon.datasets

    folder = Path(aeon.datasets.__file__).parent / "data"
    vowels = archive_recordings(folder, "JapaneseVowels")
    assert (vowels["train"].dimension, len(vowels["train"].labels), len(vowels["test"].labels)) == (12, 270, 370)
    assert (vowels["train"].lengths.min(), vowels["test"].lengths.max()) == (7, 29)
    splits = recorded_splits(vowels, SequenceOptions())
    assert splits["train"].unequal
    assert archive_recordings(folder, "GunPoint")["train"].values.shape == (50, 150, 1)


def test_without_a_network_the_message_says_so(tmp_path):
    with pytest.raises(SourceError, match=r"FordA cannot be fetched into .*sets"):
        archive_recordings(tmp_path / "sets", "FordA", download=True)


@pytest.mark.parametrize(
    ("suffix", "text", "words"),
    [
        (".ts", "@data\n1,x,3:a\n", "Made_TRAIN.ts"),
        (".ts", "", "Made_TRAIN.ts"),
        (".tsv", "", "Made_TRAIN.tsv"),
        (".tsv", "1\tx\ty\n", "Made_TRAIN.tsv"),
        (".arff", "@data\n1,b\n1,2,3,a\n", "Made_TRAIN.arff"),
        (".arff", "", "Made_TRAIN.arff must hold a series"),
    ],
)
def test_damaged_archives_are_named(tmp_path, suffix, text, words):
    write_both(tmp_path, suffix, text)
    with pytest.raises(SourceError, match=re.escape(words)):
        archive_recordings(tmp_path, "Made")


def test_unequal_channels_are_named(tmp_path, series):
    text = ts_text(series, LABELS).rstrip("\n") + "\n" + "1,2,3,4,5,6,7:a\n"
    write_both(tmp_path, ".ts", text)
    with pytest.raises(SourceError, match=r"Made_TRAIN\.ts"):
        archive_recordings(tmp_path, "Made")


def test_missing_archives_say_what_is_there(tmp_path):
    with pytest.raises(SourceError, match="an empty folder"):
        archive_recordings(tmp_path, "Made")
    with pytest.raises(SourceError, match="no such folder"):
        archive_recordings(tmp_path / "nowhere", "Made")
    (tmp_path / "Other_TRAIN.ts").write_text("")
    with pytest.raises(SourceError, match=r"Other_TRAIN\.ts"):
        archive_recordings(tmp_path, "Made")


def named_arrays(random):
    return {
        "X_train": random.standard_normal((9, 5, 2)).astype(np.float32),
        "y_train": np.array(list("abcabcabc")),
        "len_train": np.array([5, 4, 3] * 3),
        "speaker_train": np.arange(9) // 3,
        "X_test": random.standard_normal((6, 5, 2)).astype(np.float32),
        "y_test": np.array(list("abcabc")),
        "len_test": np.full(6, 5),
        "speaker_test": np.arange(6),
        "X_val": random.standard_normal((3, 5, 2)).astype(np.float32),
        "y_val": np.array(list("abc")),
        "len_val": np.full(3, 5),
        "speaker_val": np.arange(3),
    }


def save_npz(path, arrays):
    np.savez(path / "set.npz", **arrays)
    return path / "set.npz"


def save_compressed(path, arrays):
    np.savez_compressed(path / "set.npz", **arrays)
    return path / "set.npz"


def save_folder(path, arrays):
    for name, array in arrays.items():
        np.save(path / f"{name}.npy", array)
    return path


def save_zarr(path, arrays):
    group = zarr.create_group(path / "set.zarr")
    for name, array in arrays.items():
        if array.dtype.kind != "U":  # text is not in Zarr's third format
            group.create_array(name, data=array)
        else:
            group.create_array(name, data=np.array([ord(c) - ord("a") for c in array]))
    return path / "set.zarr"


@pytest.mark.parametrize("save", [save_npz, save_compressed, save_folder, save_zarr])
def test_arrays_by_path(tmp_path, random, save):
    arrays = named_arrays(random)
    parts = array_recordings(save(tmp_path, arrays), ArrayNames(groups="speaker"))
    assert set(parts) == {"train", "validation", "test"}
    train = parts["train"]
    np.testing.assert_array_equal(train.read(np.arange(9)), arrays["X_train"])
    np.testing.assert_array_equal(train.read(np.array([1, 4, 7])), arrays["X_train"][[1, 4, 7]])
    np.testing.assert_array_equal(train.lengths, arrays["len_train"])
    np.testing.assert_array_equal(train.groups, arrays["speaker_train"])
    np.testing.assert_array_equal(parts["validation"].groups, [0, 1, 2])
    assert len(np.unique(train.labels)) == 3


def test_arrays_without_parts_are_one_part(tmp_path):
    np.savez(tmp_path / "all.npz", X=np.zeros((4, 3)), y=[0, 1, 0, 1])
    parts = array_recordings(tmp_path / "all.npz")
    assert set(parts) == {"all"}
    assert parts["all"].read(np.arange(2)).shape == (2, 3, 1)


def test_large_arrays_are_mapped_not_loaded(tmp_path):
    np.save(tmp_path / "X.npy", np.zeros((50, 10, 4), dtype=np.float32))
    np.save(tmp_path / "y.npy", np.arange(50) % 2)
    assert isinstance(array_recordings(tmp_path)["all"].values, np.memmap)
    np.savez_compressed(tmp_path / "set.npz", X=np.zeros((50, 10, 4)), y=np.arange(50) % 2)
    assert isinstance(array_recordings(tmp_path / "set.npz")["all"].values, np.memmap)


def objects(path):
    np.savez(path / "set.npz", X=np.array([[1], None], dtype=object), y=np.arange(2))
    return path / "set.npz"


def cut_short(path):
    np.savez(path / "set.npz", X=np.zeros((40, 9, 9)), y=np.arange(40) % 2)
    whole = (path / "set.npz").read_bytes()
    (path / "set.npz").write_bytes(whole[: len(whole) // 2])
    return path / "set.npz"


def flipped(path):
    with zipfile.ZipFile(path / "set.npz", "w") as archive:
        archive.writestr("X.npy", b"no array at all")
        archive.writestr("y.npy", b"nor this")
    return path / "set.npz"


def without_labels(path):
    np.savez(path / "set.npz", X_train=np.zeros((4, 3)), X_test=np.zeros((4, 3)))
    return path / "set.npz"


def train_alone(path):
    np.savez(path / "set.npz", X_train=np.zeros((4, 3)), y_train=np.arange(4) % 2)
    return path / "set.npz"


def other_names(path):
    np.savez(path / "set.npz", features=np.zeros((4, 3)))
    return path / "set.npz"


def fractions(path):
    np.savez(path / "set.npz", X=np.zeros((2, 3)), y=np.arange(2), len=np.array([1.5, 2.0]))
    return path / "set.npz"


def lengths_of_one_part(path):
    arrays = {f"{name}_{part}": np.zeros((4, 3)) for name in "X" for part in ("train", "test")}
    arrays |= {f"y_{part}": np.arange(4) % 2 for part in ("train", "test")}
    np.savez(path / "set.npz", len_train=np.full(4, 2), **arrays)
    return path / "set.npz"


def one_label(path):
    np.savez(path / "set.npz", X=np.zeros((2, 3)), y=np.array(1))
    return path / "set.npz"


def strange_text(path):
    np.savez(path / "set.npz", X=np.zeros((2, 3)), y=np.array([b"\xff", b"a"]))
    return path / "set.npz"


def test_a_damaged_chunk_of_zarr_is_named(tmp_path, random):
    path = save_zarr(tmp_path, named_arrays(random))
    chunk = next(file for file in (path / "X_train" / "c").rglob("*") if file.is_file())
    chunk.write_bytes(b"no chunk")
    train = array_recordings(path, ArrayNames(groups="speaker"))["train"]
    with pytest.raises(SourceError, match=r"set\.zarr, X_train, cannot be read"):
        train.read(np.arange(3))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (objects, "must be an array of NumPy without objects"),
        (cut_short, "must be a .npz file"),
        (flipped, "must be an array of NumPy"),
        (without_labels, "must hold labels, y_train"),
        (train_alone, "must hold a training and a test part"),
        (other_names, r"must hold arrays X_train and X_test, or X; got \['features'\]"),
        (fractions, "lengths must be whole numbers"),
        (lengths_of_one_part, r"must hold lengths of every part or of none; got those of \['train'\] alone"),
        (one_label, "labels must be one a series"),
        (strange_text, "labels must be text in UTF-8"),
        (lambda path: path, "without either"),
        (lambda path: path / "nowhere.npz", "must exist"),
    ],
)
def test_bad_arrays_get_one_error_with_the_path(tmp_path, make, words):
    with pytest.raises(SourceError, match=f"{re.escape(str(tmp_path))}.*{words}"):
        array_recordings(make(tmp_path))
