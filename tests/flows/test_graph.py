"""A stage's dependencies, proved: every file of ours that a flow imports is listed in dvc.yaml."""

from pathlib import Path

import pytest
import yaml

from tests.test_architecture import ROOT, imported_modules

PARAMS = [ROOT / "flows" / name for name in ("params.py", "sections.py", "recorded_sections.py")]
# How and where work is done, not what: results are the same to the bit whatever runs them, as test_runners.py shows, so
# a change here makes none of them stale.
HOW = [
    ROOT / "flows" / f"{name}.py"
    for name in ("cluster", "observability", "processes", "progress", "redaction", "runners", "usage")
]
ALL = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
# One script for all data sets, before the first flow.
STAGES = {name: stage for name, stage in ALL.items() if name != "sources"}


def our_file(module: str) -> Path | None:
    """The file of a firmbound or flows module, None for anything else."""
    if module.split(".")[0] not in {"firmbound", "flows"}:
        return None
    base = ROOT / Path(*module.split("."))
    for file in (base.with_suffix(".py"), base / "__init__.py"):
        if file.exists():
            return file
    return None


def reachable(start: Path) -> set[Path]:
    """All our files whose code `start` may run.

    firmbound's own __init__ only looks names up. flows/params.py and the files of sections check those of all
    stages, so they import what all of them use; a stage depends on those files and on the values of its own sections,
    not on what others need. What says how work is done is no part of what it makes.
    """
    seen, todo = set(), [start]
    while todo:
        file = todo.pop()
        if file not in seen and file not in HOW:
            seen.add(file)
            found = [place for module in imported_modules(file) if (place := our_file(module))]
            if file in PARAMS:
                found = [place for place in found if place in PARAMS]
            todo += found
    return {file for file in seen if file.relative_to(ROOT).as_posix() != "firmbound/__init__.py"}


def listed(stage: str) -> list[Path]:
    return [ROOT / dep for dep in STAGES[stage]["do"]["deps"] if "${item}" not in dep]


@pytest.mark.parametrize("stage", STAGES)
def test_every_imported_file_is_a_dependency(stage):
    start = {ROOT / "flows" / f"{stage}.py"}
    if stage == "report":
        start.add(ROOT / "flows" / "served_classifier.py")  # logged as the model's code
    for file in set().union(*map(reachable, start)):
        if file.name != "version.py":  # a new version number alone makes no result stale
            assert any(file == dep or dep in file.parents for dep in listed(stage)), f"{stage} misses {file}"


@pytest.mark.parametrize("stage", STAGES)
def test_every_listed_dependency_exists_and_is_used(stage):
    used = set().union(*(reachable(ROOT / "flows" / f"{name}.py") for name in (stage, "served_classifier")))
    for dep in listed(stage):
        assert dep.exists()
        assert any(dep == file or dep in file.parents for file in used), f"{stage} does not use {dep}"


@pytest.mark.parametrize("stage", STAGES)
def test_stage_flow_folder_and_section_share_a_name(stage):
    body = STAGES[stage]["do"]
    assert body["cmd"] == f".venv/bin/python -m flows {stage} ${{item}}"
    outs = [*body.get("outs", []), *body.get("metrics", []), *body.get("plots", [])]
    for out in outs:
        ((path, options),) = out.items()
        assert path.startswith(f"data/${{item}}/{stage}")
        assert options["persist"] is True  # a failed run must not lose the last results
    whole_file = {"params.yaml": None}
    assert any(name in (stage, f"{stage}.${{item}}", whole_file) for name in body["params"])


def test_a_cost_touches_only_what_comes_after():
    """`boundary.<dataset>` holds the costs: features must not depend on it."""
    assert not any(name.startswith("boundary") for name in STAGES["features"]["do"]["params"])


def test_raw_files_are_looked_at_before_any_stage_and_features_depend_on_them():
    assert ALL["sources"]["always_changed"] is True
    assert "data/sources/${item}.json" in STAGES["features"]["do"]["deps"]


STUDY = yaml.safe_load((ROOT / "study" / "dvc.yaml").read_text())["stages"]


@pytest.mark.parametrize(
    ("body", "script"),
    [(STUDY["baselines"]["do"], "baselines"), (STUDY["experiments"], "experiments"), (STUDY["summary"], "study")],
    ids=["baselines", "experiments", "summary"],
)
def test_the_study_lists_what_it_imports_and_keeps_its_results(body, script):
    deps = [ROOT / dep for dep in body["deps"] if "${item}" not in dep]
    for file in reachable(ROOT / "flows" / f"{script}.py"):
        if file.name != "version.py":
            assert any(file == dep or dep in file.parents for dep in deps), f"{script} misses {file}"
    assert body["wdir"] == ".."
    assert body["cmd"].startswith(f".venv/bin/python -m flows {script}")
    ((_, options),) = body["outs"][0].items()
    assert options["persist"] is True


def test_the_last_stage_of_the_study_waits_for_all_data_sets():
    ((path, _),) = STUDY["baselines"]["do"]["outs"][0].items()
    assert path == "data/baselines/${item}"
    assert "data/baselines" in STUDY["summary"]["deps"]
