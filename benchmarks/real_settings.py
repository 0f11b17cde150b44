"""Settings of params/real.yaml, judged by validation sequences alone: `python -m benchmarks.real_settings [forda]`.

Each variant goes through the stages `features` and `tandem` in a copy of the project; test sequences are not looked at.
What counts is the error of the likeliest class and the negative log-likelihood of the true one, averaged over t.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.real_data import DATA, ROOT, timed
from benchmarks.record import RESULTS, record
from firmbound.evaluation.calibration import calibration
from firmbound.store import TrajectoryStore

PLAIN = {"shift": 0, "noise": 0.0, "offset": 0.0, "mask": 0}
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "forda": {"as in params": {}, "segments that do not overlap": {"features.windows.hop": None}},
    "asc40": {"as in params": {}, "no augmentation": {f"tandem.training.{name}": no for name, no in PLAIN.items()}},
}


def main() -> None:
    file = RESULTS / "real_settings.json"
    results = json.loads(file.read_text())["results"] if file.exists() else {}
    for dataset in sys.argv[1:] or VARIANTS:
        results[dataset] = {}
        for name, changes in VARIANTS[dataset].items():
            results[dataset][name] = judged(dataset, changes)
            print(dataset, name, results[dataset][name], flush=True)
            record("real_settings", results)


def judged(dataset: str, changes: dict[str, Any]) -> dict[str, Any]:
    params = json.loads(json.dumps(yaml.safe_load((ROOT / "params" / "real.yaml").read_text())))
    params["datasets"] = [dataset]
    for path, value in changes.items():
        section, *between, last = path.split(".")
        place = params[section][dataset]
        for name in between:
            place = place[name]
        place[last] = value
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / "firmbound"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(project)], check=True)
        (project / "recorded").symlink_to(DATA)
        (project / "params.yaml").write_text(yaml.safe_dump(params))
        taken = [timed([sys.executable, "-m", f"flows.{stage}", *names], project) for stage, *names in stages(dataset)]
        store = TrajectoryStore(project / "data" / dataset / "tandem" / "validation.zarr")
        evidence, labels = store.evidence(), store.labels
    wrong = evidence.argmax(axis=2) != labels[:, None]
    error = np.mean([wrong[labels == k].mean(axis=0) for k in np.unique(labels)], axis=0)
    honest = calibration(evidence, labels, store.description.prior)
    return {
        "sequences": len(labels),
        "mean_error": float(error.mean()),
        "error_at_half": float(error[len(error) // 2]),
        "error_at_the_end": float(error[-1]),
        "mean_negative_log_likelihood": float(honest.negative_log_likelihood.mean()),
        "cpu_seconds": sum(one["cpu_seconds"] for one in taken),
    }


def stages(dataset: str) -> list[list[str]]:
    return [["sources"], ["features", dataset], ["tandem", dataset]]


if __name__ == "__main__":
    main()
