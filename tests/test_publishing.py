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


def fail_in(target, work):
    """Add a letter to what is there, then fail."""
    with publish(target, resume=work) as folder:
        file = folder / "a"
        file.write_text((file.read_text() if file.exists() else "") + "a")
        raise ZeroDivisionError


def test_work_that_is_named_is_gone_on_with(tmp_path):
    target = tmp_path / "result"
    for _ in range(2):  # failed or killed, what was done stays for whoever names the same work
        with pytest.raises(ZeroDivisionError):
            fail_in(target, "sums")
    assert not target.exists()
    with publish(target, resume="sums") as folder:
        assert (folder / "a").read_text() == "aa"
    assert content(target) == {"a": "aa"}
    assert names(tmp_path) == ["result"]


def test_other_work_starts_with_nothing(tmp_path):
    target = tmp_path / "result"
    with pytest.raises(ZeroDivisionError):
        fail_in(target, "sums")
    with publish(target, resume="products") as folder:
        assert names(folder) == [".work"]
        (folder / "b").write_text("b")
    assert content(target) == {"b": "b"}
