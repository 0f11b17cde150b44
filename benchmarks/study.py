"""The study's bars: `python -m benchmarks.study [name]` runs `make study` in this folder and keeps what it found.

Written to results/study[_name].json: where a rival is ahead, our rules beside static thresholds, variance of the
hitting time, errors at the same mean time, options that were found, seconds by the clock and of all processes.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.record import record

KEPT = ("ours", "datasets", "repeats", "failed", "cheaper", "beside_static", "same_beliefs", "shares")
LATER = ("errors_at_shares", "variance", "ranks", "searched")


def main() -> None:
    started = time.perf_counter()
    subprocess.run(["make", "study"], check=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = {"seconds": time.perf_counter() - started, "cpu_seconds": used.ru_utime + used.ru_stime}
    name = "_".join(["study", *sys.argv[1:]])
    record(name, bars(json.loads(Path("data/study/findings.json").read_text())) | spent)


def bars(found: dict[str, Any]) -> dict[str, Any]:
    """What the bars ask for, of all that a study found; points at which a rival is ahead are counted."""
    kept = {name: found[name] for name in (*KEPT, *LATER)}
    kept["ahead"] = {
        ours: [
            {"dataset": dataset, "rival": rival, "points": points}
            for (dataset, rival), points in Counter((row["dataset"], row["rival"]) for row in rows).items()
        ]
        for ours, rows in found["ahead"].items()
    }
    kept["errs_less_than_static"] = [
        {name: row[name] for name in ("dataset", "rule", "repeat", "cost", "error", "static_error", "ours", "static")}
        for row in found["variances"]
    ]
    return kept


if __name__ == "__main__":
    main()
