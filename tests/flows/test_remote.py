"""Results on another machine, by a DVC remote: what was pushed is pulled, and nothing is computed again."""

import shutil

import pytest

from tests.flows.small_project import copy_project, stages_run

pytestmark = [pytest.mark.pipeline, pytest.mark.filterwarnings("default")]


def test_what_is_pushed_is_pulled_elsewhere_and_nothing_is_stale(project, tmp_path):
    project.run("dvc", "repro")
    storage = tmp_path / "storage"
    project.run("dvc", "remote", "add", "--local", "--force", "--default", "storage", str(storage))
    project.run("dvc", "push", "-q", "dvc.yaml")
    project.run("dvc", "remote", "remove", "--local", "storage")
    (tmp_path / "elsewhere").mkdir()
    other = copy_project(tmp_path / "elsewhere")
    other.run("dvc", "init", "-q", "--no-scm")
    for name in ("dvc.lock", "params.yaml"):
        shutil.copy(project.folder / name, other.folder / name)
    other.run("dvc", "remote", "add", "--default", "storage", str(storage))
    other.run("dvc", "pull", "-q", "dvc.yaml")
    assert other.results() == {name: kept for name, kept in project.results().items() if name in other.results()}
    for dataset in project.params()["datasets"]:
        for name in ("evaluation/metrics.json", "report/index.html", "boundary/header.json"):
            assert (other.folder / "data" / dataset / name).is_file()
    assert not stages_run(other.run("dvc", "repro").stdout)
