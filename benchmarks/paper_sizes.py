"""What params/paper.yaml needs: `python -m benchmarks.paper_sizes [run] [study] [experiments] [kernels] [whole]`.

run: `make run` as it is there. study: one repeat of gauss2 with all methods but two at the paper's sizes, in which
networks make a share of their updates and nothing is searched; what a network takes with all updates is reckoned from
that. kernels: the two, ridge classifiers on MiniRocket features, at one prefix and for two smaller numbers of
sequences; their seconds and memory grow along a line with the number, where it is larger than that of kernels. Beside
them, what a ridge takes in blocks and with scikit-learn. experiments: those of the study, one repeat. whole: what the
study takes, reckoned from these, in hours of one core; of searches as if all networks had the study's own size (ranges
go beyond it) and no trial were pruned.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from sklearn.linear_model import RidgeClassifierCV

import firmbound.datasets
from benchmarks.pipeline_times import ROOT, timed
from benchmarks.record import RESULTS, record
from firmbound.baselines.calimera import Calimera, even_timestamps
from firmbound.baselines.minirocket import MiniRocketRidge, spread_timestamps
from firmbound.baselines.ridge import fit_ridge, signs_of
from firmbound.trajectories import Batch
from flows.log_reading import read_log, stage_runs
from flows.processes import in_process, processes
from flows.study_section import SEARCHED_RIVALS
from flows.usage import Usage

COMMAND = (".venv/bin/python", "-m", "flows.pipeline")
NAME = "paper_sizes"
UPDATES = 400  # of the networks; all of them need as many as the evidence's network at least
ON_KERNELS = ("minirocket", "calimera")
HORIZON = 50
SEQUENCES = (12_500, 25_000)  # that these two are measured with


def main(parts: list[str]) -> None:
    file = RESULTS / f"{NAME}.json"
    results: dict[str, Any] = json.loads(file.read_text())["results"] if file.exists() else {}
    for part in (part for part in parts if part != "whole"):
        with tempfile.TemporaryDirectory() as parent:
            clone = Path(parent) / "firmbound"
            subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
            (clone / ".venv").symlink_to(ROOT / ".venv")
            results[part] = PARTS[part](clone)
        record(NAME, results)
    if "whole" in parts:
        results["whole"] = reckoned(results)
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
    paper["study"] |= {"leave_out": list(ON_KERNELS)}
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


def measure_experiments(clone: Path) -> dict[str, Any]:
    paper = yaml.safe_load((clone / "params" / "paper.yaml").read_text())
    paper["study"]["experiments"] |= {"repeats": 1}
    (clone / "params.yaml").write_text(yaml.safe_dump(paper))
    spent = timed(clone, ".venv/bin/python", "-m", "flows", "experiments")
    return {"seconds": spent["seconds"], "stages": stages_of(clone)}


def measure_kernels(clone: Path) -> dict[str, Any]:
    paper = yaml.safe_load((clone / "params" / "paper.yaml").read_text())
    kernels, asked = paper["study"]["kernels"], paper["features"]["gauss2"]["sequences"]["train"]
    runs = list(product(ON_KERNELS, SEQUENCES))
    with ThreadPoolExecutor(2) as side_by_side:  # as in a study
        rows = side_by_side.map(lambda run: in_own_process(fit_on_kernels, run[0], kernels, run[1]), runs)
    measured = dict(zip(runs, rows, strict=True))
    found: dict[str, Any] = {}
    for method in ON_KERNELS:
        fewer, more = (measured[method, sequences] for sequences in SEQUENCES)
        found[method] = {
            "measured": {str(sequences): measured[method, sequences] for sequences in SEQUENCES},
            f"reckoned for {asked} sequences": {name: along_line(fewer[name], more[name], asked) for name in fewer},
        }
    ridges = {name: in_own_process(fit_plain_ridge, name) for name in ("scikit-learn", "in blocks")}
    return {"kernels": kernels, "prefixes": 1, "methods": found, "a ridge, 20,000 x 2,000, seven penalties": ridges}


def reckoned(results: dict[str, Any]) -> dict[str, float]:
    """Hours of one core for all repeats; the data sets that have features are taken to be as large as the largest."""
    paper = yaml.safe_load((ROOT / "params" / "paper.yaml").read_text())
    study, trials = paper["study"], yaml.safe_load((ROOT / "params" / "search" / "rivals.yaml").read_text())["trials"]
    featured = [name for name in study["rivals"] if paper["features"][name]["kind"] == "gaussian"]
    entries, asked = len(featured) * study["rival_repeats"], paper["features"]["gauss2"]["sequences"]["train"]
    networks = sum(results["study"]["reckoned hours of a network with all updates"].values())
    seconds, epochs = results["study"]["seconds of methods"], study["tandem"]["training"]["epochs"]
    ours = (seconds["tandem-static"] * (epochs - 1) + seconds["tandem-refined"]) / 3600
    prefixes = {
        "minirocket": len(spread_timestamps(HORIZON, 1, MiniRocketRidge().timestamps)),
        "calimera": len(even_timestamps(HORIZON, Calimera().timestamps)),
    }
    reckoned_for = {name: row[f"reckoned for {asked} sequences"] for name, row in results["kernels"]["methods"].items()}
    kernels = sum(number * reckoned_for[name]["cpu_seconds"] for name, number in prefixes.items()) / 3600
    (experiments,) = (row["cpu_seconds"] for row in results["experiments"]["stages"] if row["stage"] == "experiments")
    found = {
        "networks": entries * (networks + ours),
        "kernels": entries * kernels,
        "experiments": study["experiments"]["repeats"] * experiments / 3600,
    }
    search = len(featured) * trials * networks
    return found | {"all without search": sum(found.values()), "search": search, "all": sum(found.values()) + search}


def in_own_process(work: Callable[..., dict[str, float]], *arguments: Any) -> dict[str, float]:
    """So that its memory is its own; on one core, as methods of a study are."""
    with processes(1) as pool:
        return in_process(pool, work, *arguments)


def fit_on_kernels(method: str, kernels: int, sequences: int) -> dict[str, float]:
    """Learn, and decide on as many new sequences."""
    train, validation, fresh = (
        Batch(drawn.labels, 2, drawn.features)
        for drawn in (
            firmbound.datasets.gaussian(2, count, HORIZON, seed=seed)
            for seed, count in enumerate((sequences, 2_000, sequences))
        )
    )
    if method == "minirocket":
        MiniRocketRidge(kernels=kernels, timestamps=1).fit(train, validation, seed=0).posteriors(fresh)
    else:
        # Its two timestamps are none and all of the horizon, and of none it fits nothing.
        Calimera(kernels=kernels, timestamps=2).fit(train, validation, seed=0).points(fresh)
    return Usage().now()


def fit_plain_ridge(whose: str) -> dict[str, float]:
    """Leave-one-out and the best of seven penalties, with nothing else in the process."""
    random, alphas = np.random.default_rng(0), Calimera().alphas
    features = random.standard_normal((20_000, 2_000), dtype=np.float32)
    labels = (features[:, 0] > random.standard_normal(20_000)).astype(np.int64)
    if whose == "scikit-learn":
        RidgeClassifierCV(list(alphas)).fit(features, labels)
    else:
        fit_ridge(features, signs_of(labels, 2), alphas)
    return Usage().now()


def along_line(fewer: float, more: float, asked: int) -> float:
    return fewer + (more - fewer) * (asked - SEQUENCES[0]) / (SEQUENCES[1] - SEQUENCES[0])


def stages_of(clone: Path) -> list[dict[str, Any]]:
    measures = ("stage", "dataset", "seconds", "cpu_seconds", "peak_mb", "child_peak_mb")
    ended = [one for one in stage_runs(read_log(clone / ".logs")) if one.result == "completed"]
    return [{name: getattr(one, name) for name in measures} for one in ended]


def seconds_of_methods(clone: Path) -> dict[str, float]:
    """Of each method, without its decisions, as the stage's log has them."""
    found = {}
    for line in read_log(clone / ".logs"):
        words = str(line["message"]).split()
        if "repeat" in words and words[-1:] == ["s"] and words[-3:-2] == ["in"]:
            found[words[-4]] = float(words[-2])
    return found


def disk(clone: Path) -> float:
    """Data and DVC's cache are often the same files under two names, which take their place once."""
    found = (file.stat() for file in clone.rglob("*") if file.is_file() and not file.is_symlink())
    return sum({each.st_ino: each.st_size for each in found}.values()) / 1e6


PARTS = {"run": measure_run, "study": measure_study, "experiments": measure_experiments, "kernels": measure_kernels}


if __name__ == "__main__":
    main(sys.argv[1:] or [*PARTS, "whole"])
