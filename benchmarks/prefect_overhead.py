"""What Prefect costs: the default pipeline from nothing with Prefect and without it, and one task on threads."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.pipeline_times import ROOT, timed
from benchmarks.record import record

TASKS = 300
BARS = {"share_of_wall": 0.2, "milliseconds_a_task": 50.0}


def main() -> None:
    with tempfile.TemporaryDirectory() as parent:
        plain, whole = (Path(parent) / name for name in ("plain", "prefect"))
        for clone in (plain, whole):
            subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
            (clone / ".venv").symlink_to(ROOT / ".venv")
        without_prefect(plain / "dvc.yaml")
        results: dict[str, Any] = {"plain": timed(plain, ".venv/bin/dvc", "repro")}
        results["prefect"] = timed(whole, ".venv/bin/python", "-m", "flows.pipeline")
        results["same results"] = numbers(plain) == numbers(whole)
    results["share_of_wall"] = results["prefect"]["seconds"] / results["plain"]["seconds"] - 1
    for name in ("plain", "prefect"):
        del results[name]["cpu_seconds"]  # stages of a warm process are no children of the command
    results["milliseconds_a_task"] = of_a_task()
    results["bars"] = BARS
    for name in ("share_of_wall", "milliseconds_a_task", "same results"):
        print(f"{name}: {results[name]}")
    record("prefect_overhead", results)


def without_prefect(graph: Path) -> None:
    graph.write_text(
        graph.read_text()
        .replace("python -m flows ", "python -m benchmarks.plain_stage ")
        .replace("benchmarks.plain_stage sources", "flows.sources")
    )


def numbers(clone: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(clone)): file.read_bytes() for file in sorted((clone / "data").glob("*/evaluation/*.json"))
    }


def of_a_task() -> float:
    """Median over rounds of a flow with many tasks that do nothing, on the threads runner, with a server."""
    from flows.servers import prefect_server

    with tempfile.TemporaryDirectory() as home:
        os.environ["PREFECT_HOME"] = home
        with prefect_server():
            asked = subprocess.run(
                [sys.executable, "-m", "benchmarks.prefect_overhead", "tasks"],
                capture_output=True,
                text=True,
                check=True,
            )
    return float(asked.stdout.split()[-1])


def many_tasks() -> float:
    from prefect import flow

    from flows.params import Runner
    from flows.runners import make_task_runner, work_task

    runner = make_task_runner(Runner(kind="threads", workers=2, address=None, gpus=0))

    @flow(task_runner=runner)
    def idle(count: int) -> None:
        for future in [work_task(nothing, f"nothing {number}").submit() for number in range(count)]:
            future.result()

    idle(10)
    rounds = []
    for _ in range(3):
        started = time.perf_counter()
        idle(TASKS)
        rounds.append(1000 * (time.perf_counter() - started) / TASKS)
    return statistics.median(rounds)


def nothing() -> None:
    """What a task without work does."""


if __name__ == "__main__":
    print(many_tasks()) if sys.argv[1:] == ["tasks"] else main()
