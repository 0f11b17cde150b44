"""Checks of servers and databases: reachable where an address is given, readable where they are files."""

from __future__ import annotations

import os
import socket
import sqlite3
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from flows.doctor_reading import raw_params
from flows.finding import Finding, bad, good, note
from flows.redaction import without_userinfo

PATIENCE = 3.0  # seconds for an answer
# Entries of `schedule`: where `make serve` shows its pages.
PORTS = ("prefect_port", "mlflow_port")


def prefect_server() -> Finding:
    address = os.environ.get("PREFECT_API_URL")
    if address:
        return _answers(address, "/health", "PREFECT_API_URL")
    try:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
    except OSError as problem:
        advice = "Bring the loopback interface up: the pipeline starts its own server there."
        return bad(f"no port of 127.0.0.1 can be had: {problem}", advice)
    return good("a port for the pipeline's own Prefect server can be had")


def mlflow_store() -> Finding:
    address = os.environ.get("MLFLOW_TRACKING_URI")
    if address and not address.startswith("sqlite:///"):
        if urlsplit(address).scheme in ("http", "https"):
            return _answers(address, "/health", "MLFLOW_TRACKING_URI")
        return good(f"MLflow is kept at {address}, which is not looked at")
    file = Path(address.removeprefix("sqlite:///").partition("?")[0]) if address else Path("mlflow.db")
    if not file.exists():
        return good(f"{file} will be made by the first run")
    return _database(file)


def ports() -> Finding:
    """Those of `make serve`; 0 is any free one, as the pipeline's own server always takes."""
    schedule = raw_params().get("schedule")
    entries = schedule if isinstance(schedule, dict) else {}
    asked = {name: entries[name] for name in PORTS if isinstance(entries.get(name), int) and 0 < entries[name] < 2**16}
    taken = {name: port for name, port in asked.items() if _listens("127.0.0.1", port)}
    if taken:
        advice = f"If it is not your own server, set schedule.{' and schedule.'.join(taken)} to another, or to 0."
        return note(f"taken, and wanted by `make serve`: {', '.join(map(str, taken.values()))}", advice)
    return good(f"free for `make serve`: {', '.join(map(str, asked.values())) or 'any'}")


def dask() -> Finding:
    """The scheduler that `runner.address` of params.yaml names, if there is one."""
    address = (raw_params().get("runner") or {}).get("address")
    if not address:
        return good("no Dask cluster is asked for")
    place = urlsplit(str(address))
    try:
        host, port = place.hostname, place.port
    except ValueError:
        host, port = None, None
    if host is None or port is None:
        return bad(f"runner.address is no address: {address}", "Write it as tcp://host:8786 in params.yaml.")
    if not _listens(host, port):
        advice = f"Start it there (`dask scheduler --port {port}`), or set runner.address to null in params.yaml."
        return bad(f"no Dask scheduler answers at {address}", advice)
    return good(f"the Dask scheduler at {address} can be reached")


def _answers(address: str, path: str, variable: str) -> Finding:
    """Any answer below 500 is one: also that of a server that wants to know who asks."""
    place = urlsplit(address)
    advice = f"Start the server, or unset {variable}."
    if place.scheme not in ("http", "https") or not place.hostname:
        return bad(f"{variable} is no http address: {address}", f"Write it as http://host:port, or unset {variable}.")
    bare = without_userinfo(address).rstrip("/")
    try:
        with urllib.request.urlopen(bare + path, timeout=PATIENCE):
            pass
    except urllib.error.HTTPError as problem:
        if problem.code >= 500:
            return bad(f"{variable}: the server answers with error {problem.code}", "See the server's own log.")
    except (OSError, ValueError) as problem:
        return bad(f"{variable}: nobody answers at {bare} ({problem})", advice)
    return good(f"{variable}: a server answers at {bare}")


def _database(file: Path) -> Finding:
    """Opened to read alone, so that nothing is made or changed."""
    try:
        connection = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=1.0)
        try:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        finally:
            connection.close()
    except sqlite3.DatabaseError as problem:
        if "locked" in str(problem):
            return bad(f"{file} is locked by another process", f"Wait for it to end; `fuser {file}` names it.")
        advice = f"Move it away: `make run` makes a new one and registers anew. `mv {file} {file}.broken`"
        return bad(f"{file} cannot be read as a database ({problem})", advice)
    if "registered_models" not in tables:
        return bad(f"{file} is no database of MLflow", f"Move it away: `mv {file} {file}.other`.")
    return good(f"{file} can be read and is not locked")


def _listens(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=PATIENCE):
            return True
    except OSError:
        return False
