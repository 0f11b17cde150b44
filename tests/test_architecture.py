"""Directions that the layout promises, checked on the code itself."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import firmbound

ROOT = Path(__file__).parents[1]
FITTERS = ("firmbound.continuation.convex", "firmbound.continuation.gaussian_process")


def imported_modules(file: Path) -> set[str]:
    """Every module that a file imports, at the top or inside functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def core_files() -> list[Path]:
    return sorted((ROOT / "firmbound").rglob("*.py"))


def uses(file: Path, *modules: str) -> set[str]:
    return {name for name in imported_modules(file) for module in modules if (name + ".").startswith(module + ".")}


@pytest.mark.parametrize("file", core_files(), ids=lambda f: f.stem)
def test_the_core_knows_no_orchestrator_and_no_flow(file):
    assert not uses(file, "prefect", "dvc", "mlflow", "flows", "pydantic", "yaml")


@pytest.mark.parametrize("file", core_files(), ids=lambda f: f.stem)
def test_only_the_report_draws(file):
    if file.parent.name != "report":
        assert not uses(file, "matplotlib", "jinja2", "firmbound.report")


def test_evaluation_and_baselines_know_no_fitter():
    for folder in ("evaluation", "baselines"):
        for file in (ROOT / "firmbound" / folder).glob("*.py"):
            assert not uses(file, "firmbound.continuation", "firmbound.backward_induction", "firmbound.stopping_rule")


def test_the_heart_knows_protocols_and_is_short():
    heart = ROOT / "firmbound" / "backward_induction.py"
    assert uses(heart, "firmbound.continuation") <= {
        "firmbound.continuation.surface",
        *(f"firmbound.continuation.surface.{n}" for n in ("PreparedFit", "RiskSurface", "Statistic", "SurfaceFitter")),
    }
    assert len(heart.read_text().splitlines()) < 150


def test_solvers_know_nothing_of_risks():
    for name in (
        "line_solver",
        "interior_point",
        "working_set",
        "admm",
        "max_affine",
        "solvers",
        "pruning",
        "convex_objective",
        "sparse_process",
        "variational_process",
    ):
        file = ROOT / "firmbound" / "continuation" / f"{name}.py"
        assert not uses(file, "firmbound.costs", "firmbound.posterior", *FITTERS)


def test_evidence_and_stopping_know_nothing_of_each_other():
    stopping = ("continuation", "backward_induction", "stopping_rule", "fitting")
    for file in core_files():
        if file.parent.name == "tandem":
            assert not uses(file, *(f"firmbound.{name}" for name in stopping))
        elif file.stem in stopping or file.parent.name == "continuation":
            assert not uses(file, "firmbound.tandem")


def test_six_files_import_mlflow():
    users = {file.stem for file in (ROOT / "flows").glob("*.py") if uses(file, "mlflow")}
    assert users == {"study_tracking", "stage_tracking", "tracking", "registry", "results", "served_classifier"}


def test_importing_firmbound_is_light():
    heavy = ("torch", "scipy", "zarr", "matplotlib", "clarabel", "prefect", "mlflow")
    script = f"import firmbound, sys; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "[]"


def test_public_names_are_there():
    for name in firmbound.__all__:
        assert getattr(firmbound, name) is not None
    assert set(firmbound.__all__) == set(dir(firmbound))
    with pytest.raises(AttributeError):
        _ = firmbound.nothing_of_the_kind
