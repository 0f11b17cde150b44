"""Stage `evaluation`: score the rule, the static thresholds and, where there is one, the exact optimum on test data."""

import csv
import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from prefect import flow

from firmbound.arrays import Floats, Ints
from firmbound.baselines.static_threshold import sweep, threshold_grid, tune_threshold
from firmbound.datasets import GaussianProblem
from firmbound.evaluation.boundary import continuation_interval
from firmbound.evaluation.calibration import calibration, reliability
from firmbound.evaluation.estimates import mean_of, relative_excess
from firmbound.evaluation.risk import believed_risk
from firmbound.evaluation.score import Score, score
from firmbound.oracle import Oracle, solve_gaussian
from firmbound.posterior import posterior
from firmbound.publishing import publish
from firmbound.stopping_rule import StoppingRule
from firmbound.store import TrajectoryStore
from firmbound.trajectories import Decisions
from flows.assembly import assemble
from flows.params import GeneratedFeatures, LearnedEvidence, Params
from flows.progress import progress
from flows.runners import work_task
from flows.stage import main, reports_failure, stage_folder

Row = dict[str, Any]
HEADLINES = ("mean_time", "error_rate", "realised_risk", "aapr", "expected_risk", "excess", "regret")
ENOUGH = 500  # sequences
CALIBRATION = "calibration"  # beside the costs in metrics.json


@flow(name="evaluation", flow_run_name="evaluation {dataset}")
@reports_failure
def evaluation_flow(dataset: str, params: Params) -> None:
    """Write data/<dataset>/evaluation: metrics, rows.json (every rule and threshold), calibration.json and a curve."""
    source = stage_folder(dataset, "tandem")
    rule = StoppingRule.load(stage_folder(dataset, "boundary"))
    # What the rule was fitted on is what rivals are tuned on.
    train, test = (TrajectoryStore(source / f"{split}.zarr") for split in (params.boundary[dataset].fit_on, "test"))
    evidence, labels, seen = test.evidence(), test.labels, train.evidence()
    ends = (train.lengths, test.lengths)
    exact = exact_evidence(dataset, params, evidence)
    with progress(f"{dataset}: scoring {len(labels):,} test sequences") as advance:
        oracle = work_task(solve_oracle, f"{dataset} oracle").submit(params, dataset, rule)
        static = work_task(score_static, f"{dataset} static thresholds").submit(
            rule, seen, evidence, labels, ends, params.evaluation.thresholds
        )
        per_cost = [
            work_task(score_rule, f"{dataset} cost {cost:g}").submit(
                rule, oracle, evidence, exact, labels, ends[1], cost
            )
            for cost in rule.costs.tolist()
        ]
        honesty = work_task(judge_calibration, f"{dataset} calibration").submit(
            evidence, labels, ends[1], rule.prior, limit_of(dataset, params)
        )
        rows: list[Row] = []
        for done, future in enumerate([*per_cost, static], start=1):
            rows += future.result()
            advance(done, len(per_cost) + 1)
    with publish(stage_folder(dataset, "evaluation")) as folder:
        write_results(folder, rule, oracle.result(), rows, honesty.result())
        names = test.description.names
        assemble(dataset, params, rule, seen, evidence, labels, ends, names).save(folder / "classifier")


def solve_oracle(params: Params, dataset: str, rule: StoppingRule) -> Oracle | None:
    """The exact optimum, for Gaussian problems of two or three classes."""
    section = params.features[dataset]
    problem = section.problem("train") if isinstance(section, GeneratedFeatures) else None
    if not isinstance(problem, GaussianProblem) or problem.classes > 3:
        return None
    return solve_gaussian(problem, costs=rule.costs, penalty=rule.problem.penalty, delay=rule.problem.delay)


def exact_evidence(dataset: str, params: Params, evidence: NDArray[Any]) -> NDArray[Any] | None:
    """Exact evidence of the test sequences, None where it is not known."""
    section = params.features[dataset]
    if not isinstance(section, GeneratedFeatures) or not section.problem("test").exact:
        return None
    if isinstance(params.tandem[dataset], LearnedEvidence):
        return TrajectoryStore(stage_folder(dataset, "features") / "test.zarr").evidence()
    return evidence


def limit_of(dataset: str, params: Params) -> float | None:
    """Evidence that was learned is held to a limit; what is given is shown as it is."""
    learned = isinstance(params.tandem[dataset], LearnedEvidence)
    return params.evaluation.calibration_limit if learned else None


def judge_calibration(evidence: NDArray[Any], labels: Ints, ends: Ints, prior: Floats, limit: float | None) -> Row:
    """How far beliefs can be trusted at each t, and whether they pass: what report and registry go by."""
    found = calibration(evidence, labels, prior, ends)
    horizon, judged = int(ends.max()), _judged(ends)
    drawn = sorted({1, max(1, horizon // 5), max(1, horizon // 2), horizon})
    there = {t: ends >= t for t in drawn}
    curves = {
        str(t): asdict(reliability(posterior(evidence[here, t - 1], prior), labels[here])) for t, here in there.items()
    }
    return {
        "error": found.error.tolist(),
        "chance": found.chance.tolist(),
        "negative_log_likelihood": found.negative_log_likelihood.tolist(),
        "largest_ratio": found.largest_ratio,
        "saturated": found.saturated,
        "limit": limit,
        "judged": judged,
        "passes": limit is None or bool((found.error - found.chance)[:judged].max() <= limit),
        "reliability": {t: {name: array.tolist() for name, array in curve.items()} for t, curve in curves.items()},
    }


def _judged(ends: Ints) -> int:
    """The last step that enough test sequences reach to tell an error of calibration from chance."""
    return int(np.sort(ends)[::-1][min(ENOUGH, len(ends)) - 1])


def score_rule(
    rule: StoppingRule,
    oracle: Oracle | None,
    evidence: NDArray[Any],
    exact: NDArray[Any] | None,
    labels: Ints,
    ends: Ints,
    cost: float,
) -> list[Row]:
    """The fitted rule at one cost and, on the same sequences, the optimum; risks are counted with exact evidence."""
    chosen = rule.decide(evidence, cost=cost, lengths=ends)
    row = _row("firmbound", chosen, _score(rule, chosen, evidence, labels, cost))
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
    optimum = _row("optimum", best, _score(rule, best, exact, labels, cost)) | {"bayes_risk": bayes}
    return [row, optimum]


def score_static(
    rule: StoppingRule,
    train: NDArray[Any],
    evidence: NDArray[Any],
    labels: Ints,
    ends: tuple[Ints, Ints],
    count: int,
) -> list[Row]:
    """A sweep of thresholds at every cost, and the one of least believed risk on *training* data, marked chosen."""
    rows = []
    of_train, of_test = ends
    grid = [float(a) for a in threshold_grid(train, count, of_train)]
    swept = sweep(evidence, grid, of_test)
    for cost in rule.costs.tolist():
        best = tune_threshold(train, partial(_average_risk, train, rule, cost), count, of_train)
        cases = [*zip(grid, swept, strict=True), (best.threshold, best.decide(evidence, of_test))]
        for index, (threshold, decisions) in enumerate(cases):
            row = _row("static", decisions, _score(rule, decisions, evidence, labels, cost))
            rows.append(row | {"threshold": threshold, "chosen": index == count})
    return rows


def _average_risk(evidence: NDArray[Any], rule: StoppingRule, cost: float, decisions: Decisions) -> float:
    return float(believed_risk(decisions, evidence, rule.prior, rule.problem, cost).mean())


def _score(rule: StoppingRule, decisions: Decisions, evidence: NDArray[Any], labels: Ints, cost: float) -> Score:
    return score(decisions, evidence=evidence, labels=labels, prior=rule.prior, problem=rule.problem, cost=cost)


def _row(method: str, decisions: Decisions, scored: Score) -> Row:
    counts = np.bincount(decisions.time, minlength=decisions.horizon + 1)[1:]
    return {"method": method, **scored.as_dict(), "time_counts": counts.tolist()}


def write_results(folder: Path, rule: StoppingRule, oracle: Oracle | None, rows: list[Row], honesty: Row) -> None:
    (folder / "rows.json").write_text(json.dumps(rows) + "\n")
    (folder / "metrics.json").write_text(json.dumps(_metrics(rows, honesty), indent=2) + "\n")
    (folder / "calibration.json").write_text(json.dumps(honesty) + "\n")
    boundaries = {str(cost): _interval(oracle, cost) for cost in rule.costs.tolist()}
    (folder / "optimal_boundary.json").write_text(json.dumps(boundaries) + "\n")
    with (folder / "speed_accuracy.csv").open("w", newline="") as file:
        writer = csv.DictWriter(
            file, ["method", "cost", "mean_time", "error_rate", "realised_risk"], extrasaction="ignore"
        )
        writer.writeheader()
        writer.writerows(row for row in rows if row["method"] != "static" or row["cost"] == rule.costs[0])


def _metrics(rows: list[Row], honesty: Row) -> dict[str, dict[str, float]]:
    """What `dvc metrics show` prints: for each cost the rule, and the rivals' risks. All the rest is in rows.json."""
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
        elif row["method"] == "optimum":
            here["optimal_aapr"] = row["aapr"]
        elif row["chosen"]:
            here |= {"static_aapr": row["aapr"], "static_realised_risk": row["realised_risk"]}
    return metrics


def _interval(oracle: Oracle | None, cost: float) -> list[list[float | None]] | None:
    if oracle is None or oracle.problem.classes != 2:
        return None
    interval: Floats = continuation_interval(oracle, cost)
    return [[None if np.isnan(end) else float(end) for end in ends] for ends in interval]


if __name__ == "__main__":
    main("evaluation")
