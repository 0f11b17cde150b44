import signal
import subprocess
import sys
import textwrap

import pytest

from firmbound.errors import PublishingError
from firmbound.publishing import publish


def names(path):
    return [entry.name for entry in path.iterdir()]


def content(path):
    return {file.name: file.read_text() for file in path.iterdir()}


def test_a_folder_appears_when_it_is_whole(tmp_path):
    target = tmp_path / "deep" / "result"
    with publish(target) as folder:
        (folder / "a").write_text("1")
        assert not target.exists()
    assert content(target) == {"a": "1"}
    assert names(target.parent) == ["result"]


def test_a_failure_leaves_what_was_there(tmp_path):
    target = tmp_path / "result"
    with publish(target) as folder:
        (folder / "a").write_text("old")
    with pytest.raises(ZeroDivisionError), publish(target) as folder:
        (folder / "a").write_text(str(1 / 0))
    assert content(target) == {"a": "old"}
    assert names(tmp_path) == ["result"]


def test_the_new_replaces_all_of_the_old(tmp_path):
    target = tmp_path / "result"
    for name in ("one", "two"):
        with publish(target) as folder:
            (folder / name).write_text(name)
    assert content(target) == {"two": "two"}


def test_a_kill_while_writing_leaves_the_old_and_the_next_run_finishes(tmp_path):
    target = tmp_path / "result"
    with publish(target) as folder:
        (folder / "a").write_text("old")
    script = f"""
        import os, signal
        from firmbound.publishing import publish
        with publish({str(target)!r}) as folder:
            (folder / "a").write_text("half")
            os.kill(os.getpid(), signal.SIGKILL)
    """
    killed = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert content(target) == {"a": "old"}
    with publish(target) as folder:
        assert not list(folder.iterdir())
        (folder / "a").write_text("new")
    assert content(target) == {"a": "new"}
    assert names(tmp_path) == ["result"]


def test_a_kill_between_the_two_renames_is_mended(tmp_path):
    target = tmp_path / "result"
    with publish(target) as folder:
        (folder / "a").write_text("old")
    target.rename(tmp_path / ".result.replaced")
    with pytest.raises(ZeroDivisionError), publish(target):
        _ = 1 / 0
    assert content(target) == {"a": "old"}


def test_two_writers_of_one_folder_do_not_mix(tmp_path):
    target = tmp_path / "result"
    with publish(target) as first:
        (first / "a").write_text("first")
        with pytest.raises(PublishingError, match="being written by another process"), publish(target):
            pass
    assert content(target) == {"a": "first"}
