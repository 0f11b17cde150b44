"""Rivals' options are searched on validation sequences alone, in spaces that are data; a killed search goes on."""

from dataclasses import replace

import numpy as np
import optuna
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from firmbound.baselines.earliest import Earliest
from firmbound.baselines.probability_threshold import ThresholdOn
from firmbound.baselines.recurrent import MonotoneLstm, PlainGru
from firmbound.baselines.tcn_transformer import TcnTransformer
from firmbound.baselines.training import RivalTraining
from firmbound.costs import DecisionProblem
from firmbound.errors import InvalidInput
from firmbound.search_space import Range, holds, suggest
from firmbound.study.contest import Contest, enter
from firmbound.study.field import FieldOptions
from firmbound.study.rival_spaces import RIVALS, RivalSpaces, make_gru, make_rival
from firmbound.study.search import search
from firmbound.trajectories import Batch
from tests.test_architecture import ROOT

optuna.logging.set_verbosity(optuna.logging.WARNING)
FILES = sorted((ROOT / "params/search").glob("rivals*.yaml"))
RATE = {"low": 1e-3, "high": 1e-1, "log": True}
TRAINING = RivalTraining(batch=40, epochs=3, learning_rate=1e-2, device="cpu")
OPTIONS = FieldOptions(training=TRAINING, thresholds=8, units=6, hidden=5, channels=8)


def small(**changes):
    return {
        "trials": 4,
        "pruner": {"percentile": 50, "startup": 0.5, "warmup": 0.0},
        "updates": None,
        "gru": {"learning_rate": RATE, "units": {"low": 3, "high": 9}},
        "lstm-s": {"ranking_weight": {"low": 0.0, "high": 1.0}, "units": [3, 6]},
        "lstm-m": {"weight_decay": {"low": 0.0, "high": 1e-3}, "cross_entropy_weight": [0.5, 1.0]},
        "earliest": {"learning_rate": RATE, "hidden": {"low": 3, "high": 9}},
        "tcn-transformer": {"heads": {"low": 1, "high": 3}, "channels": {"low": 4, "high": 9}, "blocks": [1, 2]},
    } | changes


def batch_of(count, seed):
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, count)
    return Batch(labels, 2, (random.normal(size=(count, 6, 2)) + 0.8 * labels[:, None, None]).astype(np.float32))


@pytest.fixture(scope="module")
def contest():
    problem = DecisionProblem.create(classes=2, horizon=6, penalty=[5.0, 10.0], costs=[0.1, 1.0])
    parts = batch_of(80, 1), batch_of(60, 2), batch_of(50, 3)
    return Contest(*parts, prior=np.full(2, 0.5), problem=problem, seed=7, rows=np.arange(50))


def found_by(name, contest, file, seed=0, options=OPTIONS, **changes):
    return search(name, RivalSpaces.of(small(**changes)), contest, options, file, seed)


def kept_in(file):
    return optuna.load_study(study_name=None, storage=f"sqlite:///{file}")  # there is one


def trials_in(file):
    return kept_in(file).trials


# Spaces


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_every_space_that_ships_gives_rivals_that_can_be(file):
    spaces = RivalSpaces.of(yaml.safe_load(file.read_text()))
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    for name, choices in spaces.searched.items():
        for _ in range(20):
            trial = study.ask()
            make_rival(name, {key: suggest(trial, key, choice) for key, choice in choices.items()}, OPTIONS)
        assert {"learning_rate", "weight_decay", RIVALS[name].size} <= set(choices)


def test_the_papers_tables_are_there():
    assert [file.stem for file in FILES] == ["rivals-quick", "rivals"]
    spaces = RivalSpaces.of(yaml.safe_load(FILES[1].read_text()))
    assert (spaces.trials, spaces.pruner.percentile, spaces.updates) == (200, 40, None)
    assert spaces.searched["lstm-s"] == spaces.searched["lstm-m"]
    assert spaces.searched["lstm-s"]["units"] == Range(32, 512)
    for choices in spaces.searched.values():
        assert choices["optimizer"] == ("adam", "rmsprop", "lion")
        for best in (0.000002, 0.00425):  # the smallest and the largest that the paper found
            assert holds(choices["learning_rate"], best)
        assert holds(choices["weight_decay"], 0.01)
    tcn = spaces.searched["tcn-transformer"]
    assert [tcn["heads"], tcn["blocks"], tcn["dropout"]] == [Range(2, 4), Range(1, 3), Range(0.0, 0.5)]


@given(st.integers(1, 200), st.integers(1, 9))
def test_channels_are_rounded_up_to_what_heads_divide(channels, heads):
    made = make_rival("tcn-transformer", {"channels": channels, "heads": heads}, OPTIONS)
    assert channels <= made.channels < channels + heads
    assert made.channels % heads == 0


@given(st.floats(1e-9, 1.0), st.floats(1e-9, 1.0), st.booleans())
def test_ranges_are_read_or_refused(low, high, log):
    data = small(gru={"learning_rate": {"low": low, "high": high, "log": log}})
    if low > high:
        with pytest.raises(InvalidInput, match=r"gru\.learning_rate"):
            RivalSpaces.of(data)
    else:
        assert RivalSpaces.of(data).searched["gru"] == {"learning_rate": Range(low, high, log)}


@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 30))
def test_a_range_holds_what_lies_between_its_ends(one, other, value):
    low, high = sorted((one, other))
    assert holds(Range(low, high), value) == (low <= value <= high)
    assert not holds(Range(low, high), value + 0.5)
    assert holds(Range(float(low), float(high)), value) == (low <= value <= high)
    assert holds((one, other), value) == (value in (one, other))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"surprise": {}}, "have the keys.*surprise"),
        ({"trials": 0}, "trials.*whole number"),
        ({"trials": True}, "trials.*whole number"),
        ({"updates": 2.5}, "updates.*whole number"),
        ({"pruner": {"percentile": 140, "startup": 0.5, "warmup": 0.5}}, r"pruner\.percentile"),
        ({"pruner": {"percentile": 40}}, "pruner.*startup"),
        ({"pruner": {"percentile": "many", "startup": 0.5, "warmup": 0.5}}, "pruner.*numbers"),
        ({"gru": None}, "gru.*mapping"),
        ({"gru": {}}, "gru.*empty"),
        ({"gru": {"unit": [1]}}, r"gru\.unit.*one of.*'units'"),
        ({"gru": {"heads": [1]}}, r"gru\.heads"),
        ({"gru": {"epochs": [1]}}, r"gru\.epochs.*not searched"),
        ({"gru": {"units": 3}}, r"gru\.units.*list of choices"),
        ({"gru": {"units": {"low": 0, "high": 3}}}, r"gru\.units.*whole number"),
        ({"gru": {"units": {"low": 1.0, "high": 3.5}}}, r"gru\.units.*whole number"),
        ({"gru": {"learning_rate": {"low": 0.0, "high": 1.0}}}, r"gru\.learning_rate.*positive"),
        ({"gru": {"learning_rate": {"low": "1e-3", "high": 1.0}}}, r"gru\.learning_rate.*'1e-3'"),
        ({"gru": {"learning_rate": ["1e-3"]}}, r"gru\.learning_rate.*number.*'1e-3'"),
        ({"gru": {"optimizer": ["adam", "adamm"]}}, r"gru\.optimizer.*adamm"),
        ({"lstm-m": {"cross_entropy_weight": {"low": 0.0, "high": 1.0}}}, r"lstm-m\.cross_entropy_weight.*positive"),
        ({"lstm-s": {"kind": ["s", "m"]}}, r"lstm-s\.kind"),
        ({"earliest": {"waiting": ["mean", "median"]}}, r"earliest\.waiting.*median"),
        ({"tcn-transformer": {"heads": [0]}}, r"tcn-transformer\.heads.*whole number"),
        ({"tcn-transformer": {"dropout": {"low": 0.0, "high": 1.0}}}, r"tcn-transformer\.dropout"),
    ],
)
def test_spaces_that_make_no_sense_are_refused(changes, message):
    with pytest.raises(InvalidInput, match=message):
        RivalSpaces.of(small(**changes))


def test_what_is_no_rival_is_refused(contest, tmp_path):
    with pytest.raises(InvalidInput, match="search space of the rivals"):
        RivalSpaces.of(None)
    with pytest.raises(InvalidInput, match=r"rival.*calimera"):
        found_by("calimera", contest, tmp_path / "study.db")


def test_rivals_have_what_was_chosen_and_the_studys_options_for_the_rest():
    rate = replace(TRAINING, learning_rate=0.5)
    assert make_gru({"learning_rate": 0.5}, OPTIONS) == PlainGru(6, rate)
    assert make_rival("gru", {}, OPTIONS) == ThresholdOn(PlainGru(6, TRAINING), 8)
    assert make_rival("lstm-m", {"units": 4}, OPTIONS) == ThresholdOn(MonotoneLstm("m", 4, training=TRAINING), 8)
    assert make_rival("earliest", {}, OPTIONS) == Earliest(hidden=5, waiting="sum", training=TRAINING)
    assert make_rival("tcn-transformer", {"blocks": 2}, OPTIONS) == TcnTransformer(
        channels=8, blocks=2, training=TRAINING
    )


# Searches


@pytest.mark.parametrize("name", RIVALS)
def test_the_score_is_what_the_rival_pays_that_enters(name, contest, tmp_path):
    """In the study, ways are chosen by `paid_before`; the best options pay as little as the study's own, or less."""
    found = found_by(name, contest, tmp_path / "study.db")
    assert set(found.options) == set(small()[name])
    for options, score in ((found.options, found.score), ({}, found.untuned)):
        entered = enter(make_rival(name, options, OPTIONS), contest)
        assert score == pytest.approx(entered.paid_before.min(axis=0).mean() / 10.0)
    assert found.score <= found.untuned
    assert (found.trials, found.pruned) == (4, sum(t.state.name == "PRUNED" for t in trials_in(tmp_path / "study.db")))


def test_the_studys_own_options_come_first_wherever_they_lie(contest, tmp_path):
    found_by("gru", contest, tmp_path / "inside.db", trials=1)
    inside = trials_in(tmp_path / "inside.db")[0]
    assert inside.params == {"learning_rate": 1e-2, "units": 6}
    gru = {"learning_rate": {"low": 1e-5, "high": 1e-4}, "units": [4, 6]}
    found = found_by("gru", contest, tmp_path / "outside.db", trials=1, gru=gru)
    outside = trials_in(tmp_path / "outside.db")[0]
    assert outside.params == {"units": 6}
    assert outside.value == inside.value == found.score == found.untuned
    assert found.options == {"learning_rate": 1e-2, "units": 6}


def test_a_seed_decides_everything(contest, tmp_path):
    one, again, other = (
        (
            found_by("gru", contest, tmp_path / f"{place}.db", seed),
            [t.params for t in trials_in(tmp_path / f"{place}.db")],
        )
        for place, seed in enumerate((0, 0, 1))
    )
    assert one == again
    assert one[1] != other[1]


def test_a_killed_search_ends_as_if_it_had_not_been(contest, tmp_path):
    whole = found_by("earliest", contest, tmp_path / "whole.db", trials=6)
    killed = tmp_path / "killed.db"

    class Killed(BaseException):
        pass

    def kill(done, trials):
        assert trials == 6
        if done == 2:
            raise Killed

    spaces = RivalSpaces.of(small(trials=6))
    with pytest.raises(Killed):
        search("earliest", spaces, contest, OPTIONS, killed, 0, kill)
    kept_in(killed).ask()  # left open
    seen = []
    assert search("earliest", spaces, contest, OPTIONS, killed, 0, lambda *told: seen.append(told)) == whole
    assert seen == [(3, 6), (4, 6), (5, 6), (6, 6)]
    states = [trial.state.name for trial in trials_in(killed)]
    assert (states.count("FAIL"), len(states)) == (1, 7)
    done = [trial.params for trial in trials_in(killed) if trial.state.name != "FAIL"]
    assert done == [trial.params for trial in trials_in(tmp_path / "whole.db")]
    assert found_by("earliest", contest, killed, trials=6) == whole  # nothing is left to do


def test_a_kill_in_the_first_trial_does_not_lose_the_studys_own_options(contest, tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    def kill(*_):
        raise Killed

    file = tmp_path / "study.db"
    with monkeypatch.context() as patch:
        patch.setattr("firmbound.study.search.score_of", kill)
        with pytest.raises(Killed):
            found_by("gru", contest, file)
    assert [trial.state.name for trial in trials_in(file)] == ["RUNNING"]
    found = found_by("gru", contest, file, trials=2)
    assert found.untuned is not None
    assert [trial.state.name for trial in trials_in(file)] == ["FAIL", "COMPLETE", "COMPLETE"]
    assert trials_in(file)[1].params == {"learning_rate": 1e-2, "units": 6}


def test_test_sequences_are_never_looked_at(contest, tmp_path):
    garbage = Batch(1 - contest.test.labels, 2, np.full_like(contest.test.features, 1e30))
    for name in ("gru", "tcn-transformer"):
        found = found_by(name, contest, tmp_path / "one.db", trials=2)
        assert found == found_by(name, replace(contest, test=garbage), tmp_path / "other.db", trials=2)
    assert found == found_by(name, replace(contest, test=None), tmp_path / "none.db", trials=2)


def test_other_sequences_spaces_and_problems_are_other_searches(contest, tmp_path):
    file, first = tmp_path / "study.db", []
    dearer = DecisionProblem.create(classes=2, horizon=6, penalty=10.0, costs=[0.1, 1.0])
    spaces = RivalSpaces.of(small(trials=1))
    for one, options, space, seed in (
        (contest, OPTIONS, spaces, 0),
        (contest, OPTIONS, replace(spaces, trials=2), 0),  # goes on with the first
        (replace(contest, validation=batch_of(60, 9)), OPTIONS, spaces, 0),
        (replace(contest, problem=dearer), OPTIONS, spaces, 0),
        (replace(contest, seed=8), OPTIONS, spaces, 0),
        (contest, replace(OPTIONS, units=7), spaces, 0),
        (contest, OPTIONS, replace(spaces, updates=2), 0),
        (contest, OPTIONS, spaces, 1),
    ):
        told = []
        search("gru", space, one, options, file, seed, lambda done, _, told=told: told.append(done))
        first.append(told)
    assert first == [[1], [2], [1], [1], [1], [1], [1], [1]]


def test_a_diverging_trial_is_pruned_not_fatal(contest, tmp_path):
    wild = {"learning_rate": [1e37], "clip": [1e30]}
    found = found_by("gru", contest, tmp_path / "study.db", trials=3, gru=wild)
    assert [trial.state.name for trial in trials_in(tmp_path / "study.db")] == ["COMPLETE", "PRUNED", "PRUNED"]
    assert found.options == {"learning_rate": 1e-2, "clip": 1.0}
    assert (found.score, found.trials, found.pruned) == (found.untuned, 3, 2)


def test_where_all_diverge_the_studys_options_are_kept(contest, tmp_path):
    options = replace(OPTIONS, training=replace(TRAINING, learning_rate=1e37, clip=1e30))
    found = found_by("gru", contest, tmp_path / "study.db", options=options, trials=2, gru={"learning_rate": [1e37]})
    assert (found.options, found.score, found.untuned) == ({"learning_rate": 1e37}, None, None)
    assert (found.trials, found.pruned) == (2, 2)


def test_hopeless_trials_end_early_the_studys_own_never(contest, tmp_path):
    hopeless = {"learning_rate": {"low": 1e-9, "high": 2e-9}, "hidden": [5]}
    file = tmp_path / "study.db"
    pruner = {"percentile": 50, "startup": 0.0, "warmup": 0.5}
    found = found_by("earliest", contest, file, trials=3, pruner=pruner, earliest=hopeless)
    states = [(trial.state.name, sorted(trial.intermediate_values)) for trial in trials_in(file)]
    # The losses of the second network are not those of the first: they are not told.
    assert states == [("COMPLETE", [1, 2, 3]), ("PRUNED", [1]), ("PRUNED", [1])]
    assert found.pruned == 2


def test_trials_whose_losses_differ_in_kind_are_not_compared(contest, tmp_path):
    found_by("lstm-s", contest, tmp_path / "study.db", pruner={"percentile": 0, "startup": 0.0, "warmup": 0.0})
    assert all(t.state.name == "COMPLETE" and not t.intermediate_values for t in trials_in(tmp_path / "study.db"))


@pytest.mark.parametrize(
    ("rates", "kept"),
    [([1e-3], 1e-2), ([5e-2], 5e-2)],
    ids=["the study's own are better in full", "what was found is better in full"],
)
def test_after_short_trials_the_better_in_full_is_kept(rates, kept, contest, tmp_path, monkeypatch):
    file, asked = tmp_path / "study.db", []

    class Told:
        """Pays 0.3 with the study's own rate; with another less in short trials, and in full more if it is lower."""

        def __init__(self, name, chosen, options):
            self.rate, self.short = chosen["learning_rate"], "after_epoch" in chosen
            asked.append((self.rate, self.short))

        def fit(self, *_, seed):
            return 0.3 if self.rate == 1e-2 else 0.1 if self.short or self.rate > 1e-2 else 0.4

    monkeypatch.setattr("firmbound.study.search.make_rival", lambda *of: Told(*of) if of[1] else make_rival(*of))
    monkeypatch.setattr("firmbound.study.search.score_of", lambda fitted, *_: fitted)
    for _ in range(2):  # the second time, all is known
        found = found_by("gru", contest, file, trials=2, updates=2, gru={"learning_rate": rates})
        assert found.options == {"learning_rate": kept}
        assert (found.score, found.untuned) == (0.3 if kept == 1e-2 else 0.1, 0.3)
    assert asked == [(1e-2, True), (rates[0], True), (rates[0], False), (1e-2, False)]


def test_trials_train_as_long_as_the_space_says(contest, tmp_path):
    found_by("gru", contest, tmp_path / "study.db", trials=1, updates=9)  # 80 sequences in batches of 40
    assert sorted(trials_in(tmp_path / "study.db")[0].intermediate_values) == [1, 2, 3, 4, 5]
