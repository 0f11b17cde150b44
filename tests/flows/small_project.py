"""A small project that runs for real: a copy of the code, small params, a recorded data set of its own."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import yaml

from firmbound.store import TrajectoryStore
from flows.warm import WARM
from tests.test_architecture import ROOT

DECISION = {"penalty": 10.0, "costs": [0.1, 0.5], "delay": None, "fit_on": "train", "device": "auto", "seed": 0}
REFINEMENT = {"refine": "auto", "inputs": "evidence", "units": 12, "folds": None, "ridge": None, "seed": 0}
LEARNED = {
    "evidence": "learned",
    "network": {
        "integrator": "lstm",
        "order": 1,
        "projection": 8,
        "activation": "b2bsqrt",
        "hidden": 16,
        "output_activation": "b2bsqrt",
        "blocks": 1,
        "heads": 2,
        "feed_forward": 8,
        "units": 8,
        "dropout": 0.0,
    },
    "training": {
        "optimizer": "adam",
        "learning_rate": 0.01,
        "weight_decay": 0.0,
        "batch": 100,
        "epochs": 6,
        "ratio_loss": "lsel",
        "ratio_weight": 1.0,
        "multiplet_weight": 1.0,
        "schedule": "cosine",
        "clip": 1.0,
        "patience": 5,
        "shift": 0,
        "noise": 0.0,
        "offset": 0.0,
        "mask": 0,
        "device": "auto",
        "seed": 0,
    },
    "oblivious": False,
    "calibrate": True,
    "folds": None,
}
NETWORKS = {
    "optimizer": "adam",
    "learning_rate": 0.01,
    "weight_decay": 0.0,
    "batch": 100,
    "updates": 20,
    "dropout": 0.0,
    "units": 8,
    "hidden": 8,
    "channels": 8,
    "device": "cpu",
}
SPACE = {
    "trials": 2,
    "pruner": {"percentile": 40, "startup": 0.5, "warmup": 0.5},
    "updates": 10,
} | {
    name: {"learning_rate": {"low": 0.001, "high": 0.1, "log": True}}
    for name in ("gru", "lstm-s", "lstm-m", "earliest", "tcn-transformer")
}
STUDY = {
    "datasets": ["tiny2", "spoken"],
    "repeats": 2,
    "seed": 0,
    "sequences": {"train": 500, "validation": 200, "test": 300},
    "costs": [0.1, 1.0],
    "thresholds": 8,
    "kernels": 84,
    "leave_out": ["minirocket", "calimera", "lstm-m", "tcn-transformer"],
    "networks": NETWORKS,
    "rivals": ["tiny2", "spoken"],
    "rival_repeats": 1,
    "search": "tiny",
    "tandem": LEARNED,
    "experiments": {"sizes": [200], "sequences": 200, "fresh": 100, "horizon": 5, "repeats": 1},
}
SMALL = {
    "datasets": ["tiny2", "tiny3", "learned", "spoken"],
    "runner": {"kind": "threads", "workers": 2, "address": None, "gpus": 0},
    "schedule": {"cron": "* * * * *", "timezone": "UTC", "paused": False, "prefect_port": 0, "mlflow_port": 0},
    "features": {
        name: {
            "kind": "gaussian",
            "classes": classes,
            "prior": None,
            "dimension": 4,
            "separation": 0.8,
            "horizon": 6,
            "sequences": {"train": 5_000, "validation": 100, "test": 2_000},
            "seed": classes,
        }
        for name, classes in (("tiny2", 2), ("tiny3", 3))
    }
    | {
        "learned": {
            "kind": "autoregressive",
            "coefficients": [0.0, 0.8],
            "prior": None,
            "dimension": 2,
            "horizon": 6,
            "sequences": {"train": 5_000, "validation": 500, "test": 2_000},
            "seed": 4,
        },
        "spoken": {
            "kind": "arrays",
            "path": "recorded",
            "arrays": {"features": "X", "labels": "y", "lengths": "len", "groups": "speaker"},
            "content": "features",
            "windows": None,
            "horizon": None,
            "missing": "refuse",
            "scaling": "standard",
            "prior": None,
            "split": {"test": 0.3, "validation": 0.2, "taken_from": "train", "by": "group", "swap": False, "seed": 0},
        },
    },
    "tandem": {
        "tiny2": {"evidence": "given"},
        "tiny3": {"evidence": "given"},
        "learned": LEARNED,
        "spoken": LEARNED | {"network": LEARNED["network"] | {"order": 2, "dropout": 0.1}},
    },
    "refinement": {
        "tiny2": REFINEMENT,
        "tiny3": REFINEMENT | {"refine": "never"},
        "learned": REFINEMENT | {"refine": "always", "inputs": "features"},
        "spoken": REFINEMENT | {"refine": "always"},
    },
    "boundary": {
        "tiny2": DECISION
        | {
            "method": "cfl",
            "solver": "auto",
            "points": 200,
            "pieces": None,
            "compression": "cells",
            "statistic": "posterior",
            "regularisation": 1e-8,
            "tolerance": 1e-5,
        },
        "tiny3": DECISION
        | {
            "method": "gp",
            "solver": "collapsed",
            "statistic": "llr",
            "kernel": "rbf",
            "temperature": 3.0,
            "inducing": 30,
            "points": 100,
            "scaling": "share",
            "noise": "local",
            "epochs": 30,
            "batch": 2000,
            "learning_rate": 0.01,
            "confidence": 0.6,
        },
    },
    "evaluation": {"thresholds": 5, "calibration_limit": 0.2, "risk_gap_limit": 0.2},
    "tuning": {"seed": 0, "space": {"learned": "small"}},
    "report": {"trajectories": 5},
    "study": STUDY,
}
SMALL["boundary"]["learned"] = dict(SMALL["boundary"]["tiny2"])
SMALL["boundary"]["spoken"] = SMALL["boundary"]["tiny3"] | {"fit_on": "validation", "confidence": 0.5}
EXACT = ["tiny2", "tiny3"]


def write_recordings(folder: Path) -> None:
    """Three words by forty speakers, of unequal length and far from standard scale; NaN after the ends."""
    random = np.random.default_rng(3)
    folder.mkdir(exist_ok=True)
    labels = np.arange(3_000) % 3
    lengths = random.integers(4, 8, size=3_000)
    features = random.standard_normal((3_000, 7, 3)) + 0.9 * np.eye(3)[labels][:, None]
    features = 100 + 7 * features
    features[np.arange(7) >= lengths[:, None]] = np.nan
    words = np.array(["no", "stop", "yes"])[labels]
    for name, array in (("X", features), ("y", words), ("len", lengths), ("speaker", np.arange(3_000) // 3 % 40)):
        np.save(folder / f"{name}.npy", array)


def stages_run(said: str) -> list[str]:
    """Stages that `dvc repro` ran; `sources` it runs always."""
    ran = [line.split("'")[1] for line in said.splitlines() if line.startswith("Running stage")]
    return [stage for stage in ran if stage != "sources"]


class Project:
    """A copy of the project with small params."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT", "MLFLOW", "GIT"))}
        self.environment["DVC_NO_ANALYTICS"] = "1"
        python = folder / ".venv" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
        python.chmod(0o755)

    @contextmanager
    def warm(self) -> Iterator[None]:
        """From now on stages are forks of a process that has imported what they need; see flows/warm.py."""
        address = self.folder / ".venv" / "warm"
        command = [sys.executable, "-m", "flows.warm", str(address)]
        with subprocess.Popen(command, cwd=self.folder, env=self.environment, stdin=subprocess.PIPE) as server:
            assert server.stdin is not None
            while not address.exists():
                assert server.poll() is None
                time.sleep(0.01)
            self.environment[WARM] = str(address)
            try:
                yield
            finally:
                self.environment.pop(WARM, None)
                server.stdin.close()

    def params(self) -> dict:
        return yaml.safe_load((self.folder / "params.yaml").read_text())

    def write(self, params: dict) -> None:
        plain = json.loads(json.dumps(params))  # YAML would write what occurs twice as a reference
        (self.folder / "params.yaml").write_text(yaml.safe_dump(plain))

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        module, *arguments = command
        start = ["flows", module.removeprefix("flows.")] if module.startswith("flows.") else [module]
        ended = subprocess.run(
            [sys.executable, "-m", *start, *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
        )
        if check:
            assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
        return ended

    def kill_once(self, stage: str, dataset: str, there: Callable[[], Iterable[Path]]) -> None:
        """Start a stage and end it with kill -9 as soon as some files are there."""
        command = [sys.executable, "-m", f"flows.{stage}", dataset]
        running = subprocess.Popen(command, cwd=self.folder, env=self.environment)
        deadline = time.monotonic() + 120
        while not list(there()) and time.monotonic() < deadline:
            time.sleep(0.01)
        running.send_signal(signal.SIGKILL)
        running.wait()

    def results(self) -> dict[str, bytes]:
        """Every result file but the report, whose page says which version made it."""
        found = (self.folder / "data").rglob("*")
        return {
            str(f.relative_to(self.folder)): f.read_bytes() for f in found if f.is_file() and "report" not in f.parts
        }


def copy_project(folder: Path) -> Project:
    tracked = subprocess.check_output(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, text=True).split()
    for name in tracked:
        if (ROOT / name).is_file() and not name.startswith(("tests/", "dvc.lock", ".dvc/")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    project = Project(folder)
    project.write(SMALL)
    write_recordings(folder / "recorded")
    return project


def evidence_store(project: Project, dataset: str, split: str) -> TrajectoryStore:
    """Evidence that rules go by."""
    refined = project.folder / "data" / dataset / "refinement" / f"{split}.zarr"
    return TrajectoryStore(refined if refined.is_dir() else project.folder / "data" / dataset / "tandem" / refined.name)


def champion(project, dataset, alias="champion"):
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{project.folder / 'mlflow.db'}")
    return mlflow.pyfunc.load_model(f"models:/firmbound-{dataset}@{alias}")
