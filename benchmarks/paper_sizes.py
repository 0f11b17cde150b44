"""What params/paper.yaml needs: `python -m benchmarks.paper_sizes [run] [study]`, in hours and memory.

run: `make run` as it is there. study: one repeat of gauss2 with all methods at the paper's sizes, in which networks
make a share of their updates and nothing is searched; what a network takes with all updates is reckoned from that.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from benchmarks.pipeline_times import ROOT, timed
from benchmarks.record import RESULTS, record
from flows.log_reading import read_log, stage_runs
from flows.study_section import SEARCHED_RIVALS

COMMAND = (".venv/bin/python", "-m", "flows.pipeline")
NAME = "paper_sizes"
UPDATES = 400  # of the networks; all of them need as many as the evidence's network at least


def main(parts: list[str]) -> None:
    file = RESULTS / f"{NAME}.json"
    results: dict[str, Any] = json.loads(file.read_text())["results"] if file.exists() else {}
    for part in parts:
        with tempfile.TemporaryDirectory() as parent:
            clone = Path(parent) / "firmbound"
            subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
            (clone / ".venv").symlink_to(ROOT / ".venv")
            results[part] = {"run": measure_run, "study": measure_study}[part](clone)
        record(NAME, results)


def measure_run(clone: Path) -> dict[str, Any]:
    (clone / "params.yaml").write_text((clone / "params" / "paper.yaml").read_text())
    spent = timed(clone, *COMMAND)
    return {"seconds": spent["seconds"], "stages": stages_of(clone), "disk MB": disk(clone)}


def measure_study(clone: Path) -> dict[str, Any]:
    paper = yaml.safe_load((clone / "params" / "paper.yaml").read_text())
    asked = paper["study"]["networks"]["updates"]
    paper["datasets"] = ["gauss2"]
    paper["study"] |= {"datasets": ["gauss2"], "rivals": ["gauss2"], "repeats": 1, "rival_repeats": 1, "search": None}
    paper["study"]["networks"]["updates"] = UPDATES
    paper["study"]["tandem"]["training"]["epochs"] = 1
    paper["study"]["experiments"] |= {"sizes": [600], "sequences": 600, "fresh": 1000, "repeats": 1}
    (clone / "params.yaml").write_text(yaml.safe_dump(paper))
    spent = timed(clone, *COMMAND, "study")
    methods = seconds_of_methods(clone)
    networks = {rival: max(methods[name] for name in methods if name.startswith(rival)) for rival in SEARCHED_RIVALS}
    return {
        "seconds": spent["seconds"],
        "stages": stages_of(clone),
        "disk MB": disk(clone),
        "seconds of methods": methods,
        "reckoned hours of a network with all updates": {
            rival: seconds * asked / UPDATES / 3600 for rival, seconds in networks.items()
        },
    }


def stages_of(clone: Path) -> list[dict[str, Any]]:
    measures = ("stage", "dataset", "seconds", "cpu_seconds", "peak_mb", "child_peak_mb")
    ended = [one for one in stage_runs(read_log(clone / ".logs")) if one.result == "completed"]
    return [{name: getattr(one, name) for name in measures} for one in ended]


def seconds_of_methods(clone: Path) -> dict[str, float]:
    """Of each method, training and decisions together, as the stage's log has them."""
    found = {}
    for line in read_log(clone / ".logs"):
        words = str(line["message"]).split()
        if "repeat" in words and words[-1:] == ["s"] and words[-3:-2] == ["in"]:
            found[words[-4]] = float(words[-2])
    return found


def disk(clone: Path) -> float:
    return sum(file.stat().st_size for file in clone.rglob("*") if file.is_file() and not file.is_symlink()) / 1e6


if __name__ == "__main__":
    main(sys.argv[1:] or ["run", "study"])
