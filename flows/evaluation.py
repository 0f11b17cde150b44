"""Stage `evaluation`: score the rule, the static thresholds and, where there is one, the exact optimum on test data."""

import csv
import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray
from prefect import flow

from firmbound.arrays import Floats, Ints
from firmbound.baselines.static_threshold import sweep, threshold_grid, tune_thresholds
from firmbound.evaluation.boundary import continuation_interval
from firmbound.evaluation.estimates import mean_of, relative_excess
from firmbound.evaluation.risk import believed_risk, realised_risk
from firmbound.evaluation.risk_gap import Alarm
from firmbound.evaluation.score import Score, score
from firmbound.oracle import Oracle
from firmbound.publishing import publish
from firmbound.stopping_rule import StoppingRule
from firmbound.store import TrajectoryStore
from firmbound.trajectories import Decisions
from flows.assembly import assemble
from flows.evidence import choice_of, evidence_store
from flows.held import held, stamp
from flows.honesty import Row, is_judged, judge_calibration, judge_risks
from flows.optimum import gaussian_behind, optimum_of
from flows.params import Evaluation, GeneratedFeatures, LearnedEvidence, Params
from flows.progress import progress
from flows.runners import work_task
from flows.stage import main, reports_failure, stage_folder

RISKS = ("realised_risk", "realised_risk_error", "aapr", "aapr_error")
HEADLINES = ("mean_time", "error_rate", *RISKS, "risk_gap", "risk_gap_error", "expected_risk", "excess", "regret")
# Stages whose results are judged.
BEFORE = ("features", "tandem", "refinement", "boundary")
CALIBRATION = "calibration"  # beside the costs in metrics.json


@flow(name="evaluation", flow_run_name="evaluation {dataset}")
@reports_failure
def evaluation_flow(dataset: str, params: Params) -> None:
    """Write data/<dataset>/evaluation: metrics, rows.json (every rule and threshold), calibration.json and a curve."""
    where = Where(dataset, stamp(*(stage_folder(dataset, name) for name in BEFORE)))
    trial = trial_of(where, params)
    costs, limits, judged = trial.rule.costs.tolist(), params.evaluation, is_judged(dataset, params)
    with progress(f"{dataset}: scoring {len(trial.labels):,} test sequences") as advance:
        oracle = work_task(solve_oracle, f"{dataset} oracle").submit(where, params)
        static = work_task(rows_of_thresholds, f"{dataset} static thresholds").submit(where, params)
        per_cost = [
            work_task(rows_of_rule, f"{dataset} cost {cost:g}").submit(where, params, oracle, cost) for cost in costs
        ]
        honesty = work_task(judge_beliefs, f"{dataset} calibration").submit(
            where, params, limits.calibration_limit if judged else None
        )
        rows: list[Row] = []
        for done, future in enumerate([*per_cost, static], start=1):
            rows += future.result()
            advance(done, len(per_cost) + 1)
    found = honesty.result() | {"risk": judge_risks(rows, limits.risk_gap_limit, judged)}
    with publish(stage_folder(dataset, "evaluation")) as folder:
        write_results(folder, trial.rule, oracle.result(), rows, found)
        ends = (trial.train_ends, trial.ends)
        model = assemble(dataset, params, trial.rule, trial.seen, trial.evidence, trial.labels, ends, trial.names)
        model.save(folder / "classifier")


@dataclass(frozen=True)
class Where:
    """What tasks are given: the data set, and a stamp that tells its state from earlier ones."""

    dataset: str
    stamp: str


@dataclass(frozen=True)
class Trial:
    """A rule and all it is judged by: evidence (n, T, K), labels (n,) and ends (n,) of test sequences, and the same of
    what the rule was fitted on, for that is what rivals are tuned on. exact: the evidence of test sequences that risks
    are counted with; None where it is not known. names: of the classes."""

    rule: StoppingRule
    evidence: NDArray[Any]
    labels: Ints
    ends: Ints
    exact: NDArray[Any] | None
    seen: NDArray[Any]
    train_labels: Ints
    train_ends: Ints
    names: tuple[str | int, ...]


@held
def trial_of(where: Where, params: Params) -> Trial:
    """Every process that scores reads it for itself, once."""
    dataset = where.dataset
    train, test = (evidence_store(dataset, split) for split in (params.boundary[dataset].fit_on, "test"))
    evidence = test.evidence()
    return Trial(
        StoppingRule.load(stage_folder(dataset, "boundary")),
        evidence,
        test.labels,
        test.lengths,
        exact_evidence(dataset, params, evidence),
        train.evidence(),
        train.labels,
        train.lengths,
        test.description.names,
    )


def solve_oracle(where: Where, params: Params) -> Oracle | None:
    """The exact optimum at the rule's costs, where there is one."""
    drawn = gaussian_behind(params.features[where.dataset])
    return None if drawn is None else optimum_of(drawn, trial_of(where, params).rule.problem)


def exact_evidence(dataset: str, params: Params, evidence: NDArray[Any]) -> NDArray[Any] | None:
    """Exact evidence of the test sequences, None where it is not known."""
    section = params.features[dataset]
    if not isinstance(section, GeneratedFeatures) or not section.problem("test").exact:
        return None
    if isinstance(params.tandem[dataset], LearnedEvidence) or choice_of(dataset)["refined"]:
        return TrajectoryStore(stage_folder(dataset, "features") / "test.zarr").evidence()
    return evidence


def judge_beliefs(where: Where, params: Params, limit: float | None) -> Row:
    trial = trial_of(where, params)
    return judge_calibration(trial.evidence, trial.labels, trial.ends, trial.rule.prior, limit)


def rows_of_rule(where: Where, params: Params, oracle: Oracle | None, cost: float) -> list[Row]:
    return score_rule(trial_of(where, params), oracle, cost, params.evaluation.risk_gap_limit)


def rows_of_thresholds(where: Where, params: Params) -> list[Row]:
    return score_static(trial_of(where, params), params.evaluation)


def score_rule(trial: Trial, oracle: Oracle | None, cost: float, limit: float) -> list[Row]:
    """The fitted rule at one cost and, on the same sequences, the optimum; risks are counted with exact evidence."""
    rule, exact = trial.rule, trial.exact
    chosen = rule.decide(trial.evidence, cost=cost, lengths=trial.ends)
    row = _row("firmbound", chosen, _score(rule, chosen, trial.evidence, trial.labels, cost), limit)
    if exact is None:
        return [row]
    ours = believed_risk(chosen, exact, rule.prior, rule.problem, cost)
    row["expected_risk"] = float(ours.mean())
    if oracle is None:
        return [row]
    best = oracle.decide(exact, cost=cost)
    least = believed_risk(best, exact, rule.prior, rule.problem, cost)
    excess, regret = relative_excess(ours, least), mean_of(oracle.regret(exact, chosen, cost=cost))
    bayes = float(oracle.bayes_risk[oracle.problem.cost_index(cost)])
    row |= {
        "excess": excess.value,
        "excess_error": excess.standard_error,
        "regret": regret.value / bayes,
        "regret_error": regret.standard_error / bayes,
    }
    optimum = _row("optimum", best, _score(rule, best, exact, trial.labels, cost), limit) | {"bayes_risk": bayes}
    return [row, optimum]


def score_static(trial: Trial, options: Evaluation) -> list[Row]:
    """A sweep of thresholds at every cost, and those that are best on *training* data.

    A rule is chosen by what it pays, so the one of least realised risk is marked `chosen`; the one of least believed
    risk, `least_believed`, is there for comparisons of AAPR alone.
    """
    rows = []
    rule, seen, evidence = trial.rule, trial.seen, trial.evidence
    grid = [float(a) for a in threshold_grid(seen, options.thresholds, trial.train_ends)]
    swept = sweep(evidence, grid, trial.ends)
    costs = rule.costs.tolist()
    measures = [partial(_average_paid, trial.train_labels, rule, cost) for cost in costs]
    measures += [partial(_average_believed, seen, rule, cost) for cost in costs]
    tuned = tune_thresholds(seen, measures, options.thresholds, trial.train_ends)
    for cost, paid, believed in zip(costs, tuned[: len(costs)], tuned[len(costs) :], strict=True):
        cases = [(a, decisions, "") for a, decisions in zip(grid, swept, strict=True)]
        for best, mark in ((paid, "chosen"), (believed, "least_believed")):
            cases.append((best.threshold, best.decide(evidence, trial.ends), mark))
        for threshold, decisions, mark in cases:
            scored = _score(rule, decisions, evidence, trial.labels, cost)
            row = _row("static", decisions, scored, options.risk_gap_limit)
            marks = {"chosen": mark == "chosen", "least_believed": mark == "least_believed"}
            rows.append(row | {"threshold": threshold} | marks)
    return rows


def _average_paid(labels: Ints, rule: StoppingRule, cost: float, decisions: Decisions) -> float:
    return float(realised_risk(decisions, labels, rule.problem, cost).mean())


def _average_believed(evidence: NDArray[Any], rule: StoppingRule, cost: float, decisions: Decisions) -> float:
    return float(believed_risk(decisions, evidence, rule.prior, rule.problem, cost).mean())


def _score(rule: StoppingRule, decisions: Decisions, evidence: NDArray[Any], labels: Ints, cost: float) -> Score:
    return score(decisions, evidence=evidence, labels=labels, prior=rule.prior, problem=rule.problem, cost=cost)


def _row(method: str, decisions: Decisions, scored: Score, limit: float) -> Row:
    counts = np.bincount(decisions.time, minlength=decisions.horizon + 1)[1:]
    alarm = scored.gap.alarm(limit)
    return {"method": method, **scored.as_dict(), "alarm": alarm, "time_counts": counts.tolist()}


def write_results(folder: Path, rule: StoppingRule, oracle: Oracle | None, rows: list[Row], honesty: Row) -> None:
    (folder / "rows.json").write_text(json.dumps(rows) + "\n")
    (folder / "metrics.json").write_text(json.dumps(_metrics(rows, honesty), indent=2) + "\n")
    (folder / "calibration.json").write_text(json.dumps(honesty) + "\n")
    boundaries = {str(cost): _interval(oracle, cost) for cost in rule.costs.tolist()}
    (folder / "optimal_boundary.json").write_text(json.dumps(boundaries) + "\n")
    with (folder / "speed_accuracy.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["method", "cost", "mean_time", "error_rate", *RISKS], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(row for row in rows if row["method"] != "static" or row["cost"] == rule.costs[0])


def _metrics(rows: list[Row], honesty: Row) -> dict[str, dict[str, float]]:
    """What `dvc metrics show` prints: for each cost the rule, and the rivals' risks. All the rest is in rows.json.

    Alarms are 0 or 1. Of static thresholds each risk is that of the one which is best by it on training data.
    """
    metrics: dict[str, dict[str, float]] = {
        CALIBRATION: {
            "largest_error": max(honesty["error"]),
            "mean_negative_log_likelihood": float(np.mean(honesty["negative_log_likelihood"])),
            "largest_ratio": honesty["largest_ratio"],
        }
    }
    for row in rows:
        here = metrics.setdefault(f"cost {row['cost']:g}", {})
        if row["method"] == "firmbound":
            here |= {name: row[name] for name in HEADLINES if name in row}
            here |= {name: int(row["alarm"] == name) for name in get_args(Alarm)}
        elif row["method"] == "optimum":
            here |= {f"optimal_{name}": row[name] for name in RISKS}
        elif row["chosen"]:
            here |= {f"static_{name}": row[name] for name in RISKS[:2]}
        elif row["least_believed"]:
            here |= {f"static_{name}": row[name] for name in RISKS[2:]}
    return metrics


def _interval(oracle: Oracle | None, cost: float) -> list[list[float | None]] | None:
    if oracle is None or oracle.problem.classes != 2:
        return None
    interval: Floats = continuation_interval(oracle, cost)
    return [[None if np.isnan(end) else float(end) for end in ends] for ends in interval]


if __name__ == "__main__":
    main("evaluation")
