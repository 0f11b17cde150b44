"""Dask: boundaries of many data sets on one worker process and on two, each worker with one core."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from benchmarks.pipeline_times import ROOT
from benchmarks.record import record

DATASETS = 6
AT_A_TIME = 3
BAR = 1.6


def main() -> None:
    from flows.cluster import local_cluster
    from flows.servers import prefect_server
    from flows.warm import warm_stages

    results: dict[str, Any] = {"data_sets": DATASETS, "bar": BAR}
    with tempfile.TemporaryDirectory() as parent:
        project = Path(parent) / "firmbound"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(project)], check=True)
        (project / ".venv").symlink_to(ROOT / ".venv")
        os.chdir(project)
        os.environ["PREFECT_HOME"] = str(project / ".prefect")
        with prefect_server(), warm_stages():
            write_params(project, address=None)
            for stage in ("features", "tandem", "refinement"):
                run_all(stage)
            for workers in (1, 2):
                with local_cluster(workers) as cluster:
                    write_params(project, address=cluster.scheduler_address)
                    results[f"seconds on {workers}"] = run_all("boundary")
        os.chdir(ROOT)
    results["ratio"] = results["seconds on 1"] / results["seconds on 2"]
    print(f"two workers are {results['ratio']:.2f} times as fast as one (bar {BAR})")
    record("dask_scaling", results)


def write_params(project: Path, *, address: str | None) -> None:
    """Gaussian problems with Gaussian processes, so that tasks have work to do."""
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    names = [f"many{number}" for number in range(DATASETS)]
    params["datasets"] = names
    params["runner"] = {"kind": "threads", "workers": 2, "address": None, "gpus": 0}
    if address:
        params["runner"] |= {"kind": "dask", "address": address}
    for section in ("features", "tandem", "refinement", "boundary"):
        of = params[section]["gauss3"]
        params[section] = {name: dict(of) for name in names}
    for number, name in enumerate(names):
        params["features"][name] |= {"seed": 100 + number}
        params["refinement"][name] |= {"refine": "never"}
    params["study"] |= {"datasets": names, "rivals": []}
    params["tuning"]["space"] = {}
    (project / "params.yaml").write_text(yaml.safe_dump(params))


def run_all(stage: str) -> float:
    """A stage of all data sets, some at a time, as chains of a pipeline are."""
    started = time.perf_counter()
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        list(pool.map(lambda number: run_one(stage, f"many{number}"), range(DATASETS)))
    return time.perf_counter() - started


def run_one(stage: str, dataset: str) -> None:
    ended = subprocess.run([sys.executable, "-m", "flows", stage, dataset], capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(ended.stdout[-1000:] + ended.stderr[-3000:])


if __name__ == "__main__":
    main()
