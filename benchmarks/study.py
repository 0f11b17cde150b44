"""The study's bars: `python -m benchmarks.study [name]` runs `make study` in this folder and keeps what it found.

Written to results/study[_name].json: where a rival is ahead, our rules beside static thresholds, variance of the
hitting time, errors at the same mean time, options that were found, seconds by the clock, and of each stage seconds,
CPU seconds and peak memory, as its log has them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.record import record
from flows.log_reading import read_log, stage_runs

KEPT = ("ours", "datasets", "repeats", "failed", "cheaper", "beside_static", "same_beliefs", "shares")
STAGES = ("features", "baselines", "experiments", "study")
LATER = ("errors_at_shares", "variance", "ranks", "searched")


def main() -> None:
    started = time.perf_counter()
    subprocess.run(["make", "study"], check=True)
    spent = {"seconds": time.perf_counter() - started, "stages": spent_by_stages()}
    name = "_".join(["study", *sys.argv[1:]])
    record(name, bars(json.loads(Path("data/study/findings.json").read_text())) | spent)


def spent_by_stages() -> list[dict[str, Any]]:
    """Of all that ended well, also in earlier parts of a study that was killed and went on."""
    measures = ("stage", "dataset", "seconds", "cpu_seconds", "child_peak_mb")
    runs = [one for one in stage_runs(read_log()) if one.result == "completed"]
    return [{name: getattr(one, name) for name in measures} for one in runs if one.stage in STAGES]


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
