"""Ending processes with all that they started, whoever is killed first and however they were started."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from flows.process_tree import end, marked, tree
from tests.flows.test_processes import alive, wait_until

# A process that says it is there, in a session of its own and below one that has ended: nobody's child.
LOST = """
import os, pathlib, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
os.wait()
"""


def test_after_kill_9_the_guard_ends_also_those_whom_nobody_knows(tmp_path):
    said = tmp_path / "lost"
    script = f"""
import subprocess, sys, time
from flows.guard import guarded
with guarded() as (environment, _):
    subprocess.Popen([sys.executable, "-c", {LOST!r}, {str(said)!r}], env=environment)
    time.sleep(600)
"""
    environment = os.environ | {"PYTHONPATH": str(Path.cwd())}
    parent = subprocess.Popen([sys.executable, "-c", script], env=environment)
    wait_until(lambda: said.exists() and said.read_text())
    lost = int(said.read_text())
    assert lost not in [child.pid for child in psutil.Process(parent.pid).children(recursive=True)]
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    wait_until(lambda: not alive(lost))


def test_those_who_do_not_listen_are_killed(tmp_path):
    said = tmp_path / "deaf"
    script = (
        "import pathlib, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "pathlib.Path(sys.argv[1]).write_text('here'); time.sleep(600)"
    )
    above = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {script!r}, {str(said)!r}])"
    parent = subprocess.Popen([sys.executable, "-c", above])
    wait_until(lambda: said.exists() and said.read_text())
    family = tree(parent.pid)
    assert len(family) == 2
    end(lambda: family, grace=0.5)
    parent.wait()
    assert not any(alive(process.pid) for process in family)


def test_a_mark_finds_its_own_alone():
    ours = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=os.environ | {"MARK": "ours"})
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=os.environ | {"MARK": "not"})
    wait_until(lambda: [process.pid for process in marked("MARK", "ours")] == [ours.pid])
    for process in (ours, other):
        process.communicate(b"\n")
    assert not marked("MARK", "ours")
    assert tree(ours.pid) == []
