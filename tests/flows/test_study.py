"""The study through real DVC and Prefect: one command, a kill in between, results as undisturbed, one table."""

import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
import zarr

from tests.flows.small_project import NETWORKS, SMALL, SPACE, copy_project, stages_run

pytestmark = [pytest.mark.pipeline, pytest.mark.filterwarnings("default")]
GIVEN = {
    "static",
    "firmbound-cfl",
    "firmbound-gp",
    "firmbound-refined",
    "firmbound-memory",
    "tapering",
    "fixed",
    "random",
}
LEARNED = {"gru-threshold", "gru-firmbound", "lstm-s", "earliest", "posterior-threshold", "static-in-hindsight"}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """After one `make study` in a fresh folder."""
    project = copy_project(tmp_path_factory.mktemp("study"))
    project.write(SMALL | {"datasets": ["tiny2", "spoken"]})
    (project.folder / "params" / "search").mkdir(parents=True, exist_ok=True)
    (project.folder / "params" / "search" / "tiny.yaml").write_text(yaml.safe_dump(SPACE))
    project.environment["PREFECT_HOME"] = str(project.folder / ".prefect")
    project.first = project.run("flows.pipeline", "study")
    return project


def decisions(project):
    """All that does not tell seconds."""
    found = {}
    for group in sorted((project.folder / "data" / "baselines").glob("*/*/*.zarr")):
        opened = zarr.open_group(str(group), mode="r")
        for name in opened.array_keys():
            if name not in ("alone", "numbers", "seconds"):
                found[f"{group.parent.parent.name}/{group.parent.name}/{group.name}/{name}"] = np.asarray(opened[name])
    return found


def test_one_command_runs_what_it_needs_and_says_where_things_are(project):
    said = project.first.stdout
    ran = {stage.split("@")[0] for stage in stages_run(said)}
    study = {f"study/dvc.yaml:{stage}" for stage in ("baselines", "experiments", "summary")}
    assert ran == {"features"} | study
    assert "data/study/index.html" in said
    assert "who pays less, beyond chance, than firmbound-cfl" in said


def test_the_table_has_every_way_of_every_method(project):
    table = pq.read_table(project.folder / "data" / "study" / "table.parquet").to_pylist()
    assert {row["method"] for row in table} >= GIVEN | LEARNED | {"optimum"}
    times = {}
    for row in table:
        method = (row["dataset"], row["repeat"], row["method"])
        if method not in times:
            group = project.folder / "data" / "baselines" / method[0] / str(method[1]) / f"{method[2]}.zarr"
            opened = zarr.open_group(str(group), mode="r")
            means = np.asarray(opened["time"]).mean(axis=1)
            times[method] = sorted(zip(np.asarray(opened["settings"]).tolist(), means.tolist(), strict=True))
        assert any(s == row["setting"] and t == pytest.approx(row["mean_time"]) for s, t in times[method])
    chosen = [(r["dataset"], r["repeat"], r["method"], r["cost"]) for r in table if r["chosen"]]
    assert len(chosen) == len(set(chosen))


def test_sequences_of_unequal_length_are_decided_within_them(project):
    for repeat in (0, 1):
        folder = project.folder / "data" / "baselines" / "spoken" / str(repeat)
        ends = np.asarray(zarr.open_group(str(folder / "truth.zarr"), mode="r")["lengths"])
        assert ends.min() < ends.max()
        for group in folder.glob("*.zarr"):
            if group.name != "truth.zarr":
                assert np.all(np.asarray(zarr.open_group(str(group), mode="r")["time"]) <= ends)


def test_the_page_says_first_where_rivals_are_ahead(project):
    page = (project.folder / "data" / "study" / "index.html").read_text()
    assert page.index('id="ahead"') < page.index('id="paid"') < page.index('id="variance"') < page.index("<svg")
    found = json.loads((project.folder / "data" / "study" / "findings.json").read_text())
    assert found["datasets"] == ["tiny2", "spoken"]
    for name in found["methods"]:
        assert name in page
    drawn = ("speed_accuracy", "realised_risk", "aapr", "beliefs", "variance_figure", "tapering", "ranks")
    for name in (*drawn, "small_data", "statistic", "options", "looks", "fitting"):
        assert (project.folder / "data" / "study" / "figures" / f"{name}.png").stat().st_size > 1_000


def test_the_run_is_in_mlflow_with_table_and_figures(project):
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{project.folder / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("firmbound")
    (run,) = client.search_runs([experiment.experiment_id], "tags.stage = 'study'")
    assert run.info.status == "FINISHED"
    assert "mean_rank.firmbound-cfl" in run.data.metrics
    kept = {item.path for item in client.list_artifacts(run.info.run_id, "study")}
    assert {"study/table.parquet", "study/index.html", "study/figures"} <= kept


def test_rivals_enter_the_first_repeats_and_rules_all_of_them(project):
    table = pq.read_table(project.folder / "data" / "study" / "table.parquet").to_pylist()
    repeats = {}
    for row in table:
        repeats.setdefault((row["dataset"], row["method"]), set()).add(row["repeat"])
    for dataset in ("tiny2", "spoken"):
        assert repeats[dataset, "lstm-s"] == repeats[dataset, "gru-firmbound"] == {0}
        assert repeats[dataset, "static"] == repeats[dataset, "firmbound-gp"] == {0, 1}
    # Evidence is learned beside the exact one where that is given, and only there.
    assert repeats["tiny2", "tandem-static"] == {0}
    assert ("spoken", "tandem-static") not in repeats


def test_options_of_rivals_were_searched_with_the_same_number_of_trials(project):
    for dataset in ("tiny2", "spoken"):
        found = {
            file.stem: json.loads(file.read_text())
            for file in (project.folder / "data" / "baselines" / dataset / "searched").glob("*.json")
        }
        assert set(found) == {"gru", "lstm-s", "earliest"}
        for one in found.values():
            assert one["trials"] == 2
            assert one["score"] <= one["untuned"]
            assert set(one["options"]) == {"learning_rate"}


def test_a_second_run_does_nothing(project):
    again = project.run("flows.pipeline", "study")
    assert stages_run(again.stdout) == []


def test_killed_between_groups_it_goes_on_and_ends_as_it_would_have(project):
    """kill -9 once a group of the second repeat is there: only the others are made, and all is as undisturbed."""
    from flows.servers import prefect_server

    before = decisions(project)
    shutil.rmtree(project.folder / "data" / "baselines" / "tiny2")
    partial = project.folder / "data" / "baselines" / ".tiny2.partial"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PREFECT_HOME", project.environment["PREFECT_HOME"])
        with prefect_server():
            import os

            project.environment["PREFECT_API_URL"] = os.environ["PREFECT_API_URL"]
            project.kill_once("baselines", "tiny2", lambda: partial.glob("1/cfl.json"))
            kept = (partial / "0" / "static.zarr" / "time" / "zarr.json").stat().st_mtime_ns
            assert (partial / "0" / "thresholds.json").exists()
            project.run("flows.baselines", "tiny2")
            del project.environment["PREFECT_API_URL"]
    finished = project.folder / "data" / "baselines" / "tiny2"
    assert (finished / "0" / "static.zarr" / "time" / "zarr.json").stat().st_mtime_ns == kept
    after = decisions(project)
    assert after.keys() == before.keys()
    for name, values in before.items():
        assert np.array_equal(after[name], values, equal_nan=True), name


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"datasets": ["nobody"]}, "study.datasets"),
        ({"leave_out": ["earlyest"]}, "study.leave_out"),
        ({"costs": [0.1, 0.1]}, "study.costs"),
        ({"search": "nowhere"}, "study.search"),
        ({"search": "broken"}, "params/search/broken.yaml"),
        ({"rivals": ["tiny3"]}, "study.rivals"),
        ({"networks": NETWORKS | {"channels": 30}}, "study.networks.channels"),
    ],
)
def test_an_impossible_study_is_refused_with_one_line(project, change, word):
    params = project.params()
    broken = project.folder / "params" / "search" / "broken.yaml"
    broken.write_text("trials: many\n")
    try:
        project.write(params | {"study": params["study"] | change})
        ended = project.run("flows.pipeline", "study", check=False)
        assert ended.returncode != 0
        assert word in ended.stderr
        assert "Traceback" not in ended.stderr
    finally:
        project.write(params)
        broken.unlink()
