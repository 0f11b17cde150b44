"""The command line as people use it: real processes, files in, lines out, one line for every error."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import firmbound
from flows.cli import app
from tests.test_architecture import ROOT

pytestmark = pytest.mark.filterwarnings("default")
NAMES = np.array(["calm", "wild"])
COMMANDS = ["fit", "decide", "front", "stream", "drift", "register", "promote", "models", "logs", "doctor"]


def series(seed, sequences=500):
    problem = firmbound.datasets.autoregressive((-0.7, 0.7), sequences, 8, seed)
    return problem.features, NAMES[problem.labels]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Train and test files, and a classifier fitted by the command."""
    folder = tmp_path_factory.mktemp("cli")
    for name, seed in (("train", 1), ("test", 2)):
        X, y = series(seed)
        np.savez(folder / f"{name}.npz", X=X, y=y)
    ended = run(folder, "fit", "train.npz", "model", "--order", "1", "--epochs", "8", "--cost", "0.3")
    assert ended.returncode == 0, ended.stderr
    assert "held-out series" in ended.stdout
    assert "refined: " in ended.stderr
    return folder


def run(folder, *arguments, given=None):
    """In a process of its own, with as many threads as we have: more than cores are in each other's way."""
    command = [sys.executable, "-m", "flows.cli", *map(str, arguments)]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": str(folder)}
    environment |= {name: os.environ[name] for name in ("OMP_NUM_THREADS",) if name in os.environ}
    return subprocess.run(command, cwd=folder, env=environment, input=given, capture_output=True, text=True)


def call(folder, *arguments, given=None):
    """In this process, which saves the seconds of starting another."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        ended = CliRunner().invoke(app, [str(part) for part in arguments], input=given)
    if ended.exception is not None and not isinstance(ended.exception, SystemExit):
        raise ended.exception
    ended.returncode = ended.exit_code
    return ended


@pytest.mark.parametrize("command", COMMANDS)
def test_help_explains_by_example(command):
    said = CliRunner().invoke(app, [command, "--help"])
    assert said.exit_code == 0
    assert f"firmbound {command}" in said.output
    assert "Example" in said.output


def test_decisions_are_those_of_the_library(folder):
    ended = run(folder, "decide", "model", "test.npz", "--cost", "0.3", "--out", "decisions.csv")
    assert ended.returncode == 0, ended.stderr
    rows = list(csv.DictReader((folder / "decisions.csv").read_text().splitlines()))
    chosen = firmbound.EarlyClassifier.load(folder / "model").decide(series(2)[0])
    assert [int(row["time"]) for row in rows] == chosen.time.tolist()
    assert [row["label"] for row in rows] == chosen.label.tolist()
    assert "% wrong" in ended.stderr
    assert not [file for file in folder.iterdir() if file.name.startswith(".")]


def test_error_rates_and_times_can_be_asked_for(folder):
    slow = call(folder, "decide", "model", "test.npz", "--time", "8").stderr
    quick = call(folder, "decide", "model", "test.npz", "--time", "1").stderr
    mean = [float(said.split(":")[1].split()[0]) for said in (slow, quick)]
    assert mean[0] > mean[1]
    ended = call(folder, "decide", "model", "test.npz", "--error", "0.0001")
    assert ended.returncode == 2
    assert "No rule errs in at most 0.0001" in ended.stderr


def test_the_front_is_that_of_the_library(folder):
    ended = call(folder, "front", "model", "test.npz", "--json")
    points = firmbound.EarlyClassifier.load(folder / "model").front(*series(2))
    assert [row["error"] for row in json.loads(ended.stdout)] == [point.error for point in points]
    assert "observations" in call(folder, "front", "model", "test.npz").stdout


def test_a_front_that_pays_more_than_it_believes_says_so(folder):
    X, y = series(2)
    np.savez(folder / "swapped.npz", X=X, y=NAMES[::-1][np.searchsorted(NAMES, y)])
    for shown in ([], ["--json"]):
        ended = call(folder, "front", "model", "swapped.npz", *shown)
        assert ended.returncode == 0
        assert "overconfident: at a cost of 0.3 it believes" in ended.stderr
    point = next(row for row in json.loads(ended.stdout) if row["cost"] == 0.3)
    assert point["alarm"] == "overconfident"
    assert (
        f"believes {point['believed_risk']:.3f} and pays {point['risk']:.3f} ± {point['risk_error']:.3f}"
        in ended.stderr
    )


def test_streams_of_lines_decide_as_the_batch_does(folder):
    X, _ = series(2)
    chosen = firmbound.EarlyClassifier.load(folder / "model").decide(X[:20])
    lines = [json.dumps({"id": str(i), "x": X[i, t].tolist()}) for t in range(8) for i in range(20)]
    ended = run(folder, "stream", "model", given="\n".join(lines))
    assert ended.returncode == 0, ended.stderr
    told = {row["id"]: row for row in map(json.loads, ended.stdout.splitlines())}
    assert len(told) == 20
    for i in range(20):
        assert (told[str(i)]["time"], told[str(i)]["label"]) == (chosen.time[i], chosen.label[i])
    order = [int(row["time"]) for row in map(json.loads, ended.stdout.splitlines())]
    assert order == sorted(order)  # each is told as soon as it is made


def test_a_decision_is_told_before_the_next_line_is_read(folder):
    X, _ = series(2)
    command = [sys.executable, "-u", "-m", "flows.cli", "stream", "model", "--cost", "3.75"]
    running = subprocess.Popen(
        command, cwd=folder, env={"PYTHONPATH": str(ROOT)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with running:
        running.stdin.write(json.dumps({"id": "a", "x": X[0, 0].tolist()}) + "\n")
        running.stdin.flush()
        assert json.loads(running.stdout.readline())["decided"] is True  # stdin is still open
        running.stdin.close()


def test_a_malformed_line_is_reported_and_harms_no_one(folder):
    X, _ = series(2)
    good = json.dumps({"id": "a", "x": X[0, 0].tolist()})
    bad = ["nonsense", "[1]", '{"id": "a"}', '{"id": "a", "x": [1]}', '{"id": "a", "x": ["one", 2]}', '{"x": 3}']
    bad += ['{"id": "a", "x": [1, null]}', '{"id": [1], "x": [1, 2]}', '{"id": "a", "end": 3}', '{"id": "a", "z": 1}']
    ended = call(folder, "stream", "model", given="\n".join([*bad, good, '{"id": "a", "end": true}', ""]))
    assert ended.returncode == 1
    told = [json.loads(line) for line in ended.stderr.splitlines()]
    assert [line["line"] for line in told] == list(range(1, len(bad) + 1))
    (decision,) = [json.loads(line) for line in ended.stdout.splitlines()]
    assert decision["decided"]
    assert decision["time"] == 1


def test_an_id_may_be_used_again_after_its_end(folder):
    X, _ = series(2)
    one = [json.dumps({"id": "a", "x": x.tolist()}) for x in X[0]]
    end = '{"id": "a", "end": true}'
    ended = call(folder, "stream", "model", given="\n".join([*one, end, *one]))
    assert len(ended.stdout.splitlines()) == 2


def test_drift_is_an_exit_code(folder):
    X, y = series(3)
    np.savez(folder / "same.npz", X=X, y=y)
    np.savez(folder / "other.npz", X=X * 0.2, y=y)
    assert call(folder, "drift", "model", "same.npz").returncode == 0
    ended = call(folder, "drift", "model", "other.npz")
    assert ended.returncode == 3
    assert "yes" in ended.stdout


@pytest.mark.pipeline
def test_a_classifier_is_registered_looked_up_and_used(folder):
    assert "no model" in call(folder, "models").stdout
    ended = call(folder, "register", "model", "engines")
    assert "firmbound-engines version 1: champion" in ended.stdout, ended.stderr
    said = json.loads(call(folder, "models", "--json").stdout)
    assert [(one["name"], one["version"], one["aliases"]) for one in said] == [("firmbound-engines", "1", ["champion"])]
    ended = call(folder, "decide", "models:/firmbound-engines@champion", "test.npz")
    assert ended.stdout == call(folder, "decide", "model", "test.npz").stdout
    call(folder, "fit", "train.npz", "worse", "--epochs", "1", "--cost", "0.3", "--refine", "never")
    ended = call(folder, "register", "worse", "engines", "--test", "test.npz")
    assert "version 2: challenger (not promoted: realised risk" in ended.stdout
    ended = call(folder, "decide", "models:/firmbound-engines@nobody", "test.npz")
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fit", "train.npz", "model"), "must not exist yet"),
        (("fit", "train.npz", "new", "--cost", "-1"), "costs"),
        (("fit", "nothing.npz", "new"), "does not exist"),
        (("fit", "unlabelled.npz", "new"), "hold labels"),
        (("fit", "text.npz", "new"), "be readable"),
        (("fit", "objects.npz", "new"), "be readable"),
        (("fit", "odd.npz", "new"), "hold X"),
        (("decide", "nothing", "test.npz"), "no model"),
        (("decide", "model", "test.npz", "--cost", "77"), "cost"),
        (("decide", "model", "test.npz", "--cost", "0.3", "--time", "3"), "one at a time"),
        (("decide", "model", "wide.npz"), "2 numbers an observation"),
        (("decide", "model", "test.npz", "--out", "no/such/folder.csv"), "No such file"),
        (("front", "model", "unlabelled.npz"), "hold labels"),
        (("front", "model", "strange.npz"), "hold labels of"),
        (("drift", "model", "few.npz"), "10 at least"),
        (("register", "model", "../engines"), "name"),
        (("register", "nothing", "engines"), "no model"),
    ],
)
def test_every_error_is_one_line_and_leaves_no_file(folder, arguments, message, monkeypatch):
    X, y = series(2)
    np.savez(folder / "unlabelled.npz", X=X)
    np.savez(folder / "objects.npz", X=X, y=np.array(["a", 1], dtype=object))
    np.savez(folder / "odd.npz", Z=X)
    np.savez(folder / "wide.npz", X=np.ones((3, 8, 5)))
    np.savez(folder / "strange.npz", X=X, y=np.full(len(y), "unheard of"))
    np.savez(folder / "few.npz", X=X[:3])
    (folder / "text.npz").write_text("this is no archive")
    monkeypatch.chdir(folder)
    before = {file: file.stat().st_mtime_ns for file in sorted(Path().rglob("*"))}
    ended = CliRunner().invoke(app, [str(part) for part in arguments])
    assert ended.exit_code == 2, ended.output
    (line,) = [line for line in ended.stderr.splitlines() if line.strip()]
    assert line.startswith("firmbound: ")
    assert message in line
    assert {file: file.stat().st_mtime_ns for file in sorted(Path().rglob("*"))} == before
