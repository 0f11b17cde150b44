"""Kills at random moments of the default pipeline, each followed by a re-run: do all finish, with the same results?

python -m benchmarks.random_kills [kills] [seed]
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.pipeline_times import ROOT, timed
from benchmarks.record import record

COMMAND = (".venv/bin/python", "-m", "flows.pipeline")
REGISTRY = ("mlflow.db", "mlartifacts", ".mlflow.lock")


def main(kills: int = 20, seed: int = 0) -> None:
    with tempfile.TemporaryDirectory() as parent:
        clone = Path(parent) / "firmbound"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        (clone / ".venv").symlink_to(ROOT / ".venv")
        (clone / "dvc.lock").unlink()
        undisturbed = timed(clone, *COMMAND)
        wanted, draw = digests(clone), random.Random(seed)
        rounds: list[dict[str, Any]] = []
        for number in range(kills):
            start_over(clone)
            after = draw.uniform(0, undisturbed["seconds"])
            where = kill_after(clone, after)
            again = timed(clone, *COMMAND)
            same = digests(clone) == wanted
            rounds.append({"after": after, "during": where, "same": same, "seconds": again["seconds"]})
            print(f"{number + 1}: killed after {after:.0f} s in {where}, re-run {again['seconds']:.0f} s, same: {same}")
    results = {"undisturbed": undisturbed, "rounds": rounds, "same": sum(one["same"] for one in rounds)}
    print(f"{results['same']} of {kills} finished with the same results")
    record("random_kills", results)


def start_over(clone: Path) -> None:
    """As a fresh clone: no results, no cache, no registry."""
    for name in ("data", ".dvc/cache", ".dvc/tmp", *REGISTRY, "dvc.lock"):
        path = clone / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    subprocess.run(["git", "checkout", "-q", "data"], cwd=clone, check=True)


def kill_after(clone: Path, seconds: float) -> str:
    """Start the pipeline and kill -9 all its processes at once; returns the stages that were under way."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT", "MLFLOW", "MAKE"))}
    running = subprocess.Popen(
        COMMAND, cwd=clone, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    time.sleep(seconds)
    family = [psutil.Process(running.pid), *psutil.Process(running.pid).children(recursive=True)]
    said = [" ".join(one.cmdline()[2:4]) for one in family if "flows." in " ".join(one.cmdline())]
    for one in family:
        try:
            one.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            continue
    running.wait()
    return said[-1] if said else "start"


def digests(clone: Path) -> dict[str, str]:
    """Of every result but the report, whose page names the registered version."""
    files = [f for f in (clone / "data").rglob("*") if f.is_file() and "report" not in f.parts]
    return {str(f.relative_to(clone)): hashlib.sha256(f.read_bytes()).hexdigest() for f in sorted(files)}


if __name__ == "__main__":
    main(*(int(one) for one in sys.argv[1:]))
