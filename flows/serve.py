"""Scheduled runs: `make serve` starts this, Ctrl-C ends it and all that it started.

python -m flows.serve     Prefect's server, MLflow's page and the pipeline's deployment, by `schedule` of params.yaml;
                          servers named by PREFECT_API_URL and MLFLOW_TRACKING_URI are used instead of own ones
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from rich.console import Console
from rich.panel import Panel

from firmbound.errors import FirmboundError
from flows.guard import guarded
from flows.params import read_params
from flows.pipeline import ensure_repository
from flows.redaction import redact
from flows.schedule_section import Schedule
from flows.servers import (
    MLFLOW_PAGE,
    START_SECONDS,
    ServerError,
    Service,
    check_port_is_free,
    free_port,
    on_loopback,
    start,
    start_mlflow,
    start_prefect,
)

LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class Addresses:
    """Where Prefect's interface and MLflow's page are; ports of those that are ours to start, else None."""

    prefect: str
    prefect_port: int | None
    mlflow: str
    mlflow_port: int | None

    @classmethod
    def plan(cls, schedule: Schedule, given: Mapping[str, str]) -> Addresses:
        """Servers that are given, else ports that are free; nothing is started yet."""
        prefect, mlflow = given.get("PREFECT_API_URL", ""), given.get("MLFLOW_TRACKING_URI", "")
        theirs = urlsplit(mlflow).scheme in ("http", "https")
        prefect_port = None if prefect else _port("schedule.prefect_port", schedule.prefect_port)
        mlflow_port = None if theirs else _port("schedule.mlflow_port", schedule.mlflow_port)
        return cls(
            prefect if prefect_port is None else on_loopback(prefect_port, "/api"),
            prefect_port,
            mlflow if mlflow_port is None else on_loopback(mlflow_port),
            mlflow_port,
        )


def main() -> None:
    try:
        schedule = read_params().schedule
        addresses = Addresses.plan(schedule, os.environ)
    except FirmboundError as problem:
        sys.exit(f"firmbound: {problem}")
    ensure_repository()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        serve(schedule, addresses)
    except KeyboardInterrupt:
        print("firmbound: all ended.")
    except ServerError as problem:
        sys.exit(f"firmbound: {problem}. All others were ended.")


def serve(schedule: Schedule, addresses: Addresses) -> None:
    """Until a signal comes or one of the processes ends; then the others end too, the deployment first."""
    services: list[Service] = []
    with guarded() as (environment, guard):
        environment |= {"PREFECT_API_URL": addresses.prefect, MLFLOW_PAGE: addresses.mlflow}
        try:
            start_servers(addresses, environment, services)
            deployment = start(
                "deployment", ["flows.deployment", deployment_name(addresses)], environment, stdout=subprocess.PIPE
            )
            services.append(deployment)
            tell(schedule, addresses, said_by(deployment))
            while True:
                for service in services:
                    service.check()
                if guard.poll() is not None:
                    raise ServerError("the guard, which ends all others after a kill, was killed itself")
                time.sleep(LOOK_SECONDS)
        finally:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)  # ending takes seconds, and must not be interrupted
            for service in reversed(services):
                if service.name == "deployment":  # on SIGINT it pauses the schedule; runs are ended, not waited for
                    service.end(signal.SIGINT, ask_children=True)
                else:
                    service.end()


def deployment_name(addresses: Addresses) -> str:
    """On a server that others share, each folder has a deployment of its own: whoever ends must not pause the rest."""
    if addresses.prefect_port is not None:
        return "scheduled"
    return f"scheduled {socket.gethostname()} {hashlib.sha256(str(Path.cwd()).encode()).hexdigest()[:8]}"


def start_servers(addresses: Addresses, environment: Mapping[str, str], services: list[Service]) -> None:
    """Both at once, for either takes seconds; `services` gets each as soon as it must be ended."""
    awaited = []
    without_api = {name: value for name, value in environment.items() if name != "PREFECT_API_URL"}
    if addresses.prefect_port is not None:
        services.append(start_prefect(addresses.prefect_port, without_api))
        awaited.append((services[-1], f"{addresses.prefect}/health"))
    if addresses.mlflow_port is not None:
        store = environment.get("MLFLOW_TRACKING_URI") or f"sqlite:///{Path.cwd() / 'mlflow.db'}"
        services.append(start_mlflow(addresses.mlflow_port, store, environment))
        awaited.append((services[-1], f"{addresses.mlflow}/health"))
    for service, address in awaited:
        service.await_answer(address)


def said_by(deployment: Service) -> dict[str, Any]:
    """The line in which the deployment says what is scheduled."""
    stream = deployment.process.stdout
    assert stream is not None
    ready, _, _ = select.select([stream], [], [], START_SECONDS)
    line = stream.readline() if ready else b""
    if not line:
        if ready:
            deployment.process.wait()
        deployment.check()
        raise ServerError(f"the deployment was not ready within {START_SECONDS} s; see {deployment.log}")
    return dict(json.loads(line))


def tell(schedule: Schedule, addresses: Addresses, said: dict[str, Any]) -> None:
    zone = ZoneInfo(schedule.timezone)
    times = [f"{datetime.fromisoformat(at).astimezone(zone):%Y-%m-%d %H:%M}" for at in said["next"]]
    lines = [  # short ones: an address that is broken in two is no link
        f"runs      {addresses.prefect.removesuffix('/api')}/deployments",
        f"models    {addresses.mlflow}",
        f"schedule  {schedule.cron} ({schedule.timezone})",
        f"next      {', '.join(times) or 'none: paused'}",
        f"logs      {os.environ['PREFECT_HOME']}",
        "Ctrl-C ends all of it.",
    ]
    panel = Panel(redact("\n".join(lines)), title="firmbound serves the pipeline", expand=False)
    Console(width=None if sys.stdout.isatty() else 160).print(panel, markup=False, highlight=False)
    sys.stdout.flush()


def _port(name: str, wanted: int) -> int:
    if wanted == 0:
        return free_port()
    check_port_is_free(name, wanted)
    return wanted


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
