"""Servers beside a run, in processes of their own, on loopback ports: Prefect's, and MLflow's page."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from firmbound.errors import FirmboundError
from flows.guard import guarded
from flows.process_tree import end, tree

LOOPBACK = "127.0.0.1"
START_SECONDS = 180
STOP_SECONDS = 30.0
# Where MLflow's page is, for links; its store may be a file that the page is not needed for.
MLFLOW_PAGE = "FIRMBOUND_MLFLOW_PAGE"


def on_loopback(port: int, path: str = "") -> str:
    return f"http://127.0.0.1:{port}{path}"


class ServerError(FirmboundError):
    """A server did not start, or ended."""


@dataclass(frozen=True)
class Service:
    """A process that runs until it is ended, and the file it writes its log to."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def check(self) -> None:
        if self.process.poll() is not None:
            raise ServerError(f"the {self.name} ended with exit code {self.process.returncode}; see {self.log}")

    def await_answer(self, address: str) -> None:
        """Until it answers. Checked every time: a port may belong to somebody else."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            self.check()
            try:
                with urllib.request.urlopen(address, timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.3)
        raise ServerError(f"the {self.name} did not answer within {START_SECONDS} s; see {self.log}")

    def end(self, ask: int = signal.SIGTERM, *, ask_children: bool = False) -> None:
        """Ask it to end, and its children if it would wait for them; whoever is left after a while is killed."""
        below = tree(self.process.pid)
        if self.process.poll() is None:
            self.process.send_signal(ask)
            for child in below:
                with contextlib.suppress(psutil.Error):
                    if ask_children and child.ppid() == self.process.pid:
                        child.terminate()
            try:
                self.process.wait(timeout=STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
        end(lambda: below, grace=1)
        self.process.wait()


def start(name: str, command: list[str], environment: Mapping[str, str], *, stdout: int | None = None) -> Service:
    """Start a service with its log in Prefect's folder; in a session of its own, so that Ctrl-C does not reach it."""
    home = Path(environment["PREFECT_HOME"])
    home.mkdir(parents=True, exist_ok=True)
    log = home / f"{name.lower().replace(' ', '-')}.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            stdin=subprocess.DEVNULL,
            stdout=file if stdout is None else stdout,
            stderr=file,
            env=dict(environment),
            start_new_session=True,
        )
    return Service(name, process, log)


def start_prefect(port: int, environment: Mapping[str, str]) -> Service:
    command = ["prefect", "server", "start", "--host", LOOPBACK, "--port", str(port)]
    settings = {
        # Else pages look for the server at Prefect's usual port, wherever they came from.
        "PREFECT_SERVER_UI_API_URL": on_loopback(port, "/api"),
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        # Runs of the last month are kept; left alone, Prefect keeps all of them.
        "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
        "PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD": str(30 * 24 * 3600),
    }
    return start("Prefect server", command, settings | dict(environment))


def start_mlflow(port: int, store: str, environment: Mapping[str, str]) -> Service:
    """MLflow's page on a SQLite store. One worker and no job runner: it is for looking at."""
    artifacts = (Path.cwd() / "mlartifacts").as_uri()
    command = ["mlflow", "server", "--backend-store-uri", store, "--default-artifact-root", artifacts]
    command += ["--host", LOOPBACK, "--port", str(port), "--workers", "1"]
    return start("MLflow server", command, {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"} | dict(environment))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def check_port_is_free(name: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # what a server does that was just stopped
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            raise ServerError(
                f"`{name}` must be a free port; got {port}, which another program uses. End that program, or set "
                f"{name} in params.yaml to another port, or to 0 for any free one."
            ) from None


@contextmanager
def prefect_server() -> Iterator[dict[str, str]]:
    """One server for the whole run, on a free loopback port, stopped at the end; an address that is given is used.

    Yields the environment of processes that end with the run, also if it is killed.
    """
    if os.environ.get("PREFECT_API_URL"):
        yield dict(os.environ)
        return
    port = free_port()
    with guarded() as (environment, _):
        server = start_prefect(port, environment)
        try:
            server.await_answer(on_loopback(port, "/api/health"))
            os.environ["PREFECT_API_URL"] = on_loopback(port, "/api")
            yield environment | {"PREFECT_API_URL": on_loopback(port, "/api")}
        finally:
            os.environ.pop("PREFECT_API_URL", None)
            server.end()
