import os
import subprocess
import sys

from tests.test_architecture import ROOT


def test_a_stage_started_by_hand_keeps_prefect_inside_the_project(tmp_path):
    """Settings must stand before Prefect is imported: later ones would be ignored without a word."""
    script = (
        "import flows.features; from prefect.settings import get_current_settings as s;"
        "print(s().home); print(s().server.ephemeral.startup_timeout_seconds)"
    )
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT")}
    said = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=clean | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert said.stdout.split() == [str(tmp_path / ".prefect"), "180"]
    kept = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=clean | {"PREFECT_HOME": str(tmp_path / "mine")},
        capture_output=True,
        text=True,
    )
    assert kept.stdout.split()[0] == str(tmp_path / "mine")
