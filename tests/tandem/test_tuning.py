"""Search spaces are data, and searches resume."""

from dataclasses import replace

import numpy as np
import optuna
import pytest
import yaml

import firmbound
from firmbound.errors import InvalidInput
from firmbound.tandem.data import ArraySource
from firmbound.tandem.options import NetworkOptions, TrainingOptions
from firmbound.tandem.training import Trainer
from firmbound.tandem.tuning import SearchSpace, close_left_open, finished, open_study, score_trial
from tests.test_architecture import ROOT

optuna.logging.set_verbosity(optuna.logging.WARNING)
# Those of the rivals are read by firmbound/study/rival_spaces.py.
SPACES = sorted(set((ROOT / "params/search").glob("*.yaml")) - set((ROOT / "params/search").glob("rivals*.yaml")))


def small(**changes):
    return {
        "trials": 4,
        "pruner": {"percentile": 40, "startup": 0.5, "warmup": 0.5},
        "fixed": {"batch": 50, "epochs": 4, "projection": 4, "integrator": "lstm"},
        "searched": {"learning_rate": {"low": 1e-3, "high": 1e-2, "log": True}, "order": {"low": 0, "high": 10}},
        "lstm": {"hidden": {"low": 3, "high": 6}},
        "transformer": {},
    } | changes


def sources(sequences=200):
    problem = firmbound.datasets.autoregressive((0.0, 0.9), sequences, 5, 1)
    source = ArraySource.of(problem.features, problem.labels, 2)
    return source, source, 2


@pytest.mark.parametrize("file", SPACES, ids=lambda f: f.stem)
def test_every_space_that_ships_gives_options_that_can_be(file):
    space = SearchSpace.of(yaml.safe_load(file.read_text()))
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    seen = [space.suggest(study.ask(), 50) for _ in range(60)]
    assert all(isinstance(n, NetworkOptions) and isinstance(t, TrainingOptions) for n, t in seen)
    if file.stem != "quick":
        assert {network.integrator for network, _ in seen} == {"lstm", "transformer"}
        assert {network.order for network, _ in seen} == set(range(11))


def test_the_papers_tables_are_there():
    space = SearchSpace.of(yaml.safe_load((ROOT / "params/search/gaussian.yaml").read_text()))
    assert (space.trials, space.pruner.percentile) == (200, 40)
    assert (space.fixed["batch"], space.fixed["epochs"]) == (200, 15)
    rate = space.searched["learning_rate"]
    assert (rate.low, rate.high, rate.log) == (1e-6, 1e-3, True)
    assert space.searched["optimizer"] == ("adam", "rmsprop", "lion")
    sizes = {file.stem: yaml.safe_load(file.read_text())["fixed"] for file in SPACES}
    assert [(sizes[n]["batch"], sizes[n]["epochs"]) for n in ("siw", "hmdb51", "ucf101")] == [
        (83, 18),
        (128, 24),
        (16, 25),
    ]


def test_the_pruner_counts_as_the_paper_does(tmp_path):
    study = open_study(tmp_path / "study.db", SearchSpace.of(small()), sources(1_000)[0])
    pruner = study.pruner
    assert (pruner._percentile, pruner._n_startup_trials) == (40, 2)
    assert (pruner._n_warmup_steps, pruner._interval_steps) == (40, 20)  # 4 epochs of 20 batches


def test_hopeless_trials_are_pruned(tmp_path):
    """After two good trials, one that cannot learn ends early; a trial's error is the network's own."""
    space = SearchSpace.of(small())
    study = open_study(tmp_path / "study.db", space, sources()[0])
    network = NetworkOptions(order=1, projection=8, hidden=8)

    def objective(trial):
        rate = 1e-2 if trial.number < 2 else 1e-9
        training = TrainingOptions(batch=50, epochs=4, learning_rate=rate, schedule="constant", patience=None)
        return score_trial(trial, *sources(), network, training)

    study.optimize(objective, n_trials=3)
    states = [trial.state.name for trial in study.trials]
    assert states == ["COMPLETE", "COMPLETE", "PRUNED"]
    assert sorted(study.trials[0].intermediate_values) == [4, 8, 12, 16]
    assert study.best_value < 0.49  # guessing gives a half
    assert max(study.trials[2].intermediate_values) < 16


def test_a_diverging_trial_is_pruned_not_fatal(tmp_path):
    study = open_study(tmp_path / "study.db", SearchSpace.of(small()), sources()[0])
    training = TrainingOptions(epochs=30, batch=50, learning_rate=1e37, clip=None, schedule="constant")
    study.optimize(lambda trial: score_trial(trial, *sources(), NetworkOptions(projection=4), training), n_trials=1)
    assert study.trials[0].state.name == "PRUNED"


def test_a_search_goes_on_where_it_ended(tmp_path):
    space, file = SearchSpace.of(small()), tmp_path / "deep" / "study.db"
    study = open_study(file, space, sources()[0])
    objective = lambda trial: score_trial(trial, *sources(), *space.suggest(trial, 5))  # noqa: E731
    study.optimize(objective, n_trials=1)
    study.ask()  # a kill leaves a trial open
    again = open_study(file, space, sources()[0], seed=2)
    close_left_open(again)
    assert finished(again) == 1
    assert [trial.state.name for trial in again.trials] == ["COMPLETE", "FAIL"]
    again.optimize(objective, n_trials=1)
    assert finished(again) == 2
    assert again.trials[2].params != again.trials[0].params  # new draws, not the first ones again
    assert all(trial.params["order"] <= 4 for trial in again.trials if trial.params)
    other = SearchSpace.of(small(fixed={"batch": 20, "epochs": 4, "projection": 4, "integrator": "lstm"}))
    assert finished(open_study(file, other, sources()[0])) == 0  # what another space found does not count
    assert finished(open_study(file, space, sources(300)[0])) == 0  # nor what other data did
    assert finished(open_study(file, replace(space, trials=9), sources()[0])) == 2


def test_the_macro_error_is_its_definition():
    source, _, classes = sources()
    options = NetworkOptions(order=1, projection=4), TrainingOptions(batch=50, epochs=1)
    trainer = Trainer(source, source, classes, *options)
    model = firmbound.TandemModel(trainer.run(), np.array([0.5, 0.5]), trainer.shares)
    wrong = model.evidence(source.features).argmax(axis=-1) != source.labels[:, None]
    expected = np.mean([wrong[source.labels == k].mean() for k in range(2)])
    assert trainer.macro_error() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"surprise": {}}, "have the keys"),
        ({"trials": 0}, "trials"),
        ({"pruner": {"percentile": 140, "startup": 0.5, "warmup": 0.5}}, "pruner.percentile"),
        ({"pruner": {"percentile": 40}}, "search space"),
        ({"searched": {"learning_rat": [1]}}, "learning_rat.*option"),
        ({"searched": {"hidden": [1]}}, "hidden.*once"),
        ({"searched": {"order": {"low": 3, "high": 1}}}, "searched.order"),
        ({"searched": {"weight_decay": {"low": 0.0, "high": 1.0, "log": True}}}, "searched.weight_decay"),
        ({"searched": {"order": 3}}, "searched.order"),
        ({"fixed": {"batch": 50}}, "integrator.*fixed or searched"),
        ({"fixed": {"integrator": "gru"}}, "integrator.*gru"),
        ({"fixed": {"integrator": "lstm", "batch": 0}}, "batch.*whole number"),
        ({"fixed": {"integrator": "lstm", "epochs": "many"}}, "epochs.*whole number"),
        ({"searched": {"optimizer": ["adam", "adamm"]}}, "optimizer.*adamm"),
        ({"transformer": None}, "transformer.*mapping"),
        ({"searched": None}, "searched.*mapping"),
        (
            {
                "fixed": {"integrator": "transformer", "projection": 64},
                "transformer": {"heads": {"low": 2, "high": 3}},
            },
            "projection.*multiple of heads",
        ),
    ],
)
def test_spaces_that_make_no_sense_are_refused(changes, message):
    with pytest.raises(InvalidInput, match=message):
        SearchSpace.of(small(**changes))


def test_no_data_are_refused_too():
    with pytest.raises(InvalidInput, match="search space"):
        SearchSpace.of(None)
