"""The registry on small models made by hand: who becomes champion and why, what is served, what is refused."""

import copy
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import firmbound
from firmbound.refinement.choice import Choice
from firmbound.store import StoreDescription, TrajectoryStore, create_store
from firmbound.trajectories import Batch
from flows.assembly import assemble
from flows.params import Params
from flows.promotion import judge, of_store
from flows.registry import fingerprint, promote_by_hand, standings
from flows.results import ensure_registered
from flows.stage import stage_folder
from tests.flows.small_project import SMALL
from tests.test_architecture import ROOT

pytestmark = [pytest.mark.pipeline, pytest.mark.filterwarnings("default")]

DATASET = "tiny2"
PARAMS = Params.model_validate(SMALL)
COSTS = [0.1, 0.5]


def gaussian(sequences, seed):
    return firmbound.datasets.gaussian(2, sequences, 6, seed, dimension=4, separation=0.8)


def write_features(seed=3, sequences=2_000):
    """The test split as the stage `features` leaves it."""
    problem = gaussian(sequences, seed)
    about = StoreDescription(DATASET, "test", (seed,), sequences, 6, 2, 4, (0.5, 0.5), evidence=True)
    with create_store(stage_folder(DATASET, "features") / "test.zarr", about) as writer:
        writer.write(0, Batch(problem.labels, 2, problem.features, problem.evidence))
    return TrajectoryStore(stage_folder(DATASET, "features") / "test.zarr")


def write_model(train, *, costs=COSTS, distortion=1.0, passes=True, honest=True):
    """What refinement, evaluation and report leave: a rule fitted on evidence that is right, or distorted."""
    stage_folder(DATASET, "refinement").mkdir(exist_ok=True)
    choice = Choice(False, "asked for").as_dict()
    (stage_folder(DATASET, "refinement") / "choice.json").write_text(json.dumps(choice))
    test = TrajectoryStore(stage_folder(DATASET, "features") / "test.zarr")
    rule = firmbound.fit_stopping_rule(train.evidence * distortion, costs=costs, options=firmbound.ConvexOptions(100))
    ends = (np.full(len(train.labels), 6), test.lengths)
    classifier = assemble(DATASET, PARAMS, rule, train.evidence, test.evidence(), test.labels, ends)
    folder = stage_folder(DATASET, "evaluation")
    classifier.save(folder / "classifier")
    honesty = {"passes": passes, "error": [0.5], "chance": [0.0], "judged": 1, "limit": 0.1}
    paid = {"cost": 0.1, "aapr": 1.7, "realised_risk": 3.29, "realised_risk_error": 0.02, "risk_gap": 1.59}
    honesty["risk"] = {"passes": honest, "limit": 0.05, "costs": [paid | {"alarm": "overconfident"}]}
    (folder / "calibration.json").write_text(json.dumps(honesty))
    (folder / "metrics.json").write_text(json.dumps({"cost 0.1": {"regret": 0.0}}))
    stage_folder(DATASET, "report").mkdir(exist_ok=True)
    (stage_folder(DATASET, "report") / "index.html").write_text("<p>small</p>")
    return classifier


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    write_features()
    return tmp_path


@pytest.fixture(scope="module")
def train():
    return gaussian(4_000, 1)


def register():
    ensure_registered(DATASET, PARAMS)
    return [(one.version, one.aliases, one.reason) for one in standings()]


def environment():
    """Of a user with the environment active: MLflow starts its server by name."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("MLFLOW")}
    path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", "")])
    return kept | {"PYTHONPATH": str(ROOT), "PATH": path}


def test_only_a_lower_risk_makes_a_champion(project, train):
    write_model(train, distortion=4.0)  # a rule for far surer beliefs: it decides too soon
    assert register() == [("1", ["champion"], "promoted: there was no champion")]
    write_model(train)
    (second, first) = register()
    assert (second[:2], first[:2]) == (("2", ["champion"]), ("1", []))
    assert "lower beyond the standard error" in second[2]
    assert "of version 1 on the same 2000 test sequences" in second[2]
    write_model(train, distortion=2.0)  # no better: no reason to change
    third, second, first = register()
    assert third[:2] == ("3", ["challenger"])
    assert second[:2] == ("2", ["champion"])
    assert third[2].startswith("not promoted: realised risk")
    assert "not lower beyond" in third[2]
    assert register()[0] == third  # asked again: the same answer, and nothing is registered twice
    write_model(train, costs=[0.11, 0.51], distortion=2.0)  # other costs are no way around the judgement
    found = register()
    assert found[0][:2] == ("4", ["challenger"])
    assert found[1][:2] == ("3", [])
    assert "mean over costs 0.11, 0.51: not lower" in found[0][2]
    promote_by_hand(DATASET, "4", "we pay more now")
    assert register()[0] == ("4", ["champion"], "promoted by hand: we pay more now")
    write_model(train, costs=[0.11, 0.51], distortion=2.0, passes=False)
    assert register()[0][:2] == ("4", [])
    assert "not calibrated" in register()[0][2]
    write_model(train, costs=[0.11, 0.51], distortion=2.0, honest=False)
    version, aliases, reason = register()[0]
    assert (version, aliases) == ("4", [])
    assert reason.startswith("not promoted: it pays more than it believes: at a cost of 0.1 it believes 1.700")


def test_what_cannot_be_compared_is_not_promoted(project, train):
    write_model(train, distortion=4.0)
    register()
    good = write_model(train)
    shutil.move(project / "mlartifacts", project / "away")  # artifacts that are out of reach for a while
    (second, _) = register()
    assert second[:2] == ("2", ["challenger"])
    assert "cannot be loaded to compare with" in second[2]
    shutil.copytree(project / "away", project / "mlartifacts", dirs_exist_ok=True)
    assert register()[0][:2] == ("2", ["champion"])
    test = TrajectoryStore(stage_folder(DATASET, "features") / "test.zarr")
    renamed = copy.copy(good)
    renamed.classes_ = np.array(["left", "right"])
    verdict = judge(good, renamed, "version 1", of_store(test))
    assert not verdict.promote
    assert "other classes" in verdict.reason


def test_names_and_costs_make_another_version(project, train):
    good = write_model(train)
    folder = stage_folder(DATASET, "evaluation") / "classifier"
    first = fingerprint(folder)
    good.save(folder)
    assert fingerprint(folder) == first
    good.at_cost(0.1).save(folder)
    assert fingerprint(folder) != first
    good.classes_ = np.array(["left", "right"])
    good.save(folder)
    assert fingerprint(folder) != first


def test_the_difference_is_judged_sequence_by_sequence(project, train):
    """Against sums by hand, for a worse and for a better challenger."""
    test = TrajectoryStore(stage_folder(DATASET, "features") / "test.zarr")
    good, bad = write_model(train), write_model(train, distortion=4.0)
    paid = []
    for model in (good, bad):
        each = [model.rule_.decide(test.evidence(), cost=cost) for cost in COSTS]
        costs = [10.0 * (d.label != test.labels) + c * d.time for c, d in zip(COSTS, each, strict=True)]
        paid.append(np.mean(costs, axis=0))
    difference = paid[1] - paid[0]
    error = difference.std(ddof=1) / np.sqrt(len(difference))
    assert difference.mean() > error
    for challenger, champion, expected in ((good, bad, True), (bad, good, False), (good, good, False)):
        verdict = judge(challenger, champion, "version 7", of_store(test))
        assert verdict.promote is expected
    reason = judge(good, bad, "version 7", of_store(test)).reason
    assert f"risk {paid[0].mean():.4g} against {paid[1].mean():.4g} of version 7" in reason
    assert f"{error:.2g}" in reason


def test_registering_at_once_corrupts_nothing(project, train):
    """Four processes, one fresh registry: one version, one champion, and it loads."""
    write_model(train)
    (project / "params.json").write_text(json.dumps(SMALL))
    script = (
        "import json; from flows.params import Params; from flows.results import log_results\n"
        "params = Params.model_validate(json.load(open('params.json')))\n"
        f"print(log_results('{DATASET}', params))"
    )
    command = [sys.executable, "-c", script]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
        for _ in range(4)
    ]
    ended = [one.communicate(timeout=300) for one in running]
    assert [one.returncode for one in running] == [0] * 4, ended
    assert {said.splitlines()[-1] for said, _ in ended} == {"1"}
    assert register() == [("1", ["champion"], "promoted: there was no champion")]


@pytest.fixture(scope="module")
def served(tmp_path_factory, train):
    """`mlflow models serve` on a registered champion."""
    folder = tmp_path_factory.mktemp("served")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        write_features()
        classifier = write_model(train)
        register()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [sys.executable, "-m", "mlflow", "models", "serve", "-m", f"models:/firmbound-{DATASET}@champion"]
        settings = environment() | {"MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}"}
        with (folder / "server.log").open("w") as log:
            server = subprocess.Popen(
                [*command, "--env-manager", "local", "--port", str(port), "--host", "127.0.0.1"],
                env=settings,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            await_server(f"http://127.0.0.1:{port}/ping", server, folder / "server.log")
            yield f"http://127.0.0.1:{port}/invocations", classifier
        finally:
            if server.poll() is None:
                os.killpg(server.pid, signal.SIGTERM)
                server.wait(timeout=30)


def await_server(address, server, log):
    for _ in range(600):
        assert server.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(address, timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise AssertionError(log.read_text())


def ask(address, body):
    """Status and answer; text is sent as it is."""
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def strictly(text):
    """JSON as the standard has it: NaN and Infinity are not part of it."""
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_a_server_answers_prefixes(served):
    address, classifier = served
    evidence = gaussian(20, 8).evidence.astype(np.float64)
    for t in (1, 3, 6):
        status, answer = ask(address, {"inputs": evidence[:, :t].tolist(), "params": {"cost": 0.1}})
        assert status == 200
        rows = strictly(answer)["predictions"]
        chosen = classifier.at_cost(0.1).decide(evidence)
        assert [row["decided"] for row in rows] == (chosen.time <= t).tolist()
        for row, time_, label in zip(rows, chosen.time, chosen.label, strict=True):
            assert row["time"] == min(time_, t)
            if row["decided"]:
                assert row["label"] == label
            assert sum(row["posterior"]) == pytest.approx(1.0)
            assert row["stopping_risk"] >= 0
            assert (row["continuation_risk"] is None) == (row["time"] == 6)
    status, answer = ask(address, {"inputs": evidence[:, :1].tolist(), "params": {"ended": True}})
    assert status == 200
    assert all(row["decided"] for row in strictly(answer)["predictions"])


NUMBERS = st.one_of(st.floats(), st.integers(-(10**400), 10**400), st.booleans(), st.none(), st.text(max_size=3))
TENSORS = st.recursive(NUMBERS, lambda inner: st.lists(inner, max_size=4), max_leaves=12)
BODIES = st.one_of(
    st.text(max_size=20),
    TENSORS,
    st.fixed_dictionaries({"inputs": TENSORS}),
    st.fixed_dictionaries({"inputs": st.just([[[0.0, 0.0]]]), "params": st.dictionaries(st.text(max_size=4), NUMBERS)}),
    st.fixed_dictionaries(
        {"inputs": st.just([[[0.0, 0.0]]]), "params": st.fixed_dictionaries({"cost": NUMBERS, "ended": NUMBERS})}
    ),
    st.dictionaries(st.sampled_from(["inputs", "instances", "dataframe_split", "x"]), TENSORS, max_size=2),
)


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(body=BODIES)
def test_malformed_requests_are_refused_never_an_error_of_the_server(served, body):
    status, answer = ask(served[0], body)
    assert status == 200 or 400 <= status < 500, (status, answer[:500])


def test_the_server_still_answers(served):
    assert ask(served[0], {"inputs": [[[0.0, 0.0]]]})[0] == 200
