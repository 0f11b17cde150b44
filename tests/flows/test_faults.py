"""What happens to real machines: kills, a full disk, servers that are away. A re-run ends as if nothing had been."""

import contextlib
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time

import psutil
import pytest
import zc.lockfile

from flows.registry import FINGERPRINT
from tests.flows.served_project import wait_for
from tests.flows.small_project import champion
from tests.flows.test_runners import cluster_by_hand, results_of, with_runner

__all__ = ["with_runner"]
pytestmark = [pytest.mark.pipeline, pytest.mark.filterwarnings("default")]


@pytest.fixture
def undisturbed(project):
    """Results as they were; a test must leave them so, and nothing hidden beside them."""
    wanted = project.results()
    yield wanted
    assert project.results() == wanted
    assert not [path for path in (project.folder / "data").rglob(".*") if path.is_dir()]


PAGE = 4096  # of memory, which the small file system is made of


def without_leftovers(found):
    return {name: content for name, content in found.items() if "/." not in name}


def test_killed_between_backward_steps_it_goes_on_from_the_last(project, undisturbed):
    steps = project.folder / "data" / "tiny3" / ".induction"
    project.kill_once("boundary", "tiny3", lambda: list(steps.glob("*/surface-*"))[2:])
    assert len(list(steps.glob("*/surface-*"))) >= 3
    assert without_leftovers(project.results()) == without_leftovers(undisturbed)  # the old rule is still there
    again = project.run("flows.boundary", "tiny3")
    assert "goes on from t = " in again.stdout + again.stderr
    assert not steps.exists()


@pytest.fixture
def new_registry(project, tmp_path):
    """A registry that knows nothing yet. Yields its client."""
    from mlflow import MlflowClient

    address = f"sqlite:///{tmp_path / 'mlflow.db'}"
    project.environment["MLFLOW_TRACKING_URI"] = address
    try:
        yield MlflowClient(tracking_uri=address, registry_uri=address)
    finally:
        del project.environment["MLFLOW_TRACKING_URI"]
        shutil.rmtree(project.folder / "mlruns", ignore_errors=True)


@pytest.mark.parametrize("moment", ["run", "artifacts", "model"])
def test_killed_while_registering_no_half_model_is_ever_seen(project, undisturbed, new_registry, tmp_path, moment):
    """Killed at three moments of registering, then run again: one version, with a name for what it is, that works."""
    project.kill_once("report", "tiny3", lambda: at_moment(project, tmp_path / "mlflow.db", moment))
    for version in versions(new_registry):
        assert version.tags.get(FINGERPRINT)
        assert load(new_registry, version) is not None
    project.run("flows.report", "tiny3")
    (found,) = versions(new_registry)
    assert new_registry.get_model_version_by_alias(found.name, "champion").version == found.version
    assert load(new_registry, found) is not None


def at_moment(project, database, moment):
    artifacts = project.folder / "mlruns"
    if moment == "model":
        return artifacts.rglob("MLmodel")
    if moment == "artifacts":
        return artifacts.rglob("index.html")
    if not database.exists():
        return []
    try:
        with sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=0.1) as connection:
            return connection.execute("select run_uuid from runs where status = 'RUNNING'").fetchall()
    except sqlite3.OperationalError:  # its tables are being made
        return []


def versions(client):
    return client.search_model_versions("name = 'firmbound-tiny3'")


def load(client, version):
    import mlflow

    mlflow.set_tracking_uri(client.tracking_uri)
    return mlflow.pyfunc.load_model(f"models:/{version.name}/{version.version}")


def test_a_full_disk_is_one_clear_error_and_loses_nothing(project, undisturbed):
    """A real small file system, which only this one process sees."""
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
        pytest.skip("this system lets nobody mount a file system of his own (unshare -rm)")
    data = project.folder / "data" / "tiny3"
    kept = data.with_name("kept")
    data.rename(kept)
    data.mkdir()
    try:
        size = sum(-(-path.stat().st_size // PAGE) * PAGE for path in kept.rglob("*") if path.is_file())
        script = (
            f"mount -t tmpfs -o size={size + 8 * PAGE} tmpfs {data} && cp -r {kept}/. {data} && "
            f"{sys.executable} -m flows.tandem tiny3; code=$?; ls -A {data}; exit $code"
        )
        ended = subprocess.run(
            ["unshare", "-rm", "sh", "-c", script],
            cwd=project.folder,
            env=project.environment,
            capture_output=True,
            text=True,
        )
    finally:
        data.rmdir()
        kept.rename(data)
    assert ended.returncode == 1
    assert "the disk is full" in ended.stderr
    assert "Traceback" not in ended.stderr.splitlines()[-1]
    there = sorted(path.name for path in data.iterdir())
    assert sorted(ended.stdout.splitlines()[-len(there) :]) == there
    project.run("flows.tandem", "tiny3")


def test_a_dask_worker_that_is_killed_is_replaced_and_the_stage_finishes(project, undisturbed, with_runner):
    from distributed import Client

    steps = project.folder / "data" / "tiny3" / ".induction"
    with cluster_by_hand(project.folder, project.environment) as (address, _):
        with_runner(kind="dask", address=address)
        with Client(address, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)
            heavy = {worker["name"]: worker["pid"] for worker in workers(client)}["heavy"]
            command = [sys.executable, "-m", "flows.boundary", "tiny3"]
            running = subprocess.Popen(command, cwd=project.folder, env=project.environment)
            deadline = time.monotonic() + 120
            while not list(steps.glob("*/surface-*")) and time.monotonic() < deadline:
                time.sleep(0.01)
            os.kill(heavy, signal.SIGKILL)
            assert running.wait(timeout=180) == 0
    assert results_of(project, ["tiny3"])


def workers(client):
    def pids(dask_worker):
        return {"name": dask_worker.name, "pid": os.getpid()}

    return client.run(pids).values()


def test_a_prefect_server_that_is_away_is_one_clear_error(project, undisturbed):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}/api"
    environment = project.environment | {"PREFECT_API_URL": nobody}
    command = [sys.executable, "-m", "flows.boundary", "tiny3"]
    ended = subprocess.run(command, cwd=project.folder, env=environment, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "the Prefect server does not answer" in ended.stderr.splitlines()[-1]
    assert nobody in ended.stderr.splitlines()[-1]
    project.run("flows.boundary", "tiny3")


def test_a_locked_mlflow_store_is_waited_for(project, undisturbed):
    """Another program holds the database for some seconds, in the middle of logging."""
    locked = threading.Event()

    def hold():
        connection = sqlite3.connect(project.folder / "mlflow.db", timeout=60, isolation_level=None)
        connection.execute("begin exclusive")
        locked.set()
        time.sleep(12)
        connection.execute("rollback")
        connection.close()

    holder = threading.Thread(target=hold)
    holder.start()
    locked.wait(timeout=60)
    try:
        project.run("flows.report", "tiny3")
    finally:
        holder.join()
    assert champion(project, "tiny3") is not None


def test_two_repros_at_once_leave_one_result_and_the_next_has_nothing_to_do(project, undisturbed):
    """With --wait-for-lock one of them at least finishes: whoever comes second to a stage is told who is there."""
    shutil.rmtree(project.folder / "data" / "tiny3" / "boundary")
    command = [sys.executable, "-m", "dvc", "--wait-for-lock", "repro"]
    both = [
        subprocess.Popen(
            command, cwd=project.folder, env=project.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        for _ in range(2)
    ]
    said = [process.communicate()[0].decode() for process in both]
    assert 0 in [process.returncode for process in both], said
    again = project.run("dvc", "repro")
    assert "Running stage 'boundary" not in again.stdout


def test_whoever_holds_the_lock_of_dvc_for_long_does_not_end_a_run(project, undisturbed):
    """Say `dvc status` of a large project. Left alone, DVC gives up after three seconds."""
    lock = zc.lockfile.LockFile(str(project.folder / ".dvc" / "tmp" / "lock"))
    try:
        given_up = project.run("dvc", "status", check=False)
        assert "Unable to acquire lock" in given_up.stderr
        command = [sys.executable, "-m", "flows.pipeline"]
        running = subprocess.Popen(command, cwd=project.folder, env=project.environment)
        wait_for(lambda: [one for one in children_of(running) if "repro" in one.cmdline()])
        time.sleep(8)  # it comes to the lock, and waits longer than DVC would
        assert running.poll() is None
    finally:
        lock.close()
    assert running.wait() == 0


def children_of(process):
    with contextlib.suppress(psutil.Error):
        return psutil.Process(process.pid).children(recursive=True)
    return []
