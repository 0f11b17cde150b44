"""One project for all tests that run the pipeline: each test leaves it as it found it."""

import os

import pytest

from tests.flows.small_project import copy_project


@pytest.fixture(scope="session")
def project(tmp_path_factory):
    """Runs once with `python -m flows.pipeline`, in a folder without git and DVC; then keeps a server for the rest."""
    project = copy_project(tmp_path_factory.mktemp("project"))
    project.first = project.run("flows.pipeline")
    from flows.servers import prefect_server

    before = dict(os.environ)
    os.environ["PREFECT_HOME"] = str(project.folder / ".prefect")
    with prefect_server():
        project.environment["PREFECT_API_URL"] = os.environ["PREFECT_API_URL"]
        project.environment["PREFECT_HOME"] = os.environ["PREFECT_HOME"]
        os.environ.clear()
        os.environ.update(before)
        with project.warm():
            yield project
