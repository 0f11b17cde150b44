"""The same stages on threads, processes and a Dask cluster: equal results to the bit, heavy tasks where GPUs are."""

import json
import shutil
import socket
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import contextmanager

import pytest
import yaml

from firmbound.errors import ParameterError
from flows.cluster import slot_of
from flows.params import Runner, read_params
from tests.flows.small_project import SMALL

# Params travel, which are some 40 KB; the evidence of one of these data sets would take five times as much.
LARGEST_MESSAGE = 100_000
STAGES = ("features", "tandem", "refinement", "boundary", "evaluation")


@pytest.mark.parametrize(
    ("tags", "declared", "slot"),
    [
        ({"gpu"}, {"GPU", "CPU"}, {"GPU": 1}),
        (set(), {"GPU", "CPU"}, {"CPU": 1}),
        ({"gpu"}, {"CPU"}, {"CPU": 1}),
        ({"gpu"}, set(), {}),
        (set(), {"GPU"}, {}),
    ],
)
def test_heavy_tasks_take_a_gpu_where_there_is_one(tags, declared, slot):
    assert slot_of(tags, declared) == slot


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "cluster"},
        {"kind": "threads", "address": "tcp://127.0.0.1:8786"},
        {"kind": "processes", "gpus": 1},
        {"kind": "dask", "address": "8786"},
        {"kind": "dask", "gpus": 3},
        {"workers": 0},
    ],
    ids=str,
)
def test_a_runner_that_cannot_be_is_one_clear_error(wrong, tmp_path):
    params = json.loads(json.dumps(SMALL))
    params["runner"] |= wrong
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    with pytest.raises(ParameterError, match="runner"):
        read_params(tmp_path / "params.yaml")


def test_params_name_all_of_a_runner():
    assert set(Runner.model_fields) == set(SMALL["runner"])


@contextmanager
def cluster_by_hand(folder, environment):
    """A scheduler and two workers as a person starts them, one with a GPU slot. Yields address and processes."""
    about = folder / "scheduler.json"
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"]
    started = [
        subprocess.Popen([*command, "--no-dashboard", "--scheduler-file", str(about)], cwd=folder, env=environment)
    ]
    try:
        for name, slots in (("heavy", "GPU=1"), ("light", "CPU=1")):
            worker = [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(about)]
            options = ["--nthreads", "1", "--name", name, "--resources", slots, "--preload", "flows.cluster"]
            started.append(
                subprocess.Popen(
                    [*worker, *options, "--no-dashboard", "--host", "127.0.0.1"], cwd=folder, env=environment
                )
            )
        deadline = time.monotonic() + 60
        while not about.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        yield json.loads(about.read_text())["address"], started
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait(timeout=30)


def run_stages(project, datasets):
    for dataset in datasets:
        for stage in STAGES:
            project.run(f"flows.{stage}", dataset)


def results_of(project, datasets):
    return {
        name: content
        for name, content in project.results().items()
        if name.split("/")[1] in datasets and name.split("/")[2] in STAGES
    }


@pytest.fixture
def with_runner(project):
    """Sets the runner for a while."""
    before = project.params()

    def choose(**runner):
        project.write(before | {"runner": before["runner"] | runner})

    yield choose
    project.write(before)


@pytest.mark.pipeline
def test_a_cluster_that_does_not_answer_is_one_clear_error_and_nothing_is_lost(project, with_runner):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    before = project.results()
    with_runner(kind="dask", address=address)
    ended = project.run("flows.boundary", "tiny2", check=False)
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert f"`runner.address` must be that of a Dask scheduler that answers; got {address}" in ended.stderr
    assert project.results() == before


@pytest.mark.pipeline
def test_processes_give_the_same_results_to_the_bit(project, with_runner):
    datasets = ["learned"]
    wanted = results_of(project, datasets)
    with_runner(kind="processes")
    for dataset in datasets:
        shutil.rmtree(project.folder / "data" / dataset)
    run_stages(project, datasets)
    assert results_of(project, datasets) == wanted


@pytest.mark.pipeline
def test_a_cluster_started_by_hand_gives_the_same_results_and_heavy_tasks_go_to_its_gpu(project, with_runner):
    from distributed import Client

    datasets = ["learned", "spoken"]
    wanted = results_of(project, datasets)
    with cluster_by_hand(project.folder, project.environment) as (address, _):
        with_runner(kind="dask", address=address)
        with Client(address, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)
            for dataset in datasets:
                shutil.rmtree(project.folder / "data" / dataset)
            begin, tell = note_taker()
            client.run_on_scheduler(begin)
            run_stages(project, datasets)
            done = client.run_on_scheduler(tell)
    assert results_of(project, datasets) == wanted
    places = defaultdict(set)
    for key, worker, size in done:
        places[key.rsplit("-", 1)[0].strip("_")].add(worker)
        assert size < LARGEST_MESSAGE, key  # paths travel, arrays do not
    assert places["fit"] == places["prepare"] == places["learn"] == {"heavy"}
    assert places["write_shard"] == places["evidence_shard"] == places["rows_of_rule"] == {"light"}


def note_taker():
    """Two functions for a scheduler: begin to note who finishes what, and hand the notes over.

    They are made here, so that they travel as they are: a scheduler started by hand knows nothing of tests.
    """

    def begin(dask_scheduler):
        from distributed.diagnostics.plugin import SchedulerPlugin
        from distributed.protocol.pickle import dumps

        class Notes(SchedulerPlugin):
            def __init__(self):
                self.done = []

            def transition(self, key, start, finish, *args, worker=None, **kwargs):
                if start == "processing" and finish == "memory":
                    size = len(dumps(dask_scheduler.tasks[key].run_spec))
                    self.done.append((str(key), dask_scheduler.workers[worker].name, size))

        dask_scheduler.add_plugin(Notes(), name="notes")

    def tell(dask_scheduler):
        return dask_scheduler.plugins["notes"].done

    return begin, tell
