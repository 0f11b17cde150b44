"""From arrays of 2 GB to a trajectory store, against writing the same bytes with Zarr alone, in one run.

80,000 sequences of 50 x 128 numbers in .npy files. The stage's own code (shards on two threads, checks, scaling
learned on the way, publishing with fsync) and plain Zarr write the same chunks, shards and compression to the same
disk, in turns; plain Zarr reads the same file and has two threads too. Memory is that of a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import ZstdCodec

from benchmarks.record import record
from firmbound.datasets.array_files import array_recordings
from firmbound.datasets.recorded import SequenceOptions, recorded_splits
from firmbound.datasets.splits import SplitOptions
from firmbound.publishing import publish
from firmbound.store import CHUNK_ROWS, StoreWriter
from flows.features import describe, write_rows

SHAPE = (80_000, 50, 128)
BARS = {"speed": 0.5, "peak_gb": 1.0}
TURNS = 3


def main() -> None:
    if len(sys.argv) == 3:
        print(json.dumps(WAYS[sys.argv[1]](Path(sys.argv[2]))))
        return
    with tempfile.TemporaryDirectory(dir=".") as folder:
        write_arrays(Path(folder))
        rows = [{way: measure(way, folder) for way in WAYS} for _ in range(TURNS)]
    best = {way: min((row[way] for row in rows), key=lambda found: float(found["seconds"])) for way in WAYS}
    speed = best["zarr"]["seconds"] / best["stage"]["seconds"]
    cpu = best["zarr"]["cpu_seconds"] / best["stage"]["cpu_seconds"]
    peak = max(row["stage"]["peak_gb"] for row in rows)
    record(
        "feature_writing",
        {
            "gigabytes": 4 * np.prod(SHAPE) / 1e9,
            "best": best,
            "turns": rows,
            "speed_against_zarr": speed,
            "cpu_against_zarr": cpu,
            "peak_gb": peak,
            "bars": BARS,
            "met": {"speed": speed >= BARS["speed"], "peak_gb": peak <= BARS["peak_gb"]},
        },
    )


def write_arrays(folder: Path) -> None:
    (folder / "raw").mkdir()
    random = np.random.default_rng(0)
    for part, rows in (("train", SHAPE[0]), ("test", 1_000), ("validation", 1_000)):
        values = np.lib.format.open_memmap(  # type: ignore[no-untyped-call]
            folder / "raw" / f"X_{part}.npy", mode="w+", dtype=np.float32, shape=(rows, *SHAPE[1:])
        )
        for start in range(0, rows, 1_000):
            values[start : start + 1_000] = random.standard_normal((1_000, *SHAPE[1:]), dtype=np.float32)
        values.flush()
        np.save(folder / "raw" / f"y_{part}.npy", np.arange(rows) % 2)


def measure(way: str, folder: str) -> dict[str, Any]:
    said = subprocess.check_output([sys.executable, "-m", "benchmarks.feature_writing", way, folder], text=True)
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    print(f"{way}: {found}", flush=True)
    return found


def stage(folder: Path) -> dict[str, float]:
    """What the stage `features` does for the training split."""
    options = SequenceOptions(split=SplitOptions(validation=None))
    train = recorded_splits(array_recordings(folder / "raw"), options)["train"]
    about = describe("large", "train", (0,), train)
    wall, cpu = time.perf_counter(), time.process_time()
    with publish(folder / "stage", resume="work") as target:
        writer = StoreWriter(target / "train.zarr", about)
        writer.create_arrays()
        marks = target / "marks"
        marks.mkdir()
        with ThreadPoolExecutor(2) as pool:
            found = list(
                pool.map(lambda shard: write_rows(writer, train, shard, marks / str(shard), True), range(about.shards))
            )
        writer.finish()
    assert len(found) == about.shards
    return _taken(wall, cpu)


def plain(folder: Path) -> dict[str, float]:
    """The same bytes into the same chunks and shards by Zarr alone, on disk at the end."""
    values = np.load(folder / "raw" / "X_train.npy", mmap_mode="r")
    shard = 4_000
    wall, cpu = time.perf_counter(), time.process_time()
    array = zarr.create_array(
        folder / "plain.zarr",
        shape=SHAPE,
        dtype=np.float32,
        chunks=(CHUNK_ROWS, *SHAPE[1:]),
        shards=(shard, *SHAPE[1:]),
        compressors=[ZstdCodec(level=1, checksum=True)],
        overwrite=True,
    )

    def write(start: int) -> None:
        array[start : start + shard] = values[start : start + shard]

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, range(0, SHAPE[0], shard)))
    os.sync()
    return _taken(wall, cpu)


def _taken(wall: float, cpu: float) -> dict[str, float]:
    seconds, cpu_seconds = time.perf_counter() - wall, time.process_time() - cpu
    # Not getrusage, which also knows what the process was before it became this one.
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return {"seconds": seconds, "cpu_seconds": cpu_seconds, "peak_gb": int(peak.split()[1]) * 1024 / 1e9}


WAYS = {"zarr": plain, "stage": stage}


if __name__ == "__main__":
    main()
