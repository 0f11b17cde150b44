"""The real thing on a small problem: Prefect server, DVC, MLflow and every stage, in a copy of the project."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml

import firmbound
from firmbound.store import TrajectoryStore
from tests.test_architecture import ROOT

# Warnings of Prefect, DVC and MLflow are theirs to mend; ours are errors in all other tests.
pytestmark = [pytest.mark.pipeline, pytest.mark.filterwarnings("default")]

DECISION = {"penalty": 10.0, "costs": [0.1, 0.5], "delay": None, "device": "auto", "seed": 0}
SMALL = {
    "datasets": ["tiny2", "tiny3"],
    "runner": {"kind": "threads", "workers": 2},
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
    },
    "boundary": {
        "tiny2": DECISION
        | {
            "method": "cfl",
            "solver": "auto",
            "points": 200,
            "pieces": None,
            "compression": "cells",
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
    "evaluation": {"thresholds": 5},
    "report": {"trajectories": 5},
}


class Project:
    """A copy of the project with small params."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT", "MLFLOW", "GIT"))}
        self.environment["DVC_NO_ANALYTICS"] = "1"

    def params(self) -> dict:
        return yaml.safe_load((self.folder / "params.yaml").read_text())

    def write(self, params: dict) -> None:
        (self.folder / "params.yaml").write_text(yaml.safe_dump(params))

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        ended = subprocess.run(
            [sys.executable, "-m", *command], cwd=self.folder, env=self.environment, capture_output=True, text=True
        )
        if check:
            assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
        return ended

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
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (folder / ".venv" / "bin" / "python").chmod(0o755)
    project = Project(folder)
    project.write(SMALL)
    return project


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Runs once with `python -m flows.pipeline`, in a folder without git and DVC; then keeps a server for the rest."""
    project = copy_project(tmp_path_factory.mktemp("project"))
    project.first = project.run("flows.pipeline")
    from flows.pipeline import prefect_server

    before = dict(os.environ)
    os.environ["PREFECT_HOME"] = str(project.folder / ".prefect")
    try:
        with prefect_server():
            project.environment["PREFECT_API_URL"] = os.environ["PREFECT_API_URL"]
            project.environment["PREFECT_HOME"] = os.environ["PREFECT_HOME"]
            yield project
    finally:
        os.environ.clear()
        os.environ.update(before)


def champion(project, dataset):
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{project.folder / 'mlflow.db'}")
    return mlflow.pyfunc.load_model(f"models:/firmbound-{dataset}@champion")


def versions(project, dataset):
    """Asked in a new process: MLflow keeps connections open, also to a file that is gone."""
    script = f"""
import json
from flows.tracking import CHAMPION, connect
client = connect()
found = [v.version for v in client.search_model_versions("name = 'firmbound-{dataset}'")]
print(json.dumps([found, client.get_model_version_by_alias('firmbound-{dataset}', CHAMPION).version]))
"""
    (project.folder / "ask.py").write_text(script)
    found, champion_version = json.loads(project.run("ask").stdout.splitlines()[-1])
    assert champion_version == max(found)
    return found


def test_one_command_says_where_everything_is(project):
    said = project.first.stdout
    for dataset in SMALL["datasets"]:
        for place in (f"data/{dataset}/report/index.html", f"data/{dataset}/evaluation/metrics.json"):
            assert place in said
            assert (project.folder / place).is_file()
        assert f"models:/firmbound-{dataset}@champion" in said
    assert (project.folder / ".git").is_dir()
    assert (project.folder / ".dvc").is_dir()
    assert (project.folder / "dvc.lock").is_file()


def test_metrics_hold_what_a_fresh_computation_gives(project):
    for dataset in SMALL["datasets"]:
        folder = project.folder / "data" / dataset
        test = TrajectoryStore(folder / "features" / "test.zarr")
        rule = firmbound.StoppingRule.load(folder / "boundary")
        metrics = json.loads((folder / "evaluation" / "metrics.json").read_text())
        for cost in (0.1, 0.5):
            chosen = rule.decide(test.evidence(), cost=cost)
            found = metrics[f"cost {cost:g}"]
            assert found["mean_time"] == pytest.approx(chosen.time.mean())
            wrong = np.mean([np.mean(chosen.label[test.labels == k] != k) for k in range(rule.problem.classes)])
            assert found["error_rate"] == pytest.approx(wrong)
            assert 0 <= found["regret"] < 0.02
            assert found["static_aapr"] > 0.97 * found["optimal_aapr"]


def test_stage_rules_equal_the_library_called_by_hand(project):
    """Prefect tasks, threads and stores change nothing: bit for bit the rule of a plain call."""
    for dataset, method, options in (
        ("tiny2", "cfl", firmbound.ConvexOptions(points=200, regularisation=1e-8)),
        ("tiny3", "gp", firmbound.ProcessOptions(points=100, inducing=30)),
    ):
        train = TrajectoryStore(project.folder / "data" / dataset / "features" / "train.zarr")
        rule = firmbound.StoppingRule.load(project.folder / "data" / dataset / "boundary")
        plain = firmbound.fit_stopping_rule(train.evidence(), costs=[0.1, 0.5], method=method, options=options)
        assert rule.confidence == SMALL["boundary"][dataset].get("confidence", 0.5)
        for one, other in zip(rule.surfaces, plain.surfaces, strict=True):
            for name, array in one.arrays().items():
                assert np.array_equal(array, other.arrays()[name])


def test_the_champion_decides_like_the_rule(project):
    for dataset in SMALL["datasets"]:
        folder = project.folder / "data" / dataset
        evidence = TrajectoryStore(folder / "features" / "test.zarr").evidence()[:50].astype(np.float64)
        rule = firmbound.StoppingRule.load(folder / "boundary")
        model = champion(project, dataset)
        said = model.predict(evidence, params={"cost": 0.5})
        chosen = rule.decide(evidence, cost=0.5)
        assert said["time"].tolist() == chosen.time.tolist()
        assert said["label"].tolist() == chosen.label.tolist()
        assert said["decided"].all()
        prefix = model.predict(evidence[:, :2], params={"cost": 0.5})
        assert np.array_equal(prefix["decided"], chosen.time <= 2)
        assert np.allclose([sum(p) for p in prefix["posterior"]], 1.0)
        knows_its_doubt = SMALL["boundary"][dataset]["method"] == "gp"
        assert prefix["deviation"][~prefix["decided"]].notna().all() == knows_its_doubt


def test_the_run_is_in_mlflow(project):
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{project.folder / 'mlflow.db'}")
    (experiment,) = [e for e in client.search_experiments() if e.name == "firmbound"]
    run = next(r for r in client.search_runs([experiment.experiment_id]) if r.data.tags["dataset"] == "tiny2")
    assert run.data.params["boundary.costs"] == "[0.1, 0.5]"
    assert run.data.metrics["cost 0.5/regret"] < 0.02
    names = {file.path for file in client.list_artifacts(run.info.run_id, "report/figures")}
    assert "report/figures/speed_accuracy.png" in names


def test_nothing_changed_runs_nothing(project):
    assert "Running stage" not in project.run("dvc", "repro").stdout


def test_metrics_and_plots_are_known_to_dvc(project):
    shown = project.run("dvc", "metrics", "show")
    assert "cost 0.5.error_rate" in shown.stdout
    assert "failed" not in shown.stderr
    project.run("dvc", "plots", "show")
    page = (project.folder / "dvc_plots" / "index.html").read_text()
    assert "speed_accuracy" in page
    assert "data:image" in page or list((project.folder / "dvc_plots").rglob("*.png"))


def test_a_changed_cost_runs_boundary_evaluation_and_report_only(project):
    params = project.params()
    params["boundary"]["tiny2"]["costs"] = [0.1, 0.4]
    project.write(params)
    said = project.run("dvc", "repro").stdout
    ran = [line.split("'")[1] for line in said.splitlines() if line.startswith("Running stage")]
    assert ran == ["boundary@tiny2", "evaluation@tiny2", "report@tiny2", "report@tiny3"]
    assert len(versions(project, "tiny2")) == 2
    assert len(versions(project, "tiny3")) == 1
    model = champion(project, "tiny2")
    assert len(model.predict(np.zeros((1, 1, 2)), params={"cost": 0.4})) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"boundary.costs": [9.0]}, "observe twice"),
        ({"boundary.surprise": 1}, "boundary.tiny2.surprise.*known key"),
        ({"surprise": 1}, "surprise.*known key"),
    ],
)
def test_bad_params_fail_with_one_line_and_lose_nothing(project, change, message):
    params, before = project.params(), project.results()
    broken = json.loads(json.dumps(params))
    ((path, value),) = change.items()
    place = broken["boundary"]["tiny2"] if path.startswith("boundary.") else broken
    place[path.removeprefix("boundary.")] = value
    project.write(broken)
    ended = project.run("dvc", "repro", check=False)
    project.write(params)
    assert ended.returncode != 0
    lines = [line for line in ended.stderr.splitlines() if line.startswith("firmbound:")]
    assert len(lines) == 1
    assert re.search(message, lines[0])
    assert "Traceback" not in ended.stderr
    assert project.results() == before
    assert "Running stage" not in project.run("dvc", "repro").stdout


def test_a_damaged_store_fails_with_its_path(project):
    shard = next((project.folder / "data" / "tiny2" / "features" / "train.zarr" / "evidence" / "c").rglob("0"))
    while shard.is_dir():
        shard = next(shard.iterdir())
    kept = shard.read_bytes()
    shard.unlink()  # a hard link into DVC's cache: unlink, do not write through it
    shard.write_bytes(kept[:-9])
    try:
        ended = project.run("flows.boundary", "tiny2", check=False)
        assert ended.returncode != 0
        assert "train.zarr is damaged" in ended.stderr
        assert "Traceback" not in ended.stderr
    finally:
        shard.write_bytes(kept)


def test_a_killed_stage_leaves_the_old_results_and_a_second_run_finishes(project):
    params, before = project.params(), project.results()
    params["features"]["tiny2"]["sequences"]["train"] = 90_000
    params["features"]["tiny2"]["dimension"] = 64
    project.write(params)
    stage = subprocess.Popen(
        [sys.executable, "-m", "flows.features", "tiny2"], cwd=project.folder, env=project.environment
    )
    partial = project.folder / "data" / "tiny2" / ".features.partial"
    deadline = time.monotonic() + 120
    while not list(partial.rglob("features/c/*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    stage.send_signal(signal.SIGKILL)
    stage.wait()
    assert partial.exists()
    assert {k: v for k, v in project.results().items() if ".partial" not in k} == before
    params["features"]["tiny2"] = SMALL["features"]["tiny2"]
    project.write(params)
    project.run("flows.features", "tiny2")
    assert not partial.exists()
    assert project.results() == before


def test_a_lost_registry_is_made_again(project):
    (project.folder / "mlflow.db").unlink()
    project.run("flows.pipeline_flow")
    for dataset in SMALL["datasets"]:
        assert len(versions(project, dataset)) == 1
    project.run("flows.pipeline_flow")
    assert len(versions(project, "tiny2")) == 1  # what is registered is not registered twice


def test_unknown_data_sets_are_refused(project):
    ended = project.run("flows.features", "nothing", check=False)
    assert ended.returncode != 0
    assert "must be one of ['tiny2', 'tiny3']" in ended.stderr
