"""The doctor on broken machines: each check fails for its own reason, says what to do, and changes nothing."""

import fcntl
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
import yaml

from flows.doctor import CHECKS
from flows.finding import Finding, Verdict, good
from tests.flows.small_project import SMALL
from tests.test_architecture import ROOT

FILES = ["params.yaml", "dvc.yaml", "constraints.txt", "pyproject.toml"]


class Patient:
    """A copy of the project with small params, whose doctor runs in a process of its own."""

    def __init__(self, folder):
        self.folder = folder
        for name in FILES:
            shutil.copy(ROOT / name, folder / name)
        for package in ("flows", "firmbound"):
            shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
        (folder / ".dvc").mkdir()
        shutil.copy(ROOT / ".dvc" / "config", folder / ".dvc" / "config")
        self.write(SMALL)
        left_out = ("PREFECT", "MLFLOW", "PYTHON", "TZ", "FIRMBOUND")
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}

    def write(self, params):
        (self.folder / "params.yaml").write_text(yaml.safe_dump(json.loads(json.dumps(params))))

    def examine(self, *checks, python=(sys.executable,), **environment):
        before = self.state()
        ended = subprocess.run(
            [*python, "-B", "-m", "flows.doctor", *checks],
            cwd=self.folder,
            env=self.environment | environment,
            capture_output=True,
            text=True,
        )
        assert "Traceback" not in ended.stderr
        assert self.state() == before, "the doctor changed a file"
        return ended

    def state(self):
        found = {file: file.stat() for file in self.folder.rglob("*")}
        return {str(file): (about.st_size, about.st_mtime_ns, about.st_ino) for file, about in found.items()}

    def finding(self, check, **environment):
        """Exit code, sign and words of one check."""
        ended = self.examine(check, **environment)
        lines = ended.stdout.splitlines()
        assert lines[0][1:].split()[0] == check
        return ended.returncode, lines[0][0], " ".join(ended.stdout.split())


@pytest.fixture
def patient(tmp_path):
    return Patient(tmp_path)


def broken(found, *words):
    code, sign, said = found
    assert (code, sign) == (1, "✗"), said
    for word in (*words, "->"):
        assert word in said


def noted(found, *words):
    code, sign, said = found
    assert (code, sign) == (0, "!"), said
    for word in (*words, "->"):
        assert word in said


def test_a_healthy_machine_passes_every_check(patient):
    ended = patient.examine()
    lines = [line for line in ended.stdout.splitlines() if line[:1] in "✓!✗" and line.strip()]
    assert [line.split()[1] for line in lines] == list(CHECKS)
    assert ended.returncode == 0, ended.stdout
    assert "Nothing that is needed is missing." in ended.stdout


def test_without_a_single_package_every_check_still_answers(patient):
    """Python alone: no rich, no yaml, no psutil, not even ourselves."""
    ended = patient.examine(python=(sys.executable, "-S"))
    assert ended.returncode == 1
    said = ended.stdout
    for name in ("python", "packages", "params", "repository", "gpu", "memory", "results"):
        (line,) = [line for line in said.splitlines() if line[2:].split() and line[2:].split()[0] == name]
        assert line.startswith("✗"), line
    assert "make setup" in said
    assert "is not installed" in said


def test_versions_that_are_known_to_break_are_found_by_the_package_s_own_bounds(patient, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("packages")
    for name, version in (("sqlalchemy", "2.1.3"), ("fastapi", "0.151.0")):
        about = elsewhere / f"{name}-{version}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    found = patient.finding("packages", PYTHONPATH=str(elsewhere))
    broken(found, "sqlalchemy 2.1.3, where <2.1 is needed", "fastapi 0.151.0, where <0.151 is needed", "make setup")
    noted(patient.finding("pins", PYTHONPATH=str(elsewhere)), "fastapi 0.151.0 (tested: ", "make setup")


def test_a_python_that_is_too_old(patient, tmp_path_factory):
    """The package as it is installed says which are enough."""
    elsewhere = tmp_path_factory.mktemp("packages")
    (elsewhere / "firmbound-9.dist-info").mkdir()
    about = "Metadata-Version: 2.1\nName: firmbound\nVersion: 9\nRequires-Python: >=4\nRequires-Dist: no-such-thing\n"
    (elsewhere / "firmbound-9.dist-info" / "METADATA").write_text(about)
    broken(patient.finding("python", PYTHONPATH=str(elsewhere)), ">=4 is needed", "PYTHON=")
    broken(patient.finding("packages", PYTHONPATH=str(elsewhere)), "no-such-thing is missing")


def test_no_git_and_no_browser(patient, tmp_path):
    nowhere = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    broken(patient.finding("git", **nowhere), "git is not to be found", "Install git")
    noted(patient.finding("browser", **nowhere), "no Chromium", "playwright install chromium")


def test_params_that_cannot_be(patient):
    patient.write(SMALL | {"datasets": ["tiny2", "none"]})
    broken(patient.finding("params"), "features.none", "git diff params.yaml")
    (patient.folder / "params.yaml").write_text("a: [")
    broken(patient.finding("params"), "YAML")
    (patient.folder / "params.yaml").unlink()
    broken(patient.finding("params"), "no such file")


def test_a_repository_that_is_missing_or_damaged(patient):
    config = patient.folder / ".dvc" / "config"
    config.write_text("type = no section\n")
    broken(patient.finding("repository"), "cannot be read", "git checkout .dvc/config")
    config.unlink()
    noted(patient.finding("repository"), "no DVC repository", "make run")
    shutil.copy(ROOT / ".dvc" / "config", config)
    (patient.folder / "dvc.yaml").write_text("")
    broken(patient.finding("repository"), "names no stages", "git checkout dvc.yaml")


def test_a_lock_that_another_process_holds(patient):
    (patient.folder / ".dvc" / "tmp").mkdir()
    lock = patient.folder / ".dvc" / "tmp" / "lock"
    lock.write_text("")
    assert patient.finding("lock")[:2] == (0, "✓")
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        broken(patient.finding("lock"), "held by another process", "Wait for it")
    listed = {"write": {"data/tiny2": {"pid": os.getpid(), "cmd": "dvc repro"}}, "read": {}}
    (patient.folder / ".dvc" / "tmp" / "rwlock").write_text(json.dumps(listed))
    broken(patient.finding("lock"), f"process {os.getpid()} (dvc repro)")
    listed["write"]["data/tiny2"]["pid"] = 2**22 + 7  # beyond the numbers that Linux gives
    (patient.folder / ".dvc" / "tmp" / "rwlock").write_text(json.dumps(listed))
    assert patient.finding("lock")[:2] == (0, "✓")


def test_a_cache_that_copies(patient):
    assert "hardlink" in patient.finding("cache")[2]
    (patient.folder / ".dvc" / "config").write_text("[cache]\n    type = copy\n")
    noted(patient.finding("cache"), "twice the disk", "cache.type hardlink")


def test_results_that_lack_something(patient):
    noted(patient.finding("results"), "still to be made", "make run")
    (patient.folder / "data" / "tiny2" / "boundary").mkdir(parents=True)
    broken(patient.finding("results"), "data/tiny2/features is missing", "make run")


def test_stores_that_are_damaged(patient):
    store = patient.folder / "data" / "tiny2" / "features" / "train.zarr"
    store.mkdir(parents=True)
    (store / "zarr.json").write_text("{")
    broken(patient.finding("results"), "train.zarr", "make run")


def test_folders_that_are_in_the_way(patient):
    (patient.folder / ".logs").write_text("a file")
    broken(patient.finding("folders"), ".logs is a file", "Move the file")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folders_that_cannot_be_written(patient):
    (patient.folder / "data").mkdir(mode=0o500)
    broken(patient.finding("folders"), "data cannot be written")


def test_a_disk_that_is_too_small_for_what_is_to_come(patient):
    features = SMALL["features"]["tiny2"] | {"sequences": {"train": 10**15, "validation": 1, "test": 1}}
    patient.write(SMALL | {"features": SMALL["features"] | {"tiny2": features}})
    broken(patient.finding("disk"), "GB are needed", "dvc gc")
    (patient.folder / "data" / "tiny2" / "features").mkdir(parents=True)  # made already
    assert patient.finding("disk")[1] in "✓!"


def test_more_workers_than_cores(patient):
    patient.write(SMALL | {"runner": {"kind": "threads", "workers": 5000}})
    noted(patient.finding("cores"), "5000 workers", "runner.workers")


def test_a_gpu_that_is_asked_for_and_not_there(patient):
    boundary = SMALL["boundary"] | {"tiny2": SMALL["boundary"]["tiny2"] | {"device": "cuda"}}
    patient.write(SMALL | {"boundary": boundary})
    broken(patient.finding("gpu", CUDA_VISIBLE_DEVICES=""), "boundary.tiny2.device", "auto")


def test_a_clock_that_is_behind(patient):
    os.utime(patient.folder / "dvc.yaml", (4e9, 4e9))
    broken(patient.finding("clock"), "behind the newest file", "Set the clock")


@pytest.mark.parametrize(("zone", "sign"), [("Moon/Crater", "!"), ("Europe/Vienna", "✓"), ("EST5EDT", "✓")])
def test_time_zones(patient, zone, sign):
    assert patient.finding("clock", TZ=zone)[:2] == (0, sign)


class Reply(BaseHTTPRequestHandler):
    code = 200

    def do_GET(self):
        self.send_response(self.code)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with HTTPServer(("127.0.0.1", 0), Reply) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.mark.parametrize(("check", "variable"), [("prefect", "PREFECT_API_URL"), ("mlflow", "MLFLOW_TRACKING_URI")])
def test_servers_that_are_named_must_answer(patient, server, check, variable, monkeypatch):
    address = f"http://me:pw12345@127.0.0.1:{server.server_port}"
    for code, sign in ((200, "✓"), (401, "✓"), (503, "✗")):
        monkeypatch.setattr(Reply, "code", code)
        found = patient.finding(check, **{variable: address})
        assert found[1] == sign, found
        assert "pw12345" not in found[2]
    free = free_port()
    found = patient.finding(check, **{variable: f"http://me:pw12345@127.0.0.1:{free}"})
    broken(found, variable, "nobody answers", f"unset {variable}")
    assert "pw12345" not in found[2]


def test_an_address_that_is_none(patient):
    broken(patient.finding("prefect", PREFECT_API_URL="ftp://host"), "no http address")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_a_database_that_is_locked_damaged_or_another(patient):
    file = patient.folder / "mlflow.db"
    file.write_bytes(b"no database, though long enough to be looked at" * 50)
    broken(patient.finding("mlflow"), "cannot be read as a database", "mv mlflow.db")
    file.unlink()
    with sqlite3.connect(file) as made:
        made.execute("CREATE TABLE other (x)")
    made.close()
    broken(patient.finding("mlflow"), "no database of MLflow")
    holder = sqlite3.connect(file, isolation_level=None)
    holder.execute("CREATE TABLE registered_models (x)")
    assert patient.finding("mlflow")[:2] == (0, "✓")
    holder.execute("BEGIN EXCLUSIVE")
    broken(patient.finding("mlflow"), "locked by another process", "fuser")
    holder.close()


def test_a_cluster_that_is_named_must_be_there(patient, server):
    runner = {"kind": "dask", "workers": 2}
    patient.write(SMALL | {"runner": runner | {"address": f"tcp://127.0.0.1:{server.server_port}"}})
    assert patient.finding("dask")[:2] == (0, "✓")
    patient.write(SMALL | {"runner": runner | {"address": f"tcp://127.0.0.1:{free_port()}"}})
    broken(patient.finding("dask"), "no Dask scheduler answers", "dask scheduler")
    patient.write(SMALL | {"runner": runner | {"address": "over there"}})
    broken(patient.finding("dask"), "no address", "tcp://")


def test_ports_that_are_taken(patient, server):
    taken, free = server.server_port, free_port()
    patient.write(SMALL | {"schedule": {"prefect_port": free, "mlflow_port": taken}})
    noted(patient.finding("ports"), f"by `make serve`: {taken}", "schedule.mlflow_port", "or to 0")
    patient.write(SMALL | {"schedule": {"prefect_port": taken, "mlflow_port": taken}})
    noted(patient.finding("ports"), "schedule.prefect_port and schedule.mlflow_port")


@pytest.mark.parametrize("schedule", [{"prefect_port": 0, "mlflow_port": 99_999}, None, "at night", {}])
def test_without_a_fixed_port_any_will_do(patient, schedule):
    patient.write(SMALL | {"schedule": schedule})
    assert patient.finding("ports")[:2] == (0, "✓")


def test_a_check_that_is_none_and_one_that_breaks(patient):
    ended = patient.examine("humour")
    assert ended.returncode == 2
    assert "must be one of python, packages" in ended.stderr
    (patient.folder / ".dvc" / "tmp").mkdir()
    (patient.folder / ".dvc" / "tmp" / "rwlock").write_text('{"write": {"data": {}}}')  # not as DVC writes it
    broken(patient.finding("lock"), "cannot be checked: KeyError")


def test_the_command_is_the_same(patient):
    (patient.folder / ".logs").write_text("a file")
    command = [sys.executable, "-m", "flows.cli", "doctor", "folders"]
    ended = subprocess.run(command, cwd=patient.folder, env=patient.environment, capture_output=True, text=True)
    assert ended.returncode == 1
    assert ".logs is a file" in ended.stdout


def test_a_finding_says_what_to_do_exactly_when_there_is_something():
    assert good("all is well").mend == ""
    with pytest.raises(ValueError, match="what to do"):
        Finding(Verdict.BAD, "it broke")
