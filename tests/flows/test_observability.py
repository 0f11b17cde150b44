"""The log of stages: whole lines from many processes, files of limited size, and what each stage used."""

import json
import logging
import os
import subprocess
import sys
from datetime import datetime, timedelta

import pytest
from typer.testing import CliRunner

from firmbound.errors import InvalidInput
from flows import observability
from flows.cli import app
from flows.log_reading import Wish, read_log, stage_runs, wanted_lines
from flows.observability import NAME, JsonLines, append, as_line
from flows.servers import prefect_server
from tests.test_architecture import ROOT

FIELDS = {"time", "level", "message", "run", "stage", "dataset", "t", "task", "process", "exception", "flow_run"}
# A stage of its own, with a flow whose tasks are named by time step.
STAGE = """
import sys, warnings
from prefect import flow, get_run_logger
from flows.observability import observed
from flows.runners import work_task
from flows.stage import keep_quiet_about_known_errors, reports_failure, run_flow
from firmbound.errors import FirmboundError

def fit(how):
    get_run_logger().warning("at work, %s", "hunter2-hunter2")
    warnings.warn("from a library")
    if how == "task":
        raise FirmboundError("no task for hunter2-hunter2")

@flow(name="boundary", flow_run_name="boundary tiny")
@reports_failure
def boundary_flow(how):
    work_task(fit, "tiny fit t=7").submit(how).result()
    if how == "error":
        raise FirmboundError("no rule for hunter2-hunter2")
    if how == "slip":
        raise ZeroDivisionError("https://me:pw12345@host")

with observed("boundary", "tiny"):
    import logging
    logging.captureWarnings(True)
    keep_quiet_about_known_errors()
    run_flow(boundary_flow, sys.argv[1])
"""


HOW = ("well", "error", "task", "slip")


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What four runs of that stage left: one ends well, one with an error of ours, one in a task, one with a slip."""
    folder = tmp_path_factory.mktemp("stage")
    (folder / "stage.py").write_text(STAGE)
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("PREFECT", "FIRMBOUND"))]:
            patch.delenv(name)
        patch.setenv("PREFECT_HOME", str(folder / ".prefect"))
        patch.setenv("PYTHONPATH", str(ROOT))
        with prefect_server():
            patch.setenv("MY_TOKEN", "hunter2-hunter2")
            patch.setenv("FIRMBOUND_RUN", "run-1")
            command = [sys.executable, "stage.py"]
            ended = {how: subprocess.run([*command, how], cwd=folder, capture_output=True, text=True) for how in HOW}
    return folder, ended


@pytest.mark.pipeline
class TestStage:
    def test_lines_name_run_stage_data_set_and_time_step(self, told):
        folder, ended = told
        assert ended["well"].returncode == 0, ended["well"].stderr
        lines = list(read_log(folder / ".logs"))
        for line in lines:
            assert set(line) >= FIELDS
            assert (line["run"], line["stage"], line["dataset"]) == ("run-1", "boundary", "tiny")
            assert datetime.fromisoformat(line["time"]).utcoffset() == timedelta(0)
        at_work = [line for line in lines if line["message"].startswith("at work")]
        assert [(line["t"], line["task"], line["level"]) for line in at_work] == 4 * [(7, "tiny fit t=7", "WARNING")]
        assert {line["flow_run"] for line in at_work} == {"boundary tiny"}
        assert len({line["flow_run_id"] for line in at_work}) == 4
        caught = [line for line in lines if "from a library" in line["message"]]
        assert [(line["t"], line["logger"]) for line in caught] == 4 * [(7, "py.warnings")]
        assert [line["t"] for line in lines if line["logger"] == "prefect.flow_runs"][:1] == [None]

    def test_people_see_what_they_saw_before(self, told):
        _, ended = told
        assert "Flow run 'boundary tiny' - Finished in state Completed()" in ended["well"].stderr
        assert "stage ended" not in ended["well"].stderr
        assert "firmbound: boundary failed: no rule for [hidden]" in ended["error"].stderr.splitlines()
        assert "firmbound: boundary failed: no task for [hidden]" in ended["task"].stderr.splitlines()
        assert "Traceback" not in ended["error"].stderr

    def test_each_run_ends_with_what_it_used_also_if_it_failed(self, told):
        folder, ended = told
        assert [ended[how].returncode for how in HOW] == [0, 1, 1, 1]
        runs = stage_runs(read_log(folder / ".logs"))
        assert [run.result for run in runs] == ["completed", "failed", "failed", "failed"]
        for run in runs:
            assert run.seconds > 0
            assert run.cpu_seconds > 0
            assert 30 < run.peak_mb < 3000
        assert runs[1].exception == "firmbound: boundary failed: no rule for [hidden]"
        assert "ZeroDivisionError: https://[hidden]@host" in runs[3].exception

    def test_no_secret_is_on_the_console_or_in_the_file(self, told):
        folder, ended = told
        for said in (*(one.stderr + one.stdout for one in ended.values()), (folder / ".logs" / NAME).read_text()):
            assert "hunter2" not in said
            assert "pw12345" not in said
        assert "[hidden]" in (folder / ".logs" / NAME).read_text()

    def test_no_secret_is_kept_by_prefect(self, told):
        """States and logs lie in the database of its server."""
        folder, _ = told
        kept = b"".join(file.read_bytes() for file in (folder / ".prefect").glob("prefect.db*"))
        assert b"boundary tiny" in kept
        assert b"hunter2" not in kept
        assert b"pw12345" not in kept


def test_many_writers_never_mix_their_lines(tmp_path):
    script = (
        "import sys, logging; from pathlib import Path; from flows.observability import JsonLines\n"
        "log = logging.Logger('w'); log.addHandler(JsonLines(Path('.logs')))\n"
        "for i in range(400): log.warning('%s %d %s', sys.argv[1], i, 'x' * 5000)"
    )
    environment = dict(os.environ) | {"PYTHONPATH": str(ROOT)}
    writers = [
        subprocess.Popen([sys.executable, "-c", script, str(number)], cwd=tmp_path, env=environment)
        for number in range(4)
    ]
    assert [writer.wait() for writer in writers] == [0, 0, 0, 0]
    told = [json.loads(line)["message"].split() for line in (tmp_path / ".logs" / NAME).read_text().splitlines()]
    for number in range(4):
        assert [int(i) for who, i, _ in told if who == str(number)] == list(range(400))


def test_files_are_of_limited_size_and_the_oldest_goes(tmp_path, monkeypatch):
    monkeypatch.setattr(observability, "LARGEST_FILE", 1000)
    monkeypatch.setattr(observability, "OLD_FILES", 2)
    for number in range(100):
        line = {"time": "", "level": "INFO", "message": f"{number}", "run": "x" * 50}
        append(tmp_path, json.dumps(line) + "\n")
    files = sorted(file.name for file in tmp_path.iterdir())
    assert files == ["firmbound.1.jsonl", "firmbound.2.jsonl", NAME] or files[:2] == [
        "firmbound.1.jsonl",
        "firmbound.2.jsonl",
    ]
    assert all(file.stat().st_size < 1200 for file in tmp_path.iterdir())
    kept = [int(line["message"]) for line in read_log(tmp_path)]
    assert kept == list(range(kept[0], 100))
    assert 0 < kept[0] < 90


def test_a_log_that_cannot_be_written_is_told_once_and_stops_nobody(tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    log = logging.Logger("w")
    log.addHandler(JsonLines(tmp_path / "file"))
    log.warning("one")
    log.warning("two")
    assert capsys.readouterr().err.count("cannot be written") == 1


def test_an_exception_is_one_field_of_one_line():
    try:
        raise ValueError("two\nlines")
    except ValueError:
        record = logging.makeLogRecord({"msg": "failed", "exc_info": sys.exc_info(), "levelname": "ERROR"})
    line = as_line(record)
    assert line.count("\n") == 1
    assert json.loads(line)["exception"].endswith("ValueError: two\nlines")


def test_what_nobody_reads_is_cut():
    found = json.loads(as_line(logging.makeLogRecord({"msg": "a" * 10**6 + "end"})))
    assert len(found["message"]) < 30_000
    assert found["message"].endswith("end")


def line_of(message="said", **fields):
    known = {"time": "2026-01-01T00:00:00.000+00:00", "level": "INFO", "message": message}
    return dict.fromkeys(FIELDS) | {"flow_run_id": None} | known | fields


LINES = [
    line_of("stage begun", run="a", stage="boundary", dataset="gauss2", stage_run="1"),
    line_of("fit", run="a", stage="boundary", dataset="gauss2", t=7, level="WARNING"),
    line_of("stage begun", run="b", stage="report", dataset="gauss3", stage_run="2"),
    line_of(
        "stage ended",
        run="b",
        stage="report",
        dataset="gauss3",
        stage_run="2",
        result="failed",
        level="ERROR",
        seconds=2.5,
        cpu_seconds=2.0,
        peak_mb=100.0,
        child_peak_mb=0.0,
        exception="it broke",
    ),
]


@pytest.fixture
def log(tmp_path, monkeypatch):
    """A log of four lines, and one that a full disk has cut."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    for line in LINES:
        append(tmp_path / ".logs", json.dumps(line) + "\n")
    append(tmp_path / ".logs", '{"time": "2026-01')
    return tmp_path


@pytest.mark.parametrize(
    ("wish", "places"),
    [
        (Wish(), [0, 1, 2, 3]),
        (Wish(run="a"), [0, 1]),
        (Wish(run="last"), [2, 3]),
        (Wish(stage="report"), [2, 3]),
        (Wish(dataset="gauss2"), [0, 1]),
        (Wish(level="warning"), [1, 3]),
        (Wish(t=7), [1]),
        (Wish(run="b", t=7), []),
    ],
)
def test_lines_can_be_asked_for(log, wish, places):
    assert wanted_lines(read_log(log / ".logs"), wish) == [LINES[place] for place in places]


def test_a_level_that_is_none_is_refused():
    with pytest.raises(InvalidInput, match="level` must be one of debug"):
        Wish(level="loud")


def test_a_stage_without_an_end_is_shown_as_such():
    runs = stage_runs(LINES)
    assert [(run.stage, run.result, run.seconds) for run in runs] == [
        ("boundary", "no end", None),
        ("report", "failed", 2.5),
    ]


class TestCommand:
    def test_lines_as_text_and_as_json(self, log):
        said = CliRunner().invoke(app, ["logs", "--last", "2"]).output
        assert said.splitlines()[0].endswith("report gauss3: stage begun")
        assert "failed after 2.5 s, 2.0 CPU s, 100 MB" in said
        assert "    it broke" in said
        said = CliRunner().invoke(app, ["logs", "--json", "--t", "7"]).output
        assert [json.loads(line) for line in said.splitlines()] == [LINES[1]]

    def test_where_time_went(self, log):
        said = CliRunner().invoke(app, ["logs", "--stages"]).output
        rows = [line for line in said.splitlines() if "boundary" in line or "report" in line]
        assert "no end" in rows[0]
        for shown in ("gauss3", "2.5", "2.0", "100.0", "failed"):
            assert shown in rows[1]
        (one,) = CliRunner().invoke(app, ["logs", "--stages", "--run", "b", "--json"]).output.splitlines()
        assert json.loads(one)["seconds"] == 2.5

    def test_an_empty_log_and_a_wrong_level(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert "make run" in CliRunner().invoke(app, ["logs"]).output
        ended = CliRunner().invoke(app, ["logs", "--level", "loud"])
        assert ended.exit_code == 2
        assert len(ended.stderr.splitlines()) == 1
        assert not list(tmp_path.iterdir())
