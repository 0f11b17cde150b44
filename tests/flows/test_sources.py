"""Raw files by checksum: what changed is seen, what did not is not read again."""

import json
import os
from pathlib import Path

import pytest
import yaml

from flows import sources


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "X.npy").write_bytes(b"one")
    (tmp_path / "archives" / "Made").mkdir(parents=True)
    for name in ("Made_TRAIN.ts", "Made_TEST.ts", "notes.txt"):
        (tmp_path / "archives" / "Made" / name).write_text(name)
    write(["made", "arrays", "archive"])
    return tmp_path


def write(datasets, **more):
    sections = {
        "made": {"kind": "gaussian"},
        "arrays": {"kind": "arrays", "path": "raw"},
        "archive": {"kind": "archive", "path": "archives", "name": "Made", "download": False},
    }
    Path("params.yaml").write_text(yaml.safe_dump({"datasets": datasets, "features": sections | more}))


def looked():
    sources.main()
    return {file.stem: json.loads(file.read_text()) for file in sources.FOLDER.glob("*.json")}


def test_only_the_files_of_a_data_set_count(folder):
    found = looked()
    assert found["made"] == {"files": {}}
    assert list(found["arrays"]["files"]) == ["raw/X.npy"]
    assert sorted(found["archive"]["files"]) == ["archives/Made/Made_TEST.ts", "archives/Made/Made_TRAIN.ts"]


def test_a_changed_byte_is_seen_and_a_touched_file_is_the_same(folder):
    before = looked()
    os.utime(folder / "raw" / "X.npy", ns=(1, 1))
    assert looked() == before
    (folder / "raw" / "X.npy").write_bytes(b"two")
    after = looked()
    assert after["arrays"] != before["arrays"]
    assert after["archive"] == before["archive"]


def test_what_is_known_is_not_read_again(folder, monkeypatch):
    looked()
    monkeypatch.setattr(sources.hashlib, "file_digest", lambda *_: pytest.fail("a file was read again"))
    assert looked()["arrays"]["files"]


def test_data_sets_that_are_gone_leave_no_file(folder):
    looked()
    write(["made"])
    assert set(looked()) == {"made"}


def test_missing_files_are_one_clear_line(folder):
    write(["lost"], lost={"kind": "arrays", "path": "nowhere"})
    with pytest.raises(SystemExit, match=r"firmbound: `features.lost.path` must hold .*; got nowhere, which has none"):
        sources.main()


def test_what_is_to_be_downloaded_may_be_missing(folder):
    write(["far"], far={"kind": "archive", "path": "nowhere", "name": "Made", "download": True})
    assert looked()["far"] == {"files": {}}


def test_broken_params_are_left_to_the_stages_that_check_them(folder):
    before = looked()
    (folder / "params.yaml").write_text("datasets: [made, :")
    assert looked() == before
    (folder / "params.yaml").write_text("datasets: 3")
    assert looked() == before
