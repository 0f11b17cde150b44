"""Recorded data through the real stages: words of unequal length, raw files that change, kills, clips."""

import json
import shutil

import numpy as np
import pytest

import firmbound
from firmbound.readers.protocol import EvidenceReader
from firmbound.scaling import Scaling
from firmbound.store import TrajectoryStore
from flows.promotion import of_store
from tests.datasets.test_video import grey, write_clip
from tests.flows.small_project import LEARNED, REFINEMENT, SMALL, champion, evidence_store, stages_run, write_recordings

pytestmark = [pytest.mark.pipeline, pytest.mark.filterwarnings("default")]

CLIPS = {
    "kind": "video",
    "path": "clips",
    "layout": "folders",
    "lists": None,
    "number": 1,
    "frames": 4,
    "every": 1,
    "resize": 36,
    "crop": 32,
    "backbone": "efficientnet_lite0",
    "weights": None,
    "pixels": "paper",
    "batch": 8,
    "device": "cpu",
    "broken": "skip",
    "windows": None,
    "horizon": None,
    "missing": "refuse",
    "scaling": "standard",
    "prior": None,
    "split": {"test": 0.3, "validation": 0.3, "taken_from": "train", "by": "class", "swap": False, "seed": 0},
}


def stage(project, name):
    return project.folder / "data" / "spoken" / name


def splits(project):
    return {
        split: TrajectoryStore(stage(project, "features") / f"{split}.zarr")
        for split in ("train", "validation", "test")
    }


def test_stores_hold_what_was_recorded_and_say_where_it_lies(project):
    raw = {name: np.load(project.folder / "recorded" / f"{name}.npy") for name in ("X", "y", "len", "speaker")}
    places = json.loads((stage(project, "features") / "splits.json").read_text())
    speakers = []
    for split, store in splits(project).items():
        rows = places[split]["series"]
        assert store.description.names == ("no", "stop", "yes")
        assert [store.description.names[k] for k in store.labels] == raw["y"][rows].tolist()
        np.testing.assert_array_equal(store.lengths, raw["len"][rows])
        there = np.arange(7) < store.lengths[:, None]
        np.testing.assert_allclose(store.read("features")[there], raw["X"][rows][there], rtol=1e-6)
        assert (store.read("features")[~there] == 0).all()
        speakers.append(set(raw["speaker"][rows]))
    assert sum(map(len, speakers)) == len(set.union(*speakers)) == 40


def test_scale_is_learned_from_training_sequences_and_lies_in_the_model(project):
    train = splits(project)["train"]
    there = np.arange(7) < train.lengths[:, None]
    seen = train.read("features")[there].astype(np.float64)
    scaling = Scaling.load(stage(project, "features") / "scaling")
    np.testing.assert_allclose(scaling.mean, seen.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(scaling.scale, seen.std(axis=0), rtol=1e-4)
    test = splits(project)["test"]
    classifier = firmbound.EarlyClassifier.load(stage(project, "evaluation") / "classifier")
    assert isinstance(classifier.reader_, EvidenceReader)
    evidence = evidence_store(project, "spoken", "test").evidence()
    np.testing.assert_allclose(classifier.reader_.evidence(test.read("features")), evidence, atol=1e-4)


def test_the_champion_speaks_in_the_words_of_the_data(project):
    test = splits(project)["test"]
    said = champion(project, "spoken").predict(test.read("features")[:30].astype(np.float64), params={"cost": 0.5})
    assert set(said["label"]) <= {"no", "stop", "yes"}
    classifier = firmbound.EarlyClassifier.load(stage(project, "evaluation") / "classifier")
    names = np.array(test.description.names)[test.labels]
    chosen = classifier.decide(test.read("features"), test.lengths)
    assert np.mean(chosen.label == names) > 0.6
    assert (chosen.time <= test.lengths).all()


def test_padding_changes_no_decision_and_no_metric(project):
    """Zeros, noise or huge numbers after the ends: decisions of the saved classifier stay the same."""
    test = splits(project)["test"]
    classifier = firmbound.EarlyClassifier.load(stage(project, "evaluation") / "classifier")
    features, lengths = test.read("features"), test.lengths
    after = np.arange(7) >= lengths[:, None]
    plain = classifier.decide(features, lengths)
    for seed in range(5):
        random = np.random.default_rng(seed)
        padded = features.copy()
        padded[after] = 10.0 ** random.integers(-3, 9) * random.standard_normal((int(after.sum()), 3))
        other = classifier.decide(padded, lengths)
        np.testing.assert_array_equal(other.time, plain.time)
        np.testing.assert_array_equal(other.label, plain.label)
    metrics = json.loads((stage(project, "evaluation") / "metrics.json").read_text())
    assert metrics["cost 0.5"]["mean_time"] == pytest.approx(
        classifier.at_cost(0.5).decide(features, lengths).time.mean()
    )


def test_raw_files_that_change_run_their_own_stages(project):
    raw = project.folder / "recorded"
    before = project.results()
    words = np.load(raw / "y.npy")
    words[:9] = words[:9][::-1]
    np.save(raw / "y.npy", words)
    ran = stages_run(project.run("dvc", "repro").stdout)
    assert ran == [
        f"{name}@spoken" for name in ("features", "tandem", "refinement", "boundary", "evaluation", "report")
    ]
    write_recordings(raw)
    project.run("dvc", "repro")
    assert {k: v for k, v in project.results().items() if "checksums" not in k} == {
        k: v for k, v in before.items() if "checksums" not in k
    }


def test_missing_raw_files_fail_with_one_line_and_lose_nothing(project):
    raw = project.folder / "recorded"
    before = project.results()
    raw.rename(project.folder / "elsewhere")
    try:
        ended = project.run("dvc", "repro", check=False)
    finally:
        (project.folder / "elsewhere").rename(raw)
    assert ended.returncode != 0
    lines = [line for line in ended.stderr.splitlines() if line.startswith("firmbound:")]
    assert len(lines) == 1
    assert "`features.spoken.path` must hold the data set's files; got recorded, which has none" in lines[0]
    assert "Traceback" not in ended.stderr
    project.run("dvc", "repro")
    assert project.results() == before


def with_dataset(project, name, features):
    params = json.loads(json.dumps(project.params()))
    params["datasets"] = [*SMALL["datasets"], name]
    params["refinement"][name] = REFINEMENT | {"refine": "never"}
    params["features"][name] = features
    params["tandem"][name] = LEARNED if features["kind"] == "video" else {"evidence": "given"}
    params["boundary"][name] = SMALL["boundary"]["tiny2"]
    project.write(params)
    return project.folder / "data" / name


@pytest.fixture
def restored(project):
    """The project with its params as they were, and without what a test added."""
    params = project.params()
    yield project
    project.write(params)
    for name in ("large", "clips", "beliefs"):
        shutil.rmtree(project.folder / "data" / name, ignore_errors=True)
        shutil.rmtree(project.folder / name, ignore_errors=True)


def content(folder):
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def test_killed_between_shards_only_the_missing_ones_are_made(restored):
    large = SMALL["features"]["tiny2"] | {
        "dimension": 200,
        "sequences": {"train": 60_000, "validation": 100, "test": 100},
    }
    folder = with_dataset(restored, "large", large)
    partial = folder / ".features.partial"
    marks = partial / ".written" / "train"
    restored.kill_once("features", "large", lambda: list(marks.glob("*.json"))[3:])
    done = {mark.stem for mark in marks.glob("*.json")}
    assert 4 <= len(done) < 15
    shards = {f: f.stat().st_mtime_ns for f in partial.rglob("train.zarr/features/c/*/0/0") if f.parts[-3] in done}
    assert len(shards) == len(done)
    restored.run("flows.features", "large")
    kept = {folder / "features" / f.relative_to(partial): written for f, written in shards.items()}
    assert all(f.stat().st_mtime_ns == written for f, written in kept.items())
    assert not partial.exists()
    resumed = content(folder / "features")
    shutil.rmtree(folder / "features")
    restored.run("flows.features", "large")
    assert content(folder / "features") == resumed
    assert not [name for name in resumed if "written" in name or name.endswith((".work", ".partial"))]


def test_posteriors_that_were_brought_along_are_what_the_model_reads(restored):
    random = np.random.default_rng(0)
    labels = np.arange(900) % 2
    walk = np.cumsum(random.normal(0.6, 1.0, (900, 5)), axis=1) * np.where(labels, 1, -1)[:, None]
    posteriors = np.stack([1 / (1 + np.exp(walk)), 1 / (1 + np.exp(-walk))], axis=-1)
    (restored.folder / "beliefs").mkdir()
    np.save(restored.folder / "beliefs" / "X.npy", posteriors)
    np.save(restored.folder / "beliefs" / "y.npy", labels)
    section = SMALL["features"]["spoken"] | {"path": "beliefs", "content": "posteriors", "scaling": "none"}
    section["split"] = section["split"] | {"by": "class"}
    folder = with_dataset(restored, "beliefs", section)
    for name in ("features", "tandem", "refinement", "boundary", "evaluation"):
        restored.run(f"flows.{name}", "beliefs")
    classifier = firmbound.EarlyClassifier.load(folder / "evaluation" / "classifier")
    test = TrajectoryStore(folder / "features" / "test.zarr")
    places = json.loads((folder / "features" / "splits.json").read_text())["test"]["series"]
    rule = firmbound.StoppingRule.load(folder / "boundary")
    chosen = rule.decide(test.evidence(), cost=classifier.cost)
    said = classifier.decide(posteriors[places])
    np.testing.assert_array_equal(said.time, chosen.time)
    np.testing.assert_array_equal(said.label, chosen.label)
    ((values, _, _),) = of_store(test)(classifier)
    np.testing.assert_allclose(values, posteriors[places], atol=1e-6)


def write_clips(folder, count=14):
    random = np.random.default_rng(5)
    for label, base in (("fall", 40), ("rise", 160)):
        (folder / label).mkdir(parents=True)
        for index in range(count):
            levels = np.clip(base + random.integers(-30, 30, size=5), 0, 255)
            write_clip(folder / label / f"{label}{index:02d}.avi", grey(levels))


def test_clips_become_features_and_a_kill_loses_one_at_most(restored):
    write_clips(restored.folder / "clips")
    broken = restored.folder / "clips" / "rise" / "torn.avi"
    broken.write_bytes((restored.folder / "clips" / "rise" / "rise00.avi").read_bytes()[:300])
    folder = with_dataset(restored, "clips", CLIPS)
    restored.kill_once("features", "clips", lambda: list(folder.rglob(".clips/*/*.npy"))[5:])
    done = {file: file.stat().st_mtime_ns for file in folder.rglob(".clips/*/*.npy")}
    assert 6 <= len(done) < 28
    assert not (folder / "features").exists()
    ended = restored.run("flows.features", "clips")
    assert "torn.avi" in ended.stderr
    assert "1 of 29 clips were skipped" in ended.stderr
    assert not (folder / ".clips").exists()
    stores = [TrajectoryStore(folder / "features" / f"{split}.zarr") for split in ("train", "validation", "test")]
    assert sum(store.description.sequences for store in stores) == 28
    assert (stores[0].description.horizon, stores[0].description.dimension) == (4, 1280)
    assert stores[0].description.names == ("fall", "rise")
    resumed = content(folder / "features")
    shutil.rmtree(folder / "features")
    restored.run("flows.features", "clips")
    assert content(folder / "features") == resumed


def test_a_broken_clip_is_fatal_where_that_was_chosen(restored):
    write_clips(restored.folder / "clips", count=6)
    (restored.folder / "clips" / "fall" / "torn.avi").write_bytes(b"no clip at all")
    folder = with_dataset(restored, "clips", CLIPS | {"broken": "fail"})
    ended = restored.run("flows.features", "clips", check=False)
    assert ended.returncode != 0
    assert "clips/fall/torn.avi cannot be read" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (folder / "features").exists()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: folder.mkdir(), "`features.clips.path` must hold the data set's files; got clips"),
        (lambda folder: write_one_class(folder), "`path` must hold two classes at least; got clips with alone"),
    ],
)
def test_bad_folders_of_clips_are_named(restored, make, words):
    make(restored.folder / "clips")
    with_dataset(restored, "clips", CLIPS)
    ended = restored.run("dvc", "repro", "features@clips", check=False)
    lines = [line for line in ended.stderr.splitlines() if line.startswith("firmbound:")]
    assert len(lines) == 1
    assert words in lines[0]


def write_one_class(folder):
    (folder / "alone").mkdir(parents=True)
    write_clip(folder / "alone" / "one.avi", grey([1, 2, 3]))
