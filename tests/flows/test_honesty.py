"""What evaluation finds of both risks, what the gate makes of it, and how it is told."""

import csv
import json
from types import SimpleNamespace

import numpy as np
import pytest

import firmbound
from firmbound.baselines.static_threshold import StaticThreshold, sweep, threshold_grid
from firmbound.evaluation.risk import believed_risk, realised_risk
from flows.evaluation import Trial, score_rule, score_static, write_results
from flows.gate import alarms, overview, refusal
from flows.honesty import judge_calibration, judge_risks
from flows.params import Evaluation
from flows.pipeline import summary
from flows.registry import Standing
from flows.stage import stage_folder

COSTS = [0.05, 0.5]
# Importing MLflow warns; that is its to mend.
pytestmark = pytest.mark.filterwarnings("default")
OPTIONS = Evaluation(thresholds=20, calibration_limit=0.05, risk_gap_limit=0.05)


def problem_of(kind, sequences, seed):
    if kind == "oscillating":
        return firmbound.datasets.oscillating(sequences, 12, seed)
    return firmbound.datasets.gaussian(2, sequences, 12, seed, dimension=2, separation=0.6)


class Judged:
    """Rows of a rule and its rivals, as the stage makes them."""

    def __init__(self, kind):
        self.train, self.test = problem_of(kind, 4_000, 1), problem_of(kind, 4_000, 2)
        self.rule = firmbound.fit_stopping_rule(self.train.evidence, costs=COSTS)
        ends = (np.full(4_000, 12),) * 2
        evidence, labels = self.test.evidence, self.test.labels
        self.rows = []
        trial = Trial(
            self.rule, evidence, labels, ends[1], None, self.train.evidence, self.train.labels, ends[0], names=()
        )
        for cost in COSTS:
            self.rows += score_rule(trial, None, cost, OPTIONS.risk_gap_limit)
        self.rows += score_static(trial, OPTIONS)

    def honesty(self, judged):
        ends = np.full(4_000, 12)
        limit = 1.0 if judged else None
        found = judge_calibration(self.test.evidence, self.test.labels, ends, self.rule.prior, limit)
        return found | {"risk": judge_risks(self.rows, OPTIONS.risk_gap_limit, judged)}


@pytest.fixture(scope="module")
def made_up():
    return Judged("oscillating")


@pytest.fixture(scope="module")
def exact():
    return Judged("gaussian")


def test_each_rival_is_the_best_by_its_own_measure_on_training_data(made_up):
    train, rule = made_up.train, made_up.rule
    swept = sweep(train.evidence, threshold_grid(train.evidence, OPTIONS.thresholds))
    for cost in COSTS:
        here = [row for row in made_up.rows if row["method"] == "static" and row["cost"] == cost]
        assert len(here) == OPTIONS.thresholds + 2
        (paid,) = [row for row in here if row["chosen"]]
        (believed,) = [row for row in here if row["least_believed"]]

        def average(decisions, cost=cost):
            truth = realised_risk(decisions, train.labels, rule.problem, cost).mean()
            return truth, believed_risk(decisions, train.evidence, rule.prior, rule.problem, cost).mean()

        for row, measure in ((paid, 0), (believed, 1)):
            tuned = average(StaticThreshold(row["threshold"]).decide(train.evidence))
            assert tuned[measure] <= min(average(decisions)[measure] for decisions in swept)
        assert paid["realised_risk"] < believed["realised_risk"]  # what it believes misleads it
        assert believed["aapr"] < paid["aapr"]


def test_results_hold_both_risks_with_their_errors(made_up, tmp_path):
    write_results(tmp_path, made_up.rule, None, made_up.rows, made_up.honesty(True))
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    for cost in COSTS:
        found = metrics[f"cost {cost:g}"]
        here = [row for row in made_up.rows if row["cost"] == cost]
        ours = next(row for row in here if row["method"] == "firmbound")
        for name in ("aapr", "realised_risk", "risk_gap"):
            assert (found[name], found[f"{name}_error"]) == (ours[name], ours[f"{name}_error"])
        assert (found["overconfident"], found["underconfident"]) == (1, 0)
        marked = {mark: next(row for row in here if row.get(mark)) for mark in ("chosen", "least_believed")}
        assert found["static_realised_risk"] == marked["chosen"]["realised_risk"]
        assert found["static_realised_risk_error"] == marked["chosen"]["realised_risk_error"]
        assert found["static_aapr"] == marked["least_believed"]["aapr"]
        assert all(isinstance(float(value), float) for value in found.values())  # as MLflow wants them
    with (tmp_path / "speed_accuracy.csv").open() as file:
        first = next(csv.DictReader(file))
    assert float(first["realised_risk"]) == pytest.approx(made_up.rows[0]["realised_risk"])
    assert float(first["realised_risk_error"]) == pytest.approx(made_up.rows[0]["realised_risk_error"])
    assert float(first["aapr"]) == pytest.approx(made_up.rows[0]["aapr"])


@pytest.fixture
def refused(tmp_path, monkeypatch):
    """The gate's word on what evaluation wrote."""
    monkeypatch.chdir(tmp_path)

    def ask(honesty):
        folder = stage_folder("some", "evaluation")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "calibration.json").write_text(json.dumps(honesty))
        return refusal("some")

    return ask


def test_learned_evidence_that_is_overconfident_makes_no_champion(made_up, exact, refused):
    reason = refused(made_up.honesty(judged=True))
    worst = max(made_up.rows[:2], key=lambda row: row["risk_gap"] / row["realised_risk"])
    assert reason.startswith(f"it pays more than it believes: at a cost of {worst['cost']:g} it believes ")
    assert f"{worst['aapr']:.3f} and pays {worst['realised_risk']:.3f} ± {worst['realised_risk_error']:.3f}" in reason
    assert "limit of 0.05 of what it pays (params.yaml: evaluation.risk_gap_limit)" in reason
    assert refused(exact.honesty(judged=True)) is None


def test_given_evidence_is_shown_and_not_judged(made_up, refused):
    found = made_up.honesty(judged=False)
    assert refused(found) is None
    (said,) = alarms(found["risk"])
    assert said.startswith("The rule is overconfident: at a cost of 0.05 it believes")
    assert said.count("at a cost of") == len(COSTS)
    assert said.endswith("Judge it by what it pays.")


def test_too_little_confidence_is_shown_and_refuses_nothing(refused, exact):
    found = exact.honesty(judged=True)
    timid = [row | {"alarm": "underconfident"} for row in found["risk"]["costs"]]
    risk = judge_risks([row | {"method": "firmbound"} for row in timid], 0.05, True)
    assert refused(found | {"risk": risk}) is None
    assert alarms(risk)[0].startswith("The rule is underconfident")


def test_both_reasons_are_told(made_up, refused):
    found = made_up.honesty(judged=True) | {"passes": False, "limit": 0.1}
    reason = refused(found)
    assert reason.startswith("its evidence is not calibrated")
    assert "; and it pays more than it believes" in reason


def test_an_overview_names_both_risks_at_every_cost(made_up, exact):
    for judged, agree in ((made_up, False), (exact, True)):
        said = overview(judged.honesty(True)["risk"])
        assert said.startswith("The rule must be judged by what it pays: at a cost of 0.05 it believes")
        for row in judged.rows[:2]:
            told = (
                f"it believes {row['aapr']:.3f} and pays {row['realised_risk']:.3f} ± {row['realised_risk_error']:.3f}"
            )
            assert told in said
        assert ("The two agree" in said) == agree
    assert not alarms(exact.honesty(True)["risk"])


def test_the_summary_says_what_is_paid_and_who_is_overconfident(made_up, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = stage_folder("some", "evaluation")
    folder.mkdir(parents=True)
    write_results(folder, made_up.rule, None, made_up.rows, made_up.honesty(False))
    monkeypatch.setattr("flows.results.standing", lambda _: Standing("firmbound-some", "1", ["champion"], "promoted"))
    said = summary(SimpleNamespace(datasets=["some"]))
    for row in made_up.rows[:2]:
        paid = f"risk {row['realised_risk']:.3f} ± {row['realised_risk_error']:.3f}"
        assert f"{paid}, believed {row['aapr']:.3f} (overconfident)" in said
