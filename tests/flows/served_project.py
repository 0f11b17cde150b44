"""`python -m flows.serve` on a small project, for tests: what it says, its interfaces, its processes."""

import contextlib
import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

import psutil

from flows.guard import MARK

SECONDS = 240  # a busy machine takes its time


def wait_for(found: Callable[[], Any], seconds: float = SECONDS) -> Any:
    """What `found` gives as soon as it is something."""
    deadline = time.monotonic() + seconds
    while not (result := found()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.2)
    return result


class Served:
    """A serving process. Servers are new ones, on free ports, with a home of Prefect's that is theirs."""

    def __init__(self, folder: Path, environment: dict[str, str], home: Path) -> None:
        ours = {k: v for k, v in environment.items() if not k.startswith("PREFECT")} | {"PREFECT_HOME": str(home)}
        self.home, self.said = home, home.with_suffix(".said")
        with self.said.open("w") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "flows.serve"], cwd=folder, env=ours, stdout=file, stderr=file
            )
        self.seen: set[psutil.Process] = set()
        self.marks: set[str] = set()

    def await_panel(self) -> "Served":
        def panel() -> re.Match[str] | None:
            assert self.process.poll() is None, self.said.read_text()
            return re.search(r"(\S+)/deployments[\s\S]*models +(\S+)[\s\S]*Ctrl-C", self.said.read_text())

        self.prefect, self.mlflow = wait_for(panel).groups()
        self.deployment = fetch(f"{self.prefect}/api/deployments/name/pipeline/scheduled")["id"]
        return self

    def processes(self) -> set[psutil.Process]:
        """All that it started and that are there now, the guard too."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self.seen |= set(psutil.Process(self.process.pid).children(recursive=True))
        self.marks |= {_environment(one)[MARK] for one in self.seen if MARK in _environment(one)}
        return {one for one in self.seen if one.is_running() and one.status() != psutil.STATUS_ZOMBIE}

    def remaining(self) -> set[psutil.Process]:
        """Also those whom nobody of its family knows any more: the mark is handed down."""
        others = [one for one in psutil.process_iter() if _environment(one).get(MARK) in self.marks]
        return self.processes() | set(others)

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        return fetch(f"{self.prefect}/api{path}", {} if body is None else body)

    def runs(self, **wanted: Any) -> list[dict[str, Any]]:
        """Runs of the deployment, the newest first."""
        filters = {"deployment_id": {"any_": [self.deployment]}, **wanted}
        return self.ask("/flow_runs/filter", {"flow_runs": filters, "sort": "EXPECTED_START_TIME_DESC"})

    def start_run(self) -> str:
        """By hand, as a button on the page does."""
        return self.ask(f"/deployments/{self.deployment}/create_flow_run")["id"]

    def run(self) -> dict[str, Any]:
        """A whole run by hand. One that meets a scheduled run is skipped, and started again."""
        while True:
            run = self.await_end(self.start_run())
            if run["state"]["type"] != "CANCELLED":
                return run

    def await_end(self, run: str) -> dict[str, Any]:
        def ended() -> dict[str, Any] | None:
            (found,) = self.runs(id={"any_": [run]})
            return found if found["state"]["type"] in ("COMPLETED", "FAILED", "CANCELLED", "CRASHED") else None

        return wait_for(ended)

    def await_work(self) -> None:
        """Until a run is under way and has started DVC."""

        def working() -> bool:
            return any("dvc" in _command(one) for one in self.processes())

        self.start_run()
        wait_for(working)


def fetch(address: str, body: dict[str, Any] | None = None) -> Any:
    """An answer. 503 means a database that others write to: Prefect's own clients ask again then, and so do we."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"})
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refused:
            if refused.code != HTTPStatus.SERVICE_UNAVAILABLE or time.monotonic() > deadline:
                raise
            time.sleep(1)


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return dict(process.environ())
    except (psutil.Error, OSError):
        return {}


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def serve_briefly(folder: Path, source: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """`python -m flows.serve` in a folder that may hold nothing but params.yaml, with the code of `source`."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT", "MLFLOW"))}
    return subprocess.run(
        [sys.executable, "-m", "flows.serve"],
        cwd=folder,
        env=clean | {"PYTHONPATH": str(source)} | environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
