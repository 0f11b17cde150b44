"""Stages in forks of a warm process: as if they had been started plainly, only sooner."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from flows.warm import WARM, warm_stages
from tests.test_architecture import ROOT

PROBE = """
import json, os, sys, time
from pathlib import Path
if sys.argv[1] == "wait":
    Path("waiting").write_text(str(os.getpid()))
    time.sleep(300)
print(json.dumps([sys.argv[1:], os.getcwd(), os.environ.get("PROBE"), "torch" in sys.modules, __name__]))
print("to the other stream", file=sys.stderr)
print(sys.stdin.read())
if sys.argv[1] == "raise":
    raise ValueError("as asked")
sys.exit(int(sys.argv[2]))
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A folder with a package `flows` of its own, in which there is one stage."""
    folder = tmp_path_factory.mktemp("warm")
    (folder / "flows").mkdir()
    (folder / "flows" / "__init__.py").write_text("")
    (folder / "flows" / "probe.py").write_text(PROBE)
    for name in ("__main__.py", "warm.py"):
        (folder / "flows" / name).write_text((ROOT / "flows" / name).read_text())
    return folder


@pytest.fixture(scope="module")
def warm(project):
    before = os.environ.pop(WARM, None)
    here = Path.cwd()
    os.chdir(project)
    with warm_stages():
        os.chdir(here)
        yield os.environ[WARM]
    if before is not None:
        os.environ[WARM] = before


def start(project, *arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "flows", "probe", *arguments],
        cwd=project,
        env=os.environ | environment,
        input="said by the keyboard",
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_it_is_as_if_started_plainly_but_what_is_large_is_there(project, warm):
    plain, forked = (start(project, "say", "7", PROBE="here", **{WARM: place}) for place in ("", warm))
    assert plain.returncode == forked.returncode == 7
    assert plain.stderr == forked.stderr == "to the other stream\n"
    assert "said by the keyboard" in forked.stdout
    assert plain.stdout.replace("false", "true", 1) == forked.stdout  # torch has been imported


def test_a_large_environment_arrives_whole(project, warm):
    large = {f"LARGE_{number}": "x" * 50_000 for number in range(8)}
    ended = start(project, "say", "5", PROBE="after all of it", **large)
    assert ended.returncode == 5
    assert "after all of it" in ended.stdout


def test_an_error_is_told_and_ends_with_code_one(project, warm):
    ended = start(project, "raise", "0")
    assert ended.returncode == 1
    assert "ValueError: as asked" in ended.stderr


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_stage_ends_with_whoever_asked_for_it(project, warm, how):
    (project / "waiting").unlink(missing_ok=True)
    asking = subprocess.Popen([sys.executable, "-m", "flows", "probe", "wait"], cwd=project)
    stage = int(soon(lambda: (project / "waiting").exists() and (project / "waiting").read_text()))
    assert psutil.pid_exists(stage)
    asking.send_signal(how)
    asking.wait()
    soon(lambda: not psutil.pid_exists(stage))


def test_a_killed_stage_is_a_failure(project, warm):
    (project / "waiting").unlink(missing_ok=True)
    asking = subprocess.Popen([sys.executable, "-m", "flows", "probe", "wait"], cwd=project)
    os.kill(int(soon(lambda: (project / "waiting").exists() and (project / "waiting").read_text())), signal.SIGKILL)
    assert asking.wait(timeout=60) == 128 + signal.SIGKILL


def test_without_a_warm_process_stages_run_all_the_same(project):
    assert start(project, "say", "3", **{WARM: str(project / "nobody")}).returncode == 3


def test_bad_names_are_refused(project):
    ended = subprocess.run([sys.executable, "-m", "flows", "../x"], cwd=project, capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr.startswith("usage: python -m flows <stage>")


def test_the_warm_process_ends_with_the_run(project, monkeypatch):
    monkeypatch.delenv(WARM, raising=False)
    monkeypatch.chdir(project)
    before = set(psutil.Process().children())
    with warm_stages():
        (server,) = set(psutil.Process().children()) - before
    assert not server.is_running()
    assert WARM not in os.environ


def soon(found):
    deadline = time.monotonic() + 60
    while not (result := found()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
    return result
