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


def test_missing_files_stand_in_nobodys_way(folder):
    before = looked()
    write(["lost", "arrays", "nothing"], lost={"kind": "arrays", "path": "nowhere"})
    found = looked()
    assert found["lost"]["problem"].startswith("`features.lost.path` must hold the data set's files; got nowhere")
    assert found["arrays"] == before["arrays"]
    assert found["nothing"] == {"files": {}}  # the stages that check params.yaml say that it is not there


def test_what_is_to_be_downloaded_may_be_missing_and_is_the_same_when_it_is_there(folder):
    section = {"kind": "archive", "path": "nowhere", "name": "Made", "download": True}
    write(["far"], far=section)
    missing = looked()
    write(["far"], far=section | {"path": "archives"})
    assert looked() == missing == {"far": {"download": "Made"}}


def test_a_model_and_lists_beside_the_clips_are_watched(folder):
    (folder / "clips").mkdir()
    (folder / "clips" / "a.avi").write_bytes(b"clip")
    (folder / "lists").mkdir()
    (folder / "lists" / "trainlist01.txt").write_text("a/a.avi 1")
    (folder / "model.onnx").write_bytes(b"model")
    section = {"kind": "video", "path": "clips", "lists": None, "weights": None, "backbone": "model.onnx"}
    write(["video"], video=section)
    before = looked()["video"]
    assert sorted(before["files"]) == ["clips/a.avi", "lists/trainlist01.txt", "model.onnx"]
    for file in ("lists/trainlist01.txt", "model.onnx"):
        (folder / file).write_text("other")
        after = looked()["video"]
        assert after != before
        before = after


@pytest.mark.parametrize("text", ["datasets: [made, :", "datasets: 3", "- 1", None])
def test_broken_params_are_one_clear_line(folder, text):
    (folder / "params.yaml").unlink()
    if text is not None:
        (folder / "params.yaml").write_text(text)
    with pytest.raises(SystemExit, match=r"^firmbound: `params\.yaml` must name"):
        sources.main()


def test_lost_knowledge_is_gathered_again(folder):
    before = looked()
    (folder / "data" / ".checksums.json").write_text("{no")
    assert looked() == before
