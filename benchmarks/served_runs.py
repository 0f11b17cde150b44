"""`make serve` for ten minutes with a run a minute: how many complete, whether memory grows, who is left at the end.

A small problem in a fresh clone. Between runs a cost changes, so each one fits, scores, reports, registers and judges.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import yaml

from benchmarks.record import record

ROOT = Path(__file__).parents[1]
RUNS = 10
LOOK_SECONDS = 10.0
# The first runs load what stays loaded.
WARM_UP_RUNS = 2
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "CRASHED")
STAYS = ("flows.serve", "flows.guard", "flows.deployment", "prefect", "mlflow", "uvicorn")


def main() -> None:
    with tempfile.TemporaryDirectory() as parent:
        clone = Path(parent) / "firmbound"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        (clone / ".venv").symlink_to(sys.prefix)
        write_params(clone, run=0)
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT", "MLFLOW", "MAKE"))}
        said = clone / "said.txt"
        with said.open("w") as file:
            command = [".venv/bin/python", "-m", "flows.serve"]
            serving = subprocess.Popen(command, cwd=clone, env=environment, stdout=file)
        try:
            results = watch(clone, serving, said)
        finally:
            family = psutil.Process(serving.pid).children(recursive=True)
            before = time.perf_counter()
            serving.send_signal(signal.SIGINT)
            serving.wait(timeout=120)
        results["seconds to end"] = time.perf_counter() - before
        results["processes left behind"] = sum(one.is_running() for one in family)
    completed = sum(run["state"] == "COMPLETED" for run in results["runs"])
    print(f"{completed} of {len(results['runs'])} scheduled runs completed")
    print(f"memory of what stays: {results['resident MiB a minute']:+.2f} MiB a minute")
    record("served_runs", results)


def write_params(clone: Path, run: int) -> None:
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    params["datasets"] = ["gauss2"]
    params["features"]["gauss2"] |= {
        "dimension": 4,
        "horizon": 10,
        "sequences": {"train": 2_000, "validation": 500, "test": 2_000},
    }
    params["boundary"]["gauss2"]["costs"] = [0.1, 0.5 + 0.01 * run]
    params["schedule"] |= {"cron": "* * * * *", "prefect_port": 0, "mlflow_port": 0}
    (clone / "params.yaml").write_text(yaml.safe_dump(params))


def watch(clone: Path, serving: subprocess.Popen[bytes], said: Path) -> dict[str, Any]:
    """Look at runs and memory until so many scheduled runs have ended."""
    found = None
    while found is None:
        if serving.poll() is not None:
            raise SystemExit(f"serving ended:\n{said.read_text()}")
        time.sleep(0.5)
        found = re.search(r"(\S+)/deployments[\s\S]*Ctrl-C", said.read_text())
    prefect = found[1]
    begin, memory = time.monotonic(), []
    runs: list[dict[str, Any]] = []
    while len(runs) < RUNS:
        time.sleep(LOOK_SECONDS)
        memory.append({"seconds": time.monotonic() - begin, "ended": len(runs), **resident(serving.pid)})
        before, runs = len(runs), scheduled_runs(prefect)
        if len(runs) > before:
            write_params(clone, run=len(runs))
    return {"runs": runs, "memory": memory, "resident MiB a minute": slope(memory)}


def scheduled_runs(prefect: str) -> list[dict[str, Any]]:
    """Scheduled runs that have ended, in the order of their times."""
    wanted = {"state": {"type": {"any_": list(ENDED)}}}
    body = json.dumps(
        {"flow_runs": wanted, "flows": {"name": {"any_": ["pipeline"]}}, "sort": "EXPECTED_START_TIME_ASC"}
    ).encode()
    request = urllib.request.Request(f"{prefect}/api/flow_runs/filter", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        found = json.load(answer)
    return [
        {"seconds": run["total_run_time"], "state": run["state"]["type"], "message": run["state"]["message"]}
        for run in found
        if run["auto_scheduled"]
    ]


def resident(serving: int) -> dict[str, float]:
    """MiB of each process that stays, and of the runs that come and go."""
    sizes: dict[str, float] = {}
    root = psutil.Process(serving)
    for process in [root, *root.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            name = next((part for part in STAYS if part in process.cmdline()[:3]), "runs")
            sizes[name] = sizes.get(name, 0.0) + process.memory_info().rss / 2**20
    return sizes


def slope(memory: list[dict[str, float]]) -> float:
    """Growth of what stays, MiB a minute, by least squares after the first runs."""
    later = [look for look in memory if look["ended"] >= WARM_UP_RUNS]
    minutes = [look["seconds"] / 60 for look in later]
    total = [sum(look.get(name, 0.0) for name in STAYS) for look in later]
    return float(np.polyfit(minutes, total, 1)[0])


if __name__ == "__main__":
    main()
