"""A project for each file of tests that run the pipeline: each test leaves it as it found it."""

import os

import pytest

from tests.flows.small_project import SMALL, copy_project


@pytest.fixture(scope="module")
def project(request, tmp_path_factory):
    """Runs once with `python -m flows.pipeline`, in a folder without git and DVC; then keeps a server for the rest.

    A file of tests that needs some of the data sets alone names them in DATASETS.
    """
    project = copy_project(tmp_path_factory.mktemp("project"))
    project.write(SMALL | {"datasets": getattr(request.module, "DATASETS", SMALL["datasets"])})
    project.first = project.run("flows.pipeline")
    from flows.pipeline import prefect_server

    before = dict(os.environ)
    os.environ["PREFECT_HOME"] = str(project.folder / ".prefect")
    with prefect_server():
        project.environment["PREFECT_API_URL"] = os.environ["PREFECT_API_URL"]
        project.environment["PREFECT_HOME"] = os.environ["PREFECT_HOME"]
        os.environ.clear()
        os.environ.update(before)
        yield project
