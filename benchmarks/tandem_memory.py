"""Peak memory of training at the paper's two-class size: 80,000 sequences of 50 observations with 128 features, 2 GB.

A process of its own trains one epoch (order 5, batches of 200) from a Zarr store and then writes no more than a shard's
evidence; its peak is what the system counted. Beside it: the same from arrays in memory.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import record
from firmbound.datasets import gaussian
from firmbound.store import StoreDescription, TrajectoryStore, create_store
from firmbound.tandem.data import ArraySource, StoreSource
from firmbound.tandem.model import fit_tandem_from
from firmbound.tandem.options import Integrator, NetworkOptions, TrainingOptions

BAR = 4.0
SEQUENCES = {"train": 80_000, "validation": 2_000}


def main() -> None:
    if len(sys.argv) == 4:
        print(json.dumps(train(Path(sys.argv[1]), sys.argv[2], sys.argv[3])))  # type: ignore[arg-type]
        return
    with tempfile.TemporaryDirectory() as folder:
        write_stores(Path(folder))
        cases = [("lstm", "store"), ("transformer", "store"), ("lstm", "memory")]
        results = {f"{integrator}, {source}": measure(folder, integrator, source) for integrator, source in cases}
    record("tandem_memory", results)


def write_stores(folder: Path) -> None:
    for index, (split, sequences) in enumerate(SEQUENCES.items()):
        problem = gaussian(2, sequences, seed=(1, index))
        about = StoreDescription(
            dataset="gauss2",
            split=split,
            seed=(1, index),
            sequences=sequences,
            horizon=problem.horizon,
            classes=2,
            dimension=problem.dimension,
            prior=problem.prior,
            evidence=True,
        )
        with create_store(folder / f"{split}.zarr", about) as writer:
            for shard in range(about.shards):
                writer.write(shard, problem.rows(about.rows(shard)))


def measure(folder: str, integrator: str, source: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.tandem_memory", folder, integrator, source]
    found: dict[str, Any] = json.loads(subprocess.check_output(command, text=True).splitlines()[-1])
    if source == "store":
        found |= {"bar": BAR, "met": found["peak_gb"] <= BAR}
    print(f"{integrator}, {source}: {found}", flush=True)
    return found


def train(folder: Path, integrator: Integrator, kind: str) -> dict[str, Any]:
    stores = [TrajectoryStore(folder / f"{split}.zarr") for split in SEQUENCES]
    wall, cpu = time.perf_counter(), time.process_time()
    source, validation = (
        StoreSource(store) if kind == "store" else ArraySource(store.read("features"), store.labels, store.lengths)
        for store in stores
    )
    network, training = NetworkOptions(integrator=integrator, order=5), TrainingOptions(epochs=1)
    model = fit_tandem_from(source, validation, np.full(2, 0.5), network, training)
    for batch in stores[0].batches():
        assert batch.features is not None
        model.evidence(batch.features)
        break
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    return {"peak_gb": peak, "seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}


if __name__ == "__main__":
    main()
