"""Scheduled runs, for real: a server, a cron, a page, and nobody left behind."""

import json
import re
import signal
import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from urllib.parse import urlparse

import psutil
import pytest
import yaml

from flows.warm import WARM
from tests.browser.chromium import MISSING, find_chromium, launched
from tests.flows.served_project import Served, fetch, serve_briefly, wait_for
from tests.flows.small_project import SMALL
from tests.test_architecture import ROOT

# Warnings of Prefect and MLflow are theirs to mend; ours are errors in all other tests.
pytestmark = [pytest.mark.pipeline, pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("serve") / "prefect"


@pytest.fixture(scope="module")
def plain(project):
    """The project without the tests' own warm process, whose forks are no children of whoever asked for them."""
    kept = project.environment.pop(WARM)
    yield project
    project.environment[WARM] = kept


@pytest.fixture(scope="module")
def killed(plain, home):
    """Served, and ended by kill -9 while a run was under way."""
    served = Served(plain.folder, plain.environment, home).await_panel()
    served.await_work()
    served.before = served.processes()
    served.process.kill()
    served.process.wait()
    return served


@pytest.fixture(scope="module")
def served(plain, home, killed):
    """Served again, on what the killed one left."""
    wait_for(lambda: not killed.remaining())
    served = Served(plain.folder, plain.environment, home).await_panel()
    yield served
    served.process.kill()
    served.process.wait()
    wait_for(lambda: not served.remaining())


def test_kill_9_leaves_nobody_behind(killed):
    assert len(killed.before) >= 6  # guard, two servers and a worker, the deployment, its run, DVC
    wait_for(lambda: not killed.remaining(), seconds=60)


def test_what_was_killed_is_told(killed, served):
    crashed = [run for run in served.runs() if run["state"]["type"] == "CRASHED"]
    assert any("left behind" in run["state"]["message"] for run in crashed)


def test_a_scheduled_run_appears_and_completes(served):
    """With some versions of what Prefect needs its scheduler dies without a word: nothing else would show it."""

    def scheduled():
        ended = served.runs(state={"type": {"any_": ["COMPLETED", "FAILED"]}})
        return [run for run in ended if run["auto_scheduled"]]

    run = wait_for(scheduled)[0]
    assert run["state"]["type"] == "COMPLETED", run["state"]["message"]
    assert run["name"].startswith("pipeline 2")
    for dataset in SMALL["datasets"]:
        # Earlier tests may have left another champion, and then the newcomer is judged.
        assert re.search(f"{dataset}: (champion|refused) version", run["state"]["message"])


@pytest.fixture(scope="module")
def chromium():
    program = find_chromium()
    if program is None:
        pytest.skip(MISSING)
    return program


@pytest.mark.parametrize(
    ("of", "path", "words"),
    [
        ("prefect", "/deployments", ["scheduled", "pipeline"]),
        ("prefect", "/runs", ["pipeline 2"]),
        ("mlflow", "/#/models", ["firmbound-tiny2", "champion"]),
    ],
)
def test_the_pages_of_both_servers_show_it(served, chromium, of, path, words):
    """In a real browser: deployment, stage runs and champion are where a person looks for them."""
    with launched(chromium) as browser:
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.goto(getattr(served, of) + path)
        for word in words:
            page.get_by_text(word).first.wait_for(timeout=60_000)


def test_the_page_shows_what_was_found(served, project):
    run = served.runs(state={"type": {"any_": ["COMPLETED"]}})[0]
    found = served.ask("/artifacts/filter", {"artifacts": {"flow_run_id": {"any_": [run["id"]]}}})
    shown = {artifact["key"]: artifact["data"] for artifact in found}
    rows = json.loads(shown["results"])
    for dataset in SMALL["datasets"]:
        metrics = json.loads((project.folder / f"data/{dataset}/evaluation/metrics.json").read_text())
        for row in (row for row in rows if row["data set"] == dataset):
            ours = metrics[f"cost {row['cost']:g}"]
            told = [row[name] for name in ("mean time", "error", "realised risk", "±", "believed risk", "regret")]
            kept = ("mean_time", "error_rate", "realised_risk", "realised_risk_error", "aapr", "regret")
            assert told == [ours.get(name) for name in kept]
        assert re.search(f"{dataset}: (champion|refused) version", shown[dataset])
        assert "data:image/png;base64," in shown[dataset]
        assert f"{served.mlflow}/#/experiments/" in shown[f"mlflow-{dataset}"]
    assert len(rows) == sum(len(SMALL["boundary"][dataset]["costs"]) for dataset in SMALL["datasets"])


def test_the_deployment_is_listed(served):
    found = fetch(f"{served.prefect}/api/deployments/name/pipeline/scheduled")
    (schedule,) = found["schedules"]
    assert schedule["schedule"] | {"cron": "* * * * *", "timezone": "UTC"} == schedule["schedule"]
    assert not found["paused"]


def test_pages_find_their_server(served):
    assert fetch(f"{served.prefect}/ui-settings")["api_url"] == f"{served.prefect}/api"


def test_mlflow_knows_the_champion(served):
    path = "api/2.0/mlflow/registered-models/alias?name=firmbound-tiny2&alias=champion"
    assert int(fetch(f"{served.mlflow}/{path}")["model_version"]["version"]) >= 1


def test_servers_listen_on_the_loopback_address_alone(served):
    listening = {
        connection.laddr
        for process in served.processes()
        for connection in process.net_connections()
        if connection.status == psutil.CONN_LISTEN
    }
    assert {urlparse(served.prefect).port, urlparse(served.mlflow).port} <= {place.port for place in listening}
    assert {place.ip for place in listening} == {"127.0.0.1"}


def test_a_run_reads_params_as_they_are_then(served, project):
    params = project.params()
    project.write(params | {"surprise": 1})
    try:
        failed = served.run()
    finally:
        project.write(params)
    assert failed["state"]["type"] == "FAILED"
    assert failed["state"]["message"].startswith("`surprise` must be a known key")
    assert served.run()["state"]["type"] == "COMPLETED"


def test_a_run_beside_another_is_skipped(served, project):
    """Two at once would write the same folders; who comes second says so and ends."""
    import fcntl

    lock = project.folder / ".dvc" / "tmp" / "firmbound.lock"
    with lock.open("a+") as file:
        wait_for(lambda: _taken(file))
        skipped = served.await_end(served.start_run())
        fcntl.flock(file, fcntl.LOCK_UN)
    assert skipped["state"]["type"] == "CANCELLED"
    assert skipped["state"]["message"].startswith("skipped, since another run is under way: pipeline 2")


def _taken(file):
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def test_ctrl_c_ends_all(served):
    """The last of the tests that are served: also a run that is under way ends."""
    served.await_work()
    before = served.processes()
    served.process.send_signal(signal.SIGINT)
    assert served.process.wait(timeout=120) == 0
    assert served.said.read_text().endswith("firmbound: all ended.\n")
    assert len(before) >= 6
    assert not served.remaining()
    for address in (served.prefect, served.mlflow):
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", urlparse(address).port)) != 0


def write(folder, **schedule):
    params = SMALL | {"schedule": SMALL["schedule"] | schedule}
    (folder / "params.yaml").write_text(yaml.safe_dump(json.loads(json.dumps(params))))


@pytest.mark.parametrize("which", ["prefect_port", "mlflow_port"])
def test_a_port_in_use_is_one_clear_line(tmp_path, which):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        write(tmp_path, **{which: taken.getsockname()[1]})
        ended = serve_briefly(tmp_path, ROOT)
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"firmbound: `schedule.{which}` must be a free port; got")
    assert [file.name for file in tmp_path.iterdir()] == ["params.yaml"]  # nothing was started, nothing made


def test_bad_params_are_one_clear_line(tmp_path):
    write(tmp_path, cron="hourly")
    ended = serve_briefly(tmp_path, ROOT)
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert line.startswith("firmbound: `schedule.cron` must have five fields")
    assert [file.name for file in tmp_path.iterdir()] == ["params.yaml"]


def test_given_servers_are_used_and_all_end_with_one(tmp_path, project):
    """Of three children one is ours to start; when it dies, serving ends and says where to look."""
    write(tmp_path, paused=True)
    environment = project.environment | {
        "PYTHONPATH": str(ROOT),
        "PREFECT_HOME": str(tmp_path / "home"),
        "MLFLOW_TRACKING_URI": "http://127.0.0.1:9",
    }
    command = [sys.executable, "-m", "flows.serve"]
    serving = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    said = [serving.stdout.readline() for _ in range(8)]
    api = project.environment["PREFECT_API_URL"]
    assert any(f"{api.removesuffix('/api')}/deployments " in line for line in said)
    assert any("http://127.0.0.1:9 " in line for line in said)
    assert any("none: paused" in line for line in said)
    children = psutil.Process(serving.pid).children(recursive=True)
    (deployment,) = [child for child in children if "flows.deployment" in child.cmdline()]
    assert not any("prefect" in child.cmdline() or "mlflow" in child.cmdline() for child in children)
    deployment.kill()
    _, complaint = serving.communicate(timeout=120)
    assert serving.returncode == 1
    (line,) = complaint.splitlines()
    assert "the deployment ended with exit code -9; see" in line
    assert "deployment.log" in line
    assert not any(child.is_running() for child in children)
    (found,) = [one for one in fetch(f"{api}/deployments/filter", {}) if one["name"].startswith("scheduled ")]
    assert found["paused"]  # a name of its own: others share the server


def test_times_that_went_by_are_let_go(project):
    api = project.environment["PREFECT_API_URL"]
    flow = fetch(f"{api}/flows/", {"name": "pipeline"})["id"]
    deployment = fetch(f"{api}/deployments/", {"name": "cleared up", "flow_id": flow})["id"]
    times = [datetime.now(UTC) + timedelta(hours=hours) for hours in (-1, 1)]
    _, coming = (
        fetch(f"{api}/deployments/{deployment}/create_flow_run", {"state": scheduled_at(time)})["id"] for time in times
    )
    (project.folder / "ask.py").write_text(
        "import asyncio\n"
        "from uuid import UUID\n"
        "from prefect.client.orchestration import get_client\n"
        "from flows.deployment import clear_up\n"
        "async def main():\n"
        "    async with get_client() as client:\n"
        f"        await clear_up(client, UUID('{deployment}'))\n"
        "asyncio.run(main())\n"
    )
    project.run("ask")
    left = fetch(f"{api}/flow_runs/filter", {"flow_runs": {"deployment_id": {"any_": [deployment]}}})
    assert [run["id"] for run in left] == [coming]


def scheduled_at(time):
    return {"type": "SCHEDULED", "state_details": {"scheduled_time": time.isoformat()}}


def test_stages_of_a_run_have_its_name(project):
    environment = project.environment | {"FIRMBOUND_RUN": "pipeline of a test"}
    command = [sys.executable, "-m", "flows", "boundary", "tiny2"]
    subprocess.run(command, cwd=project.folder, env=environment, check=True, capture_output=True)
    wanted = {"flow_runs": {"tags": {"all_": ["pipeline of a test"]}}}
    (run,) = fetch(f"{project.environment['PREFECT_API_URL']}/flow_runs/filter", wanted)
    costs = project.params()["boundary"]["tiny2"]["costs"]
    assert run["name"] == f"boundary tiny2, costs {min(costs):g} to {max(costs):g}"
    tasks = fetch(
        f"{project.environment['PREFECT_API_URL']}/task_runs/filter", {"flow_runs": {"id": {"any_": [run["id"]]}}}
    )
    assert {task["name"].split()[0] for task in tasks} == {"tiny2"}
