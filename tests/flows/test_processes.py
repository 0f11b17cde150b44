"""Processes that work for a flow: one core each, an end that is told, and nobody left behind by a kill."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flows.processes import ProcessEnded, in_process, processes


def threads():
    import torch

    return torch.get_num_threads()


def threads_after_minirocket():
    """Numba shares OpenMP with torch: as many threads as it starts, torch has from then on."""
    import numpy as np
    from aeon.transformations.collection.convolution_based import MiniRocket

    MiniRocket(n_kernels=84).fit_transform(np.random.default_rng(0).standard_normal((4, 1, 20)).astype(np.float32))
    return threads()


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def refuse():
    raise ValueError("no")


@pytest.fixture(scope="module")
def pool():
    with processes(1) as pool:
        yield pool


def test_work_comes_back_from_another_process(pool):
    assert in_process(pool, os.getpid) != os.getpid()
    assert in_process(pool, max, 3, 7) == 7


def test_each_keeps_to_one_core(pool):
    assert in_process(pool, threads) == 1


def test_each_keeps_to_one_core_whatever_it_computed_before(monkeypatch):
    monkeypatch.setenv("NUMBA_NUM_THREADS", "2")
    with processes(1) as pool:
        assert in_process(pool, threads_after_minirocket) == 1


def test_an_error_is_the_caller_s(pool):
    with pytest.raises(ValueError, match="no"):
        in_process(pool, refuse)


def test_a_process_that_ends_without_a_word_is_told():
    with processes(1) as pool, pytest.raises(ProcessEnded, match="Start again"):
        in_process(pool, die)


def test_nobody_outlives_a_killed_parent(tmp_path):
    """Else a worker would go on writing beside whoever resumes the work."""
    said = tmp_path / "worker"
    script = f"""
import os, pathlib, time
from flows.processes import in_process, processes

def work():
    pathlib.Path({str(said)!r}).write_text(str(os.getpid()))
    time.sleep(600)

if __name__ == "__main__":
    with processes(1) as pool:
        in_process(pool, work)
"""
    (tmp_path / "parent.py").write_text(script)
    environment = os.environ | {"PYTHONPATH": str(Path.cwd())}
    parent = subprocess.Popen([sys.executable, str(tmp_path / "parent.py")], env=environment)
    wait_until(lambda: said.exists() and said.read_text())
    worker = int(said.read_text())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    wait_until(lambda: not alive(worker))


def wait_until(holds):
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def alive(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
