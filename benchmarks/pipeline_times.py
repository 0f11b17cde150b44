"""Times of the commands that a person waits for: `make run` on a fresh clone, `dvc repro` unchanged and changed."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from benchmarks.record import record

ROOT = Path(__file__).parents[1]


def main() -> None:
    with tempfile.TemporaryDirectory() as parent:
        clone = Path(parent) / "firmbound"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        results: dict[str, Any] = {"make run, fresh clone": timed(clone, "make", "run")}
        results["dvc repro, nothing changed"] = timed(clone, ".venv/bin/dvc", "repro")
        params = yaml.safe_load((clone / "params.yaml").read_text())
        params["boundary"]["gauss2"]["costs"][1] = 0.25
        (clone / "params.yaml").write_text(yaml.safe_dump(params))
        results["dvc repro, one cost changed"] = timed(clone, ".venv/bin/dvc", "repro")
        results["make test"] = timed(clone, "make", "test")
    for name, result in results.items():
        print(f"{name}: {result['seconds']:.1f} s, stages run: {result['stages']}")
    record("pipeline_times", results)


def timed(folder: Path, *command: str) -> dict[str, Any]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT", "MLFLOW", "MAKE"))}
    before, children = time.perf_counter(), os.times()
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    after = os.times()
    if ended.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}")
    cpu = after.children_user + after.children_system - children.children_user - children.children_system
    stages = re.findall(r"Running stage '([^']+)'", ended.stdout)
    return {"seconds": time.perf_counter() - before, "cpu_seconds": cpu, "stages": stages}


if __name__ == "__main__":
    main()
