"""Stage `report`: figures and the HTML page; the run and the rule go to MLflow."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from prefect import flow, get_run_logger

from firmbound.bundle import read_header
from firmbound.continuation.surface import worst_facts
from firmbound.evaluation.calibration import SATURATION
from firmbound.memory import memory_of
from firmbound.publishing import publish
from firmbound.report import figures
from firmbound.report.overview import overview_of
from firmbound.report.page import Section, render_page
from firmbound.report.page_data import page_data
from firmbound.stopping_rule import StoppingRule
from firmbound.temperature import in_words, read_temperatures
from firmbound.trajectories import Batch
from flows.evidence import choice_of, evidence_store
from flows.gate import alarms, overview, refusal
from flows.params import Params
from flows.results import log_results
from flows.stage import main, reports_failure, stage_folder


@flow(name="report", flow_run_name="report {dataset}")
@reports_failure
def report_flow(dataset: str, params: Params) -> None:
    """Write data/<dataset>/report: index.html and figures/*.png; log and register with MLflow."""
    rule = StoppingRule.load(stage_folder(dataset, "boundary"))
    test = evidence_store(dataset, "test")
    results = stage_folder(dataset, "evaluation")
    rows = json.loads((results / "rows.json").read_text())
    optimal = json.loads((results / "optimal_boundary.json").read_text())
    honesty = json.loads((results / "calibration.json").read_text())
    # A shard is enough to look at; all of them are in the scores already.
    some = next(test.batches(features=False))
    drawn = some.part(slice(params.report.trajectories))
    choice = choice_of(dataset)
    sections = [*make_sections(rule, drawn, rows, optimal), honesty_section(honesty)]
    told = overview_of(rule, rows, refined=bool(choice["refined"]))
    data = page_data(rule, drawn, rows, optimal, honesty, test.description.names)
    facts = {
        "classes": rule.problem.classes,
        "horizon": rule.problem.horizon,
        "penalty": params.boundary[dataset].penalty,
        "train": evidence_store(dataset, params.boundary[dataset].fit_on).description.sequences,
        "test": test.description.sequences,
        "fit": worst_facts(rule.surfaces),
        "doubt": doubt_at_decisions(rule, some),
        "evidence": params.tandem[dataset].evidence,
        "temperature": temperature(dataset),
        "risks": overview(honesty["risk"]),
        "refinement": refinement_told(choice),
        "warnings": warnings(dataset, honesty),
    }
    with publish(stage_folder(dataset, "report")) as folder:
        write_report(folder, render_page(dataset, facts, told, rows, data, sections), sections)
    version = log_results(dataset, params)
    get_run_logger().info("%s: registered as version %s of the model", dataset, version)
    for warning in warnings(dataset, honesty):
        get_run_logger().warning("%s: %s", dataset, warning)


def temperature(dataset: str) -> str | None:
    """What learned evidence was divided by; None where it is given, or as the network says it."""
    network = stage_folder(dataset, "tandem") / "network"
    found = read_temperatures(read_header(network)) if network.is_dir() else np.ones(1)
    return None if np.all(found == 1) else in_words(found)


def refinement_told(choice: dict[str, Any]) -> str:
    """What was chosen, why, and at every cost what decisions cost without and with refinement."""
    told = f"Evidence is {'refined' if choice['refined'] else 'as it came, not refined'}: {choice['why']}."
    pairs = zip(choice["costs"], choice["without"], choice["with_refinement"], strict=True)
    compared = "; ".join(f"{before:.3f} and {after:.3f} at cost {cost:g}" for cost, before, after in pairs)
    return told + (f" Realised risk without and with refinement: {compared}." if compared else "")


def warnings(dataset: str, honesty: dict[str, Any]) -> list[str]:
    """What a reader must know before any number."""
    found = []
    refused = refusal(dataset)
    if refused is not None:
        found.append(f"This model was registered, but did not become champion: {refused}.")
    found += alarms(honesty["risk"])
    if honesty["saturated"]:
        found.append(
            f"Ratios reach {honesty['largest_ratio']:.0f} nats. Beyond {SATURATION:.0f} hardly any sequence tells "
            "what is right, so learned ratios saturate or run away there."
        )
    return found


def honesty_section(honesty: dict[str, Any]) -> Section:
    text = (
        "Of all cases in which the model is, say, 80 % sure, it should be right in 80 %: left, points on the diagonal. "
        "Groups of fewer than 30 are not drawn. The calibration error is the mean distance from it, at each number of "
        "observations; the loss is the negative log-likelihood of the true class. Stopping can only be as good as "
        "these beliefs are honest."
    )
    return Section("calibration", "Are beliefs honest?", text, figures.calibration(honesty), charted=True)


def middle_cost(rule: StoppingRule) -> float:
    return float(sorted(rule.costs.tolist())[len(rule.costs) // 2])


def doubt_at_decisions(rule: StoppingRule, batch: Batch) -> float | None:
    """Mean deviation of the continuation risk where the rule of the middle cost decides; None if it knows none."""
    assert batch.evidence is not None
    cost = middle_cost(rule)
    time = rule.decide(batch.evidence, cost=cost, lengths=batch.lengths).time
    past = memory_of(batch.evidence) if rule.remembers else None
    found = [
        rule.outlook(
            batch.evidence[time == t, t - 1],
            t=t,
            cost=cost,
            memory=None if past is None else past[time == t, t - 1],
        ).deviation
        for t in range(1, rule.problem.horizon)
        if np.any(time == t)
    ]
    mean = float(np.mean(np.concatenate(found))) if found else float("nan")
    return None if np.isnan(mean) else mean


def make_sections(
    rule: StoppingRule, batch: Batch, rows: list[dict[str, Any]], optimal: dict[str, Any]
) -> list[Section]:
    """Curves first, then what happens to sequences and why. batch: sequences to draw."""
    middle, horizon = middle_cost(rule), rule.problem.horizon
    sections = [*_curves(rows), _trajectories(rule, batch, optimal[str(middle)])]
    surface = figures.risk_surface(rule, middle, [1, horizon // 2, horizon - 1])
    if surface is not None:
        text = "What the rule compares: the risk of deciding now and the risk of one more look, over all posteriors."
        sections.append(Section("risk_surface", "Stop or go on", text, surface))
    envelope = figures.risk_envelope(rule, middle, horizon // 2)
    if envelope is not None:
        text = "The same in space, in the middle of the time: what is paid is the lower of the two surfaces."
        sections.append(Section("risk_envelope", "Two surfaces", text, envelope))
    return sections


def _curves(rows: list[dict[str, Any]]) -> list[Section]:
    return [
        Section(
            "speed_accuracy",
            "Speed against accuracy",
            "Each cost gives one point of the front: dear observations buy early decisions. Lower left is better.",
            figures.speed_accuracy(rows),
            charted=True,
        ),
        Section(
            "risk_curves",
            "Risk of each rule",
            "Static thresholds trace a curve as the threshold moves; the fitted rule should lie at or below its lowest "
            "point. Circles are believed, crosses realised. A rule is chosen by the crosses; where the two lie far "
            "apart, beliefs are not honest.",
            figures.risk_curves(rows),
            charted=True,
        ),
        Section(
            "hitting_times",
            "When decisions fall",
            "Share of sequences decided after each number of observations, with mean ± deviation.",
            figures.hitting_times(rows),
            charted=True,
        ),
    ]


def _trajectories(rule: StoppingRule, batch: Batch, optimal: Any) -> Section:
    text = "Each line is one test sequence, coloured by its true class, drawn until the rule decides. "
    if rule.problem.classes == 2 and not rule.remembers:
        text += "The boundary closes towards the horizon: the less time is left, the less there is to gain by waiting."
    elif rule.remembers:
        text += "The rule looks at the past, too, so there is no one boundary to draw."
    else:
        text += "When it decides depends on all classes and on the time left, so there is no one line to cross."
    drawn = figures.trajectories(rule, batch, middle_cost(rule), optimal)
    return Section("trajectories", "Evidence until the decision", text, drawn, charted=True)


def write_report(folder: Path, page: str, sections: list[Section]) -> None:
    (folder / "figures").mkdir()
    for section in sections:
        section.figure.savefig(folder / "figures" / f"{section.name}.png", dpi=110, metadata={"Software": None})
    (folder / "index.html").write_text(page)


if __name__ == "__main__":
    main("report")
