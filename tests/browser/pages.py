"""Real pages of small problems: rules are fitted, scored and drawn by what the stages use."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from firmbound.arrays import Ints
from firmbound.datasets import GaussianProblem
from firmbound.evaluation.boundary import continuation_interval
from firmbound.oracle import Oracle
from firmbound.report.overview import overview_of
from firmbound.report.page import render_page
from firmbound.report.page_data import page_data
from firmbound.stopping_rule import StoppingRule
from firmbound.trajectories import Batch
from flows.evaluation import Trial, score_rule, score_static
from flows.gate import alarms, overview
from flows.honesty import judge_calibration, judge_risks
from flows.params import Evaluation
from flows.report import honesty_section, make_sections

LIMITS = Evaluation(thresholds=30, calibration_limit=0.05, risk_gap_limit=0.05)
SHOWN = 25


@dataclass(frozen=True)
class Report:
    """A page on disk with what went into it; costs rise, so the place of one is the slider's."""

    file: Path
    rule: StoppingRule
    shown: Batch
    rows: list[dict[str, Any]]
    data: dict[str, Any]

    @property
    def costs(self) -> list[float]:
        found: list[float] = self.data["costs"]
        return found

    def ours(self, place: int) -> dict[str, Any]:
        return next(r for r in self.rows if r["method"] == "firmbound" and r["cost"] == self.costs[place])


def write_report(
    file: Path,
    rule: StoppingRule,
    problem: GaussianProblem,
    *,
    dataset: str = "toy",
    oracle: Oracle | None = None,
    names: tuple[str, ...] = (),
    lengths: Ints | None = None,
    shown: int = SHOWN,
) -> Report:
    """Score the rule on the problem's sequences and write its page."""
    ends = np.full(len(problem.labels), rule.problem.horizon) if lengths is None else lengths
    evidence, labels = problem.evidence, problem.labels
    trial = Trial(rule, evidence, labels, ends, evidence, evidence, labels, ends, names=())
    rows = score_static(trial, LIMITS)
    for cost in rule.costs.tolist():
        rows += score_rule(trial, oracle, cost, LIMITS.risk_gap_limit)
    honesty = judge_calibration(evidence, labels, ends, rule.prior, LIMITS.calibration_limit)
    honesty["risk"] = judge_risks(rows, LIMITS.risk_gap_limit, judged=True)
    batch = Batch(labels, rule.problem.classes, evidence=evidence, lengths=ends).part(slice(shown))
    optimal = {str(cost): boundary_of(oracle, cost) for cost in rule.costs.tolist()}
    data = page_data(rule, batch, rows, optimal, honesty, names)
    facts = {
        "classes": rule.problem.classes,
        "horizon": rule.problem.horizon,
        "penalty": rule.problem.scale,
        "train": len(labels),
        "test": len(labels),
        "fit": {},
        "doubt": None,
        "evidence": "given",
        "temperature": None,
        "risks": overview(honesty["risk"]),
        "refinement": "Evidence is as it came, not refined: asked for.",
        "warnings": alarms(honesty["risk"]),
    }
    sections = [*make_sections(rule, batch, rows, optimal), honesty_section(honesty)]
    told = overview_of(rule, rows, refined=False)
    file.write_text(render_page(dataset, facts, told, rows, data, sections))
    file.with_suffix(".json").write_text(json.dumps(rows))
    return Report(file, rule, batch, rows, data)


def boundary_of(oracle: Oracle | None, cost: float) -> list[list[float | None]] | None:
    if oracle is None or oracle.problem.classes != 2:
        return None
    found = continuation_interval(oracle, cost)
    return [[None if np.isnan(end) else float(end) for end in ends] for ends in found]
