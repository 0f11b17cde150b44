"""The real thing on a small problem: Prefect server, DVC, MLflow and every stage, in a copy of the project."""

import json
import re
import shutil

import numpy as np
import optuna
import pytest
import torch
import yaml

import firmbound
from firmbound.evaluation.calibration import calibration
from firmbound.evaluation.risk import believed_risk, realised_risk
from firmbound.store import TrajectoryStore
from firmbound.tandem.model import TandemModel
from tests.flows.small_project import EXACT, LEARNED, SMALL, champion, evidence_store, stages_run

# Warnings of Prefect, DVC and MLflow are theirs to mend; ours are errors in all other tests.
pytestmark = [pytest.mark.pipeline, pytest.mark.filterwarnings("default")]


def versions(project, dataset):
    """All versions, the newest of which must be champion."""
    found, champion_version = versions_and_champion(project, dataset)
    assert champion_version == max(found)
    return found


def versions_and_champion(project, dataset):
    """Asked in a new process: MLflow keeps connections open, also to a file that is gone."""
    script = f"""
import json
from flows.registry import CHAMPION
from flows.tracking import connect
client = connect()
found = [v.version for v in client.search_model_versions("name = 'firmbound-{dataset}'")]
print(json.dumps([found, client.get_registered_model('firmbound-{dataset}').aliases.get(CHAMPION)]))
"""
    (project.folder / "ask.py").write_text(script)
    return json.loads(project.run("ask").stdout.splitlines()[-1])


def test_one_command_says_where_everything_is(project):
    said = project.first.stdout
    for dataset in SMALL["datasets"]:
        for place in (f"data/{dataset}/report/index.html", f"data/{dataset}/evaluation/metrics.json"):
            assert place in said
            assert (project.folder / place).is_file()
        assert f"models:/firmbound-{dataset}@champion" in said
        metrics = json.loads((project.folder / f"data/{dataset}/evaluation/metrics.json").read_text())
        page = (project.folder / f"data/{dataset}/report/index.html").read_text()
        for ours in (metrics["cost 0.1"], metrics["cost 0.5"]):
            paid = f"{ours['realised_risk']:.3f} ± {ours['realised_risk_error']:.3f}"
            assert f"risk {paid}, believed {ours['aapr']:.3f}" in said
            assert f"it believes {ours['aapr']:.3f} and pays {paid}" in page
    assert (project.folder / ".git").is_dir()
    assert (project.folder / ".dvc").is_dir()
    assert (project.folder / "dvc.lock").is_file()


def test_metrics_hold_what_a_fresh_computation_gives(project):
    for dataset in SMALL["datasets"]:
        folder = project.folder / "data" / dataset
        test = evidence_store(project, dataset, "test")
        rule = firmbound.StoppingRule.load(folder / "boundary")
        metrics = json.loads((folder / "evaluation" / "metrics.json").read_text())
        for cost in (0.1, 0.5):
            chosen = rule.decide(test.evidence(), cost=cost, lengths=test.lengths)
            found = metrics[f"cost {cost:g}"]
            assert found["mean_time"] == pytest.approx(chosen.time.mean())
            wrong = np.mean([np.mean(chosen.label[test.labels == k] != k) for k in range(rule.problem.classes)])
            assert found["error_rate"] == pytest.approx(wrong)
            paid = realised_risk(chosen, test.labels, rule.problem, cost)
            trusted = believed_risk(chosen, test.evidence(), rule.prior, rule.problem, cost)
            error = np.std(paid - trusted, ddof=1) / np.sqrt(len(paid))
            assert (found["realised_risk"], found["aapr"]) == pytest.approx((paid.mean(), trusted.mean()))
            assert (found["risk_gap"], found["risk_gap_error"]) == pytest.approx((np.mean(paid - trusted), error))
            if dataset in EXACT:
                assert not found["overconfident"]
            if dataset != "spoken":
                exact = TrajectoryStore(folder / "features" / "test.zarr").evidence()
                believed = believed_risk(chosen, exact, rule.prior, rule.problem, cost).mean()
                assert found["expected_risk"] == pytest.approx(believed)
            if dataset in EXACT:
                assert 0 <= found["regret"] < 0.02
                assert found["static_aapr"] > 0.97 * found["optimal_aapr"]
        honest = calibration(test.evidence(), test.labels, rule.prior, test.lengths)
        assert metrics["calibration"]["largest_error"] == pytest.approx(honest.error.max())
        assert metrics["calibration"]["largest_ratio"] == pytest.approx(honest.largest_ratio)


def test_stage_rules_equal_the_library_called_by_hand(project):
    """Prefect tasks, threads and stores change nothing: bit for bit the rule of a plain call."""
    for dataset, method, options in (
        ("tiny2", "cfl", firmbound.ConvexOptions(points=200, regularisation=1e-8)),
        ("tiny3", "gp", firmbound.ProcessOptions(points=100, inducing=30)),
    ):
        train = TrajectoryStore(project.folder / "data" / dataset / "tandem" / "train.zarr")
        given = TrajectoryStore(project.folder / "data" / dataset / "features" / "train.zarr")
        assert np.array_equal(train.evidence(), given.evidence())
        rule = firmbound.StoppingRule.load(project.folder / "data" / dataset / "boundary")
        plain = firmbound.fit_stopping_rule(train.evidence(), costs=[0.1, 0.5], method=method, options=options)
        assert rule.confidence == SMALL["boundary"][dataset].get("confidence", 0.5)
        for one, other in zip(rule.surfaces, plain.surfaces, strict=True):
            for name, array in one.arrays().items():
                assert np.array_equal(array, other.arrays()[name])


def test_the_stage_learns_as_the_library_does(project):
    """Prefect, stores and MLflow change nothing: the bits of the network that a plain call trains."""
    folder = project.folder / "data" / "learned"
    (project.folder / "by_hand.py").write_text(
        f"""
import firmbound
from firmbound.store import TrajectoryStore
train, valid = (TrajectoryStore("data/learned/features/" + s + ".zarr") for s in ("train", "validation"))
model = firmbound.fit_tandem(
    train.read("features"), train.labels, validation=(valid.read("features"), valid.labels),
    prior=train.description.prior, network=firmbound.NetworkOptions(**{LEARNED["network"]}),
    training=firmbound.TrainingOptions(**{LEARNED["training"]}),
)
model.save("by-hand")
"""
    )
    project.run("by_hand")
    stage, by_hand = (TandemModel.load(path) for path in (folder / "tandem" / "network", project.folder / "by-hand"))
    for name, value in stage.network.state_dict().items():
        assert torch.equal(value, by_hand.network.state_dict()[name])
    assert np.array_equal(stage.temperatures, by_hand.temperatures)
    test = TrajectoryStore(folder / "features" / "test.zarr")
    evidence = TrajectoryStore(folder / "tandem" / "test.zarr").evidence()
    assert np.allclose(evidence, stage.evidence(test.read("features")), atol=1e-5)
    assert np.corrcoef(np.diff(evidence[:, -1])[:, 0], np.diff(test.evidence()[:, -1])[:, 0])[0, 1] > 0.8
    assert not (folder / ".training").exists()


def test_evidence_is_refined_as_asked_for_and_as_the_library_does(project):
    choices, pages = {}, {}
    for dataset in SMALL["datasets"]:
        folder = project.folder / "data" / dataset
        choices[dataset] = json.loads((folder / "refinement" / "choice.json").read_text())
        pages[dataset] = (folder / "report" / "index.html").read_text()
        assert (folder / "refinement" / "refiner").is_dir() == choices[dataset]["refined"]
    assert not choices["tiny2"]["refined"]
    assert choices["tiny2"]["why"].startswith("it does not pay: on 5,000 validation sequences")
    assert "Evidence is as it came, not refined: it does not pay" in pages["tiny2"]
    assert choices["tiny3"] | {"refined": False, "why": "asked for"} == choices["tiny3"]
    assert choices["learned"]["sequences"] == 500  # a network knows its training sequences
    assert choices["spoken"]["refined"]
    assert "Realised risk without and with refinement:" in pages["spoken"]
    folder = project.folder / "data" / "learned"
    train, given = (TrajectoryStore(folder / stage / "train.zarr") for stage in ("features", "tandem"))
    options = firmbound.RefinementOptions(inputs="features", units=12)
    refiner, honest = firmbound.fit_refiner(
        given.evidence(), given.labels, features=train.read("features"), options=options
    )
    assert np.array_equal(refiner.weights, firmbound.Refiner.load(folder / "refinement" / "refiner").weights)
    assert np.array_equal(honest, evidence_store(project, "learned", "train").evidence())
    test = TrajectoryStore(folder / "tandem" / "test.zarr").evidence()
    features = TrajectoryStore(folder / "features" / "test.zarr").read("features")
    assert np.array_equal(refiner.refine(test, features), evidence_store(project, "learned", "test").evidence())


def test_the_champion_reads_features_where_evidence_is_learned(project):
    folder = project.folder / "data" / "learned"
    features = TrajectoryStore(folder / "features" / "test.zarr").read("features")[:40].astype(np.float64)
    evidence = TandemModel.load(folder / "tandem" / "network").evidence(features)
    evidence = firmbound.Refiner.load(folder / "refinement" / "refiner").refine(evidence, features)
    chosen = firmbound.StoppingRule.load(folder / "boundary").decide(evidence, cost=0.5)
    said = champion(project, "learned").predict(features, params={"cost": 0.5})
    assert said["time"].tolist() == chosen.time.tolist()
    assert said["label"].tolist() == chosen.label.tolist()


def mlflow_client(project):
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=f"sqlite:///{project.folder / 'mlflow.db'}")


def training_runs(project):
    client = mlflow_client(project)
    (experiment,) = [e for e in client.search_experiments() if e.name == "firmbound"]
    return client.search_runs([experiment.experiment_id], "tags.stage = 'tandem' and tags.dataset = 'learned'")


def test_training_is_in_mlflow(project):
    client = mlflow_client(project)
    (run,) = training_runs(project)
    assert run.info.status == "FINISHED"
    assert run.data.params["network.order"] == "1"
    losses = client.get_metric_history(run.info.run_id, "validation_loss")
    assert [point.step for point in losses] == [1, 2, 3, 4, 5, 6]
    assert losses[-1].value < losses[0].value
    assert {f.path for f in client.list_artifacts(run.info.run_id, "network")} >= {"network/arrays.safetensors"}


def test_the_champion_decides_like_the_rule(project):
    for dataset in EXACT:
        folder = project.folder / "data" / dataset
        evidence = TrajectoryStore(folder / "features" / "test.zarr").evidence()[:50].astype(np.float64)
        rule = firmbound.StoppingRule.load(folder / "boundary")
        model = champion(project, dataset)
        said = model.predict(evidence, params={"cost": 0.5})
        chosen = rule.decide(evidence, cost=0.5)
        assert said["time"].tolist() == chosen.time.tolist()
        assert said["label"].tolist() == chosen.label.tolist()
        assert said["decided"].all()
        prefix = model.predict(evidence[:, :2], params={"cost": 0.5})
        assert np.array_equal(prefix["decided"], chosen.time <= 2)
        assert np.allclose([sum(p) for p in prefix["posterior"]], 1.0)
        knows_its_doubt = SMALL["boundary"][dataset]["method"] == "gp"
        assert prefix["deviation"][~prefix["decided"]].notna().all() == knows_its_doubt


def test_the_run_is_in_mlflow(project):
    client = mlflow_client(project)
    (experiment,) = [e for e in client.search_experiments() if e.name == "firmbound"]
    run = next(r for r in client.search_runs([experiment.experiment_id]) if r.info.run_name == "tiny2")
    assert run.data.params["boundary.costs"] == "[0.1, 0.5]"
    assert run.data.metrics["cost 0.5/regret"] < 0.02
    names = {file.path for file in client.list_artifacts(run.info.run_id, "report/figures")}
    assert "report/figures/speed_accuracy.png" in names


def test_nothing_changed_runs_nothing(project):
    assert not stages_run(project.run("dvc", "repro").stdout)


def test_metrics_and_plots_are_known_to_dvc(project):
    shown = project.run("dvc", "metrics", "show")
    assert "cost 0.5.error_rate" in shown.stdout
    assert "failed" not in shown.stderr
    project.run("dvc", "plots", "show")
    page = (project.folder / "dvc_plots" / "index.html").read_text()
    assert "speed_accuracy" in page
    assert "data:image" in page or list((project.folder / "dvc_plots").rglob("*.png"))


def test_a_changed_cost_runs_what_depends_on_it_only(project):
    params = project.params()
    params["boundary"]["tiny2"]["costs"] = [0.1, 0.4]
    project.write(params)
    ran = stages_run(project.run("dvc", "repro").stdout)
    reports = [f"report@{dataset}" for dataset in SMALL["datasets"]]
    assert ran == ["refinement@tiny2", "boundary@tiny2", "evaluation@tiny2", *reports]
    found, champion_version = versions_and_champion(project, "tiny2")
    assert len(found) == 2
    assert len(versions(project, "tiny3")) == 1
    # A rule for 0.5 is no match for one made for 0.4, or not by enough: the new one is champion or challenger.
    model = champion(project, "tiny2", "champion" if champion_version == max(found) else "challenger")
    assert len(model.predict(np.zeros((1, 1, 2)), params={"cost": 0.4})) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"boundary.costs": [9.0]}, "observe twice"),
        ({"boundary.surprise": 1}, "boundary.tiny2.surprise.*known key"),
        ({"surprise": 1}, "surprise.*known key"),
        ({"tandem": {"tiny2": LEARNED, "tiny3": {"evidence": "given"}}}, "tandem.learned.*given"),
        ({"tandem": SMALL["tandem"] | {"spoken": LEARNED | {"folds": 2}}}, "spoken: folds.*one group.*fit_on"),
    ],
)
def test_bad_params_fail_with_one_line_and_lose_nothing(project, change, message):
    params, before = project.params(), project.results()
    broken = json.loads(json.dumps(params))
    ((path, value),) = change.items()
    place = broken["boundary"]["tiny2"] if path.startswith("boundary.") else broken
    place[path.removeprefix("boundary.")] = value
    project.write(broken)
    ended = project.run("dvc", "repro", check=False)
    project.write(params)
    assert ended.returncode != 0
    lines = [line for line in ended.stderr.splitlines() if line.startswith("firmbound:")]
    assert len(lines) == 1
    assert re.search(message, lines[0])
    assert "Traceback" not in ended.stderr
    assert project.results() == before


def test_after_all_bad_params_nothing_is_stale(project):
    """None of those runs could have mended what another had left, so once is enough."""
    assert not stages_run(project.run("dvc", "repro").stdout)


def test_a_damaged_store_fails_with_its_path(project):
    shard = next((project.folder / "data" / "tiny2" / "tandem" / "train.zarr" / "evidence" / "c").rglob("0"))
    while shard.is_dir():
        shard = next(shard.iterdir())
    kept = shard.read_bytes()
    shard.unlink()  # a hard link into DVC's cache: unlink, do not write through it
    shard.write_bytes(kept[:-9])
    try:
        ended = project.run("flows.boundary", "tiny2", check=False)
        assert ended.returncode != 0
        assert "train.zarr is damaged" in ended.stderr
        assert "Traceback" not in ended.stderr
    finally:
        shard.write_bytes(kept)


def test_a_killed_stage_leaves_the_old_results_and_a_second_run_finishes(project):
    params, before = project.params(), project.results()
    params["features"]["tiny2"]["sequences"]["train"] = 90_000
    params["features"]["tiny2"]["dimension"] = 64
    project.write(params)
    partial = project.folder / "data" / "tiny2" / ".features.partial"
    project.kill_once("features", "tiny2", lambda: partial.rglob("features/c/*"))
    assert partial.exists()
    assert {k: v for k, v in project.results().items() if ".partial" not in k} == before
    params["features"]["tiny2"] = SMALL["features"]["tiny2"]
    project.write(params)
    project.run("flows.features", "tiny2")
    assert not partial.exists()
    assert project.results() == before


def test_killed_training_goes_on_and_ends_as_it_would_have(project):
    """kill -9 between two epochs: the second run starts from the checkpoint, in the same MLflow run."""
    before, params = project.results(), project.params()
    longer = json.loads(json.dumps(params))
    longer["tandem"]["learned"]["training"] |= {"epochs": 15, "patience": None}
    project.write(longer)
    scratch = project.folder / "data" / "learned" / ".training"
    project.kill_once("tandem", "learned", lambda: scratch.glob("[0-9a-f]*/header.json"))
    kept = {k: v for k, v in project.results().items() if ".training" not in k}
    assert kept == before  # what was there still is
    project.run("flows.tandem", "learned")
    resumed = (project.folder / "data" / "learned" / "tandem" / "network" / "arrays.safetensors").read_bytes()
    assert not scratch.exists()
    newest, _ = training_runs(project)
    assert newest.info.status == "FINISHED"
    losses = mlflow_client(project).get_metric_history(newest.info.run_id, "validation_loss")
    assert {point.step for point in losses} == set(range(1, 16))
    project.run("flows.tandem", "learned")
    undisturbed = (project.folder / "data" / "learned" / "tandem" / "network" / "arrays.safetensors").read_bytes()
    assert resumed == undisturbed
    project.write(params)
    project.run("dvc", "checkout", "-f", "-q", "dvc.yaml")
    assert project.results() == before


def test_networks_of_folds_go_on_after_a_kill_and_say_what_the_librarys_say(project):
    """kill -9 when the first fold is read; stores are then those of a plain call, network and temperatures too."""
    before, params = project.results(), project.params()
    folded = json.loads(json.dumps(params))
    folded["tandem"]["learned"]["folds"] = 3
    project.write(folded)
    scratch = project.folder / "data" / "learned" / ".training"
    project.kill_once("tandem", "learned", lambda: scratch.glob("*-fold-*.npy"))
    assert list(scratch.glob("*-fold-*.npy"))
    assert {k: v for k, v in project.results().items() if ".training" not in k} == before
    project.run("flows.tandem", "learned")
    assert not scratch.exists()
    (project.folder / "folds_by_hand.py").write_text(
        f"""
import numpy as np
from firmbound.store import TrajectoryStore
from firmbound.tandem.cross_fitting import fit_in_folds
from firmbound.tandem.data import StoreSource
from firmbound.tandem.model import TandemModel
from firmbound.tandem.options import NetworkOptions, TrainingOptions
stores = {{s: TrajectoryStore("data/learned/features/" + s + ".zarr") for s in ("train", "validation")}}
train, validation = (StoreSource(store) for store in stores.values())
model, unseen = fit_in_folds(
    train, validation, np.array(stores["train"].description.prior), NetworkOptions(**{LEARNED["network"]}),
    TrainingOptions(**{LEARNED["training"]}), 3,
)
stage = TandemModel.load("data/learned/tandem/network")
assert np.array_equal(stage.temperatures, model.temperatures)
for split, said in (("train", unseen), ("validation", model.evidence(stores["validation"].read("features")))):
    evidence = TrajectoryStore("data/learned/tandem/" + split + ".zarr").evidence()
    assert np.allclose(evidence, said, atol=1e-5), split
print("the same")
"""
    )
    assert "the same" in project.run("folds_by_hand").stdout
    project.write(params)
    project.run("dvc", "checkout", "-f", "-q", "dvc.yaml")
    assert project.results() == before


def test_evidence_that_is_not_calibrated_makes_no_champion(project):
    params = project.params()
    strict = json.loads(json.dumps(params | {"evaluation": params["evaluation"] | {"calibration_limit": 1e-6}}))
    (project.folder / "say.py").write_text(
        "from flows.params import read_params\nfrom flows.pipeline import summary\nprint(summary(read_params()))\n"
    )
    (first,) = versions(project, "learned")

    def run_stages(params, *stages):
        project.write(params)
        for stage in stages:
            project.run(f"flows.{stage}", "learned")
        return versions_and_champion(project, "learned")

    assert run_stages(strict, "evaluation", "report") == [[first], None]  # judged again, a champion falls
    said = project.run("say").stdout
    assert "not champion: its evidence is not calibrated" in said
    assert "models:/firmbound-tiny2@champion" in said  # given evidence is not judged
    assert "did not become champion" in (project.folder / "data" / "learned" / "report" / "index.html").read_text()
    assert run_stages(params, "evaluation", "report") == [[first], first]
    strict["tandem"]["learned"]["training"]["seed"] = 1
    found, champion_version = run_stages(strict, "tandem", "refinement", "boundary", "evaluation", "report")
    assert len(found) == 2
    assert champion_version == first  # a new version that is not calibrated leaves the old champion
    project.write(params)
    project.run("dvc", "checkout", "-f", "-q", "dvc.yaml")
    assert not stages_run(project.run("dvc", "repro").stdout)


def test_diverging_training_fails_with_one_line(project):
    before, params = project.results(), project.params()
    wild = json.loads(json.dumps(params))
    wild["tandem"]["learned"]["training"] |= {"learning_rate": 1e37, "clip": None, "schedule": "constant", "epochs": 30}
    project.write(wild)
    ended = project.run("flows.tandem", "learned", check=False)
    project.write(params)
    assert ended.returncode == 1
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("firmbound:")]
    assert "diverged with a learning rate of 1e+37 at step" in line
    assert "Traceback" not in ended.stderr
    shutil.rmtree(project.folder / "data" / "learned" / ".training", ignore_errors=True)
    assert project.results() == before


def test_a_lost_registry_is_made_again(project):
    kept = (project.folder / "mlflow.db").rename(project.folder / "kept.db")
    project.run("flows.pipeline_flow")
    for dataset in SMALL["datasets"]:
        assert len(versions(project, dataset)) == 1
    project.run("flows.pipeline_flow")
    assert len(versions(project, "tiny2")) == 1  # what is registered is not registered twice
    kept.replace(project.folder / "mlflow.db")


def test_tuning_resumes_and_writes_what_repro_reads(project):
    space = {
        "trials": 4,
        "pruner": {"percentile": 40, "startup": 0.5, "warmup": 0.5},
        "fixed": {"batch": 100, "epochs": 2, "projection": 8, "integrator": "lstm"},
        "searched": {"learning_rate": {"low": 1e-3, "high": 1e-2, "log": True}, "order": {"low": 0, "high": 10}},
        "lstm": {"hidden": {"low": 4, "high": 8}},
        "transformer": {},
    }
    (project.folder / "params" / "search" / "small.yaml").write_text(yaml.safe_dump(space))
    commented = (project.folder / "params.yaml").read_text().replace("order: 1", "order: 1 # remembered", 1)
    (project.folder / "params.yaml").write_text(commented)
    before = project.params()
    project.run("flows.tuning", "learned", "2")
    project.run("flows.tuning", "learned")
    storage = f"sqlite:///{project.folder / 'data' / 'learned' / 'tuning' / 'optuna.db'}"
    (name,) = optuna.get_all_study_names(storage)
    study = optuna.load_study(study_name=name, storage=storage)
    assert len(study.trials) == 4  # two, then the other two
    assert all(trial.params["order"] <= 5 for trial in study.trials)  # sequences have six observations
    after = project.params()
    for name in ("learning_rate", "order", "hidden"):
        chosen = after["tandem"]["learned"]
        assert (chosen["network"] | chosen["training"])[name] == study.best_params[name]
    assert {**after, "tandem": 0} == {**before, "tandem": 0}
    assert after["tandem"]["tiny2"] == before["tandem"]["tiny2"]
    assert "# remembered" in (project.folder / "params.yaml").read_text()
    assert "tandem@learned" in project.run("dvc", "repro", "--dry").stdout
    (project.folder / "ask.py").write_text(
        "from flows.tracking import EXPERIMENT, connect\n"
        "client = connect()\n"
        "experiment = client.get_experiment_by_name(EXPERIMENT).experiment_id\n"
        "found = client.search_runs([experiment], \"tags.stage = 'tuning'\")\n"
        "print([run.info.status for run in found])\n"
    )
    assert project.run("ask").stdout.splitlines()[-1] == str(["FINISHED"] * 4)
    project.write(before)


def test_unknown_data_sets_are_refused(project):
    ended = project.run("flows.features", "nothing", check=False)
    assert ended.returncode != 0
    assert "must be one of ['tiny2', 'tiny3', 'learned', 'spoken']" in ended.stderr
