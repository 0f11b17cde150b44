"""The watched pipeline: what its run left in the log and in MLflow, where its server listens, what the doctor says."""

import json
import shutil
import signal
import subprocess
import sys
from collections import Counter
from urllib.parse import urlsplit

import psutil
import pytest

from flows.log_reading import read_log, stage_runs
from flows.pipeline_flow import DVC_LOCKS, mend_locks_of_dvc
from tests.flows.small_project import SMALL

pytestmark = [pytest.mark.pipeline, pytest.mark.filterwarnings("default")]
STAGES = ["features", "tandem", "refinement", "boundary", "evaluation", "report"]


def runs_of(project):
    return stage_runs(read_log(project.folder / ".logs"))


def first_run(project):
    """Stage runs of the pipeline's first run; its own line is the first."""
    runs = runs_of(project)
    assert runs[0].stage == "pipeline"
    return [run for run in runs if run.run == runs[0].run]


def test_every_stage_says_what_it_used(project):
    runs = first_run(project)
    assert runs[0].run is not None
    seen = Counter((run.stage, run.dataset) for run in runs if run.result == "completed")
    assert seen == Counter([("pipeline", None), *((stage, name) for name in SMALL["datasets"] for stage in STAGES)])
    for run in runs:
        assert run.seconds > 0
        assert run.cpu_seconds > 0
        assert run.peak_mb > 50
    whole = next(run for run in runs if run.stage == "pipeline")
    assert whole.seconds > max(run.seconds for run in runs if run.stage != "pipeline")


def test_lines_tell_run_stage_data_set_and_flow_run(project):
    lines = [line for line in read_log(project.folder / ".logs") if line["logger"] == "prefect.flow_runs"]
    assert lines
    for line in lines:
        assert all(line[name] for name in ("stage", "flow_run", "flow_run_id"))
    assert {line["dataset"] for line in lines} >= {*SMALL["datasets"], None}
    boundary = [line for line in lines if line["stage"] == "boundary" and line["dataset"] == "tiny2"]
    assert any("surfaces; at most" in line["message"] for line in boundary)


ASK = """
import json
from flows.stage_tracking import EXPERIMENT, track_stages
from flows.tracking import connect
again = track_stages(), track_stages()
client = connect()
found = client.search_runs([client.get_experiment_by_name(EXPERIMENT).experiment_id], max_results=1000)
rows = [[run.data.tags, run.data.metrics, run.info.status, run.info.end_time - run.info.start_time] for run in found]
print(json.dumps([again, rows]))
"""


def asked(project):
    (project.folder / "ask_stages.py").write_text(ASK)
    return json.loads(project.run("ask_stages").stdout.splitlines()[-1])


def test_mlflow_has_each_stage_run_once(project):
    (_, second), rows = asked(project)
    assert second == 0
    known = {tags["firmbound.stage_run"]: (tags, metrics, status) for tags, metrics, status, _ in rows}
    assert len(known) == len(rows)
    for run in first_run(project):
        tags, metrics, status = known[run.id]
        assert (tags["stage"], tags.get("dataset"), tags["run"]) == (run.stage, run.dataset, run.run)
        assert metrics["seconds"] == pytest.approx(run.seconds)
        assert metrics["peak_mb"] == pytest.approx(run.peak_mb)
        assert status == "FINISHED"


def test_the_pipeline_itself_brought_its_stages_in(project):
    assert f"{len(STAGES) * len(SMALL['datasets'])} stage runs are new in MLflow" in project.first.stderr


def test_a_stage_that_fails_is_in_log_and_mlflow(project):
    before = len(runs_of(project))
    ended = project.run("flows.boundary", "nobody", check=False)
    assert ended.returncode == 1
    (run,) = runs_of(project)[before:]
    assert (run.stage, run.dataset, run.result) == ("boundary", "nobody", "failed")
    assert run.seconds > 0
    assert "`dataset` must be one of" in run.exception
    rows = asked(project)[1]
    ((tags, _, status, _),) = [row for row in rows if row[0]["firmbound.stage_run"] == run.id]
    assert status == "FAILED"
    assert "must be one of" in tags["why"]


HALF = """
import json, os, signal, sys
from mlflow import MlflowClient
from flows.observability import BEGUN, ENDED
from flows.stage_tracking import EXPERIMENT, ID, track_stages
from flows.tracking import connect
about = {"time": "2026-01-01T00:00:00+00:00", "level": "INFO", "stage_run": "half", "stage": "boundary"}
lines = [about | {"message": BEGUN}, about | {"message": ENDED, "result": "completed", "seconds": 3.0, "peak_mb": 80.0}]
if sys.argv[1:] == ["die"]:
    MlflowClient.log_batch = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
new = [track_stages(lines), track_stages(lines)]
client = connect()
found = client.search_runs([client.get_experiment_by_name(EXPERIMENT).experiment_id], f"tags.`{ID}` = 'half'")
rows = [[run.info.status, run.info.end_time - run.info.start_time, run.data.metrics] for run in found]
print(json.dumps([new, rows]))
"""


def test_whoever_is_killed_while_telling_mlflow_leaves_nothing_half_told(project):
    (project.folder / "half_told.py").write_text(HALF)
    assert project.run("half_told", "die", check=False).returncode == -signal.SIGKILL
    new, rows = json.loads(project.run("half_told").stdout.splitlines()[-1])
    assert new == [1, 0]
    assert rows == [["FINISHED", 3_000, {"seconds": 3.0, "peak_mb": 80.0}]]


@pytest.mark.parametrize("left", [b"", b'{"/data": {"read', b"\xff"])
def test_locks_of_dvc_that_a_kill_cut_are_no_hindrance(left, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mend_locks_of_dvc()
    DVC_LOCKS.parent.mkdir(parents=True)
    DVC_LOCKS.write_text("{}")
    mend_locks_of_dvc()
    assert DVC_LOCKS.read_text() == "{}"
    DVC_LOCKS.write_bytes(left)
    mend_locks_of_dvc(patience=0.1)
    assert not DVC_LOCKS.exists()


def test_what_a_stage_used_is_no_result(project):
    """Runs differ in seconds: nothing of that may be in what DVC keeps."""
    assert ".logs" not in (project.folder / "dvc.lock").read_text()
    assert ".logs" not in (project.folder / "dvc.yaml").read_text()
    assert not [name for name in project.results() if "firmbound.jsonl" in name]


def test_the_command_shows_where_time_went(project):
    said = project.run("flows.cli", "logs", "--stages", "--dataset", "tiny2", "--json").stdout
    shown = [json.loads(line) for line in said.splitlines()]
    assert [one["stage"] for one in shown[: len(STAGES)]] == STAGES


def test_the_server_listens_on_loopback_alone(project):
    port = urlsplit(project.environment["PREFECT_API_URL"]).port
    listening = [
        found.laddr.ip
        for found in psutil.net_connections("inet")
        if found.status == psutil.CONN_LISTEN and found.laddr.port == port
    ]
    assert listening
    assert set(listening) == {"127.0.0.1"}


def doctor(project, *checks):
    command = [sys.executable, "-B", "-m", "flows.doctor", *checks]
    return subprocess.run(command, cwd=project.folder, env=project.environment, capture_output=True, text=True)


def test_the_doctor_finds_the_project_well(project):
    said = doctor(project, "results", "mlflow", "prefect", "lock", "repository", "params")
    assert said.returncode == 0, said.stdout
    assert "results of all data sets are whole" in said.stdout
    assert "mlflow.db can be read and is not locked" in said.stdout
    assert "a server answers" in said.stdout


def test_the_doctor_finds_a_store_that_lost_a_file(project):
    store = project.folder / "data" / "tiny2" / "tandem" / "test.zarr"
    lost = next(file for file in sorted(store.rglob("c/*")) if file.is_file())
    shutil.copy(lost, project.folder / "kept")
    lost.unlink()
    try:
        said = doctor(project, "results")
    finally:
        shutil.copy(project.folder / "kept", lost)
    assert said.returncode == 1
    assert "is missing" in said.stdout
    assert "make run" in said.stdout
