"""Kills at random moments of the default pipeline, each followed by a re-run: do all finish, with the same results?

python -m benchmarks.random_kills [kills] [seed] [project]

project: a clone of the same commit in which `make run` has finished, to be copied; without it that run comes first.
A round forgets one data set, with a chance as its share of the pipeline's time, lets the pipeline compute it, kills all
processes at a moment that is uniform over that time (start and DVC's own work among it), and runs the pipeline again.
Rounds that were recorded with the same code count, so an ended benchmark goes on.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import suppress
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import yaml

from benchmarks.pipeline_times import ROOT, timed
from benchmarks.record import RESULTS as RECORDED
from benchmarks.record import record
from flows.log_reading import read_log, stage_runs

COMMAND = (".venv/bin/python", "-m", "flows.pipeline")
REGISTRY = ("mlflow.db", "mlartifacts", ".mlflow.lock")
RESULTS = ("data", ".logs", ".dvc/cache")
PIPELINE = "pipeline"
START_SECONDS = 15.0  # servers and imports, before the first stage


def main(kills: int, seed: int, project: Path | None) -> None:
    with tempfile.TemporaryDirectory() as parent:
        clone = Path(parent) / "firmbound"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        (clone / ".venv").symlink_to(ROOT / ".venv")
        if project is None:
            (clone / "dvc.lock").unlink()
            timed(clone, *COMMAND)
        else:
            for name in RESULTS:
                shutil.copytree(project / name, clone / name, dirs_exist_ok=True)
        wanted, times = digests(clone), seconds_of_data_sets(clone)
        rounds = recorded_rounds()
        draw = random.Random(seed + len(rounds))
        while len(rounds) < kills:
            dataset = draw.choices(list(times), list(times.values()))[0]
            after = draw.uniform(0, times[dataset])
            forget(clone, dataset)
            during = kill_after(clone, after)
            if during is None:
                print(f"{dataset} took less than {after:.0f} s this time: no kill")
                continue
            rounds.append({"dataset": dataset, "after": after, "during": during, **run_again(clone, wanted)})
            print(len(rounds), rounds[-1], flush=True)
            results: dict[str, Any] = {"seconds a data set": times, "rounds": rounds}
            results["same"] = sum(one["outcome"] == "same" for one in rounds)
            record("random_kills", results)  # what was seen so far, should somebody end this
    print(f"{sum(one['outcome'] == 'same' for one in rounds)} of {len(rounds)} finished with the same results")


def recorded_rounds() -> list[dict[str, Any]]:
    """Those of an ended benchmark of the same pipeline, so that it goes on; none if code or params are others."""
    file = RECORDED / "random_kills.json"
    if not file.exists():
        return []
    before = json.loads(file.read_text())
    code = ("firmbound", "flows", "dvc.yaml", "params.yaml", "constraints.txt")
    same = subprocess.run(["git", "diff", "--quiet", before["machine"]["commit"], "--", *code], cwd=ROOT, check=False)
    rounds: list[dict[str, Any]] = before["results"]["rounds"]
    return rounds if same.returncode == 0 else []


def seconds_of_data_sets(clone: Path) -> dict[str, float]:
    """Of a run of each one alone: from its stages' beginnings to whatever began next, and the start of a run."""
    lines = list(read_log(clone / ".logs"))
    begun = [(one.dataset, datetime.fromisoformat(one.begun)) for one in stage_runs(lines) if one.stage != PIPELINE]
    ended = max(datetime.fromisoformat(line["time"]) for line in lines)
    times: defaultdict[str, float] = defaultdict(lambda: START_SECONDS)
    for (dataset, moment), (_, following) in pairwise([*begun, (None, ended)]):
        if dataset is not None:
            times[dataset] += (following - moment).total_seconds()
    return dict(times)


def run_again(clone: Path, wanted: dict[str, str]) -> dict[str, Any]:
    try:
        again = timed(clone, *COMMAND)
    except SystemExit as problem:
        return {"outcome": "failed", "why": str(problem)}
    return {"outcome": "same" if digests(clone) == wanted else "different", "seconds": again["seconds"]}


def forget(clone: Path, dataset: str) -> None:
    """No result of a data set anywhere, also not in the cache, and no registry."""
    for path in (clone / name for name in (f"data/{dataset}", *REGISTRY)):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    lock = yaml.safe_load((clone / "dvc.lock").read_text())
    lock["stages"] = {name: one for name, one in lock["stages"].items() if not name.endswith(f"@{dataset}")}
    (clone / "dvc.lock").write_text(yaml.safe_dump(lock))
    subprocess.run([".venv/bin/dvc", "gc", "-q", "--workspace", "--force"], cwd=clone, check=True)


def kill_after(clone: Path, seconds: float) -> str | None:
    """Start the pipeline and kill -9 all its processes at once: what was under way, or None if it had ended."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT", "MLFLOW", "MAKE"))}
    launched = datetime.now().astimezone()
    running = subprocess.Popen(
        COMMAND, cwd=clone, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    time.sleep(seconds)
    if running.poll() is not None:
        return None
    for one in [psutil.Process(running.pid), *psutil.Process(running.pid).children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            one.send_signal(signal.SIGKILL)
    running.wait()
    under_way = [
        one.stage
        for one in stage_runs(read_log(clone / ".logs"))
        if one.dataset and one.result == "no end" and datetime.fromisoformat(one.begun) > launched
    ]
    return under_way[-1] if under_way else "start or DVC's own work"


def digests(clone: Path) -> dict[str, str]:
    """Of every result but the report, whose page names the registered version."""
    files = [f for f in (clone / "data").rglob("*") if f.is_file() and "report" not in f.parts]
    return {str(f.relative_to(clone)): hashlib.sha256(f.read_bytes()).hexdigest() for f in sorted(files)}


if __name__ == "__main__":
    asked = dict(enumerate(sys.argv[1:]))
    main(int(asked.get(0, 20)), int(asked.get(1, 0)), Path(asked[2]) if 2 in asked else None)
