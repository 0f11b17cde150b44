"""Stage `study`, the last: one table of all methods, repeats and data sets, what it says, figures and a page."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from prefect import flow, get_run_logger

from firmbound.errors import FirmboundError, ParameterError
from firmbound.evaluation.paired_tests import Ranking
from firmbound.publishing import publish
from firmbound.report import study_figures as figures
from firmbound.report.page import Section, render_study
from firmbound.study.findings import (
    LEVEL,
    OURS,
    Repeat,
    by_dataset,
    cheaper_rivals,
    methods_of,
    over_repeats,
    paid_differences,
    pooled_curve,
    ranking,
    rivals_ahead,
    time_variances,
    variance_chance,
    variance_ratios,
)
from firmbound.study.table import Row, rows_of
from flows.outcomes import load_repeats
from flows.params import Params, read_params, study_of
from flows.runners import work_task
from flows.stage import DATA, keep_quiet_about_known_errors, reports_failure, run_flow
from flows.study_tracking import log_study


@flow(name="study", flow_run_name="study of {params.study.datasets}")
@reports_failure
def study_flow(params: Params) -> None:
    """Write data/study: table.parquet, findings.json, index.html and figures/*.png."""
    repeats = [
        one
        for dataset in study_of(params).datasets
        for one in work_task(load_repeats, f"{dataset} outcomes").submit(dataset).result()
    ]
    rows = work_task(table_of, "table").submit(repeats).result()
    ranks = ranking(repeats)
    found = work_task(findings_of, "findings").submit(repeats, rows, ranks).result()
    with publish(DATA / "study") as folder:
        pq.write_table(pa.Table.from_pylist(rows), folder / "table.parquet")
        (folder / "findings.json").write_text(json.dumps(found, indent=1) + "\n")
        write_page(folder, sections_of(repeats, rows, found, ranks), found)
    run = log_study(study_of(params).model_dump(), found, DATA / "study")
    get_run_logger().info("study: logged as MLflow run %s", run)
    for row in found["ahead"][found["ours"]]:
        said = "%s: %s is ahead at a mean time of %.1f, %.2f %% against %.2f %%"
        errors = (100 * row["rival_error"], 100 * row["our_error"])
        get_run_logger().warning(said, row["dataset"], row["rival"], row["time"], *errors)


def table_of(repeats: list[Repeat]) -> list[Row]:
    return [
        row
        for one in repeats
        for method, outcome in one.outcomes.items()
        for row in rows_of(outcome, one.labels, one.problem, dataset=one.dataset, repeat=one.repeat, method=method)
    ]


def findings_of(repeats: list[Repeat], rows: list[Row], ranks: Ranking | None) -> dict[str, Any]:
    """All that the page says, as numbers."""
    chosen = spoken_for(repeats)
    differences = [row for ours in OURS for row in paid_differences(repeats, ours)]
    variances, sets = time_variances(repeats, chosen), by_dataset(repeats)
    return {
        "ours": chosen,
        "datasets": list(sets),
        "repeats": max(len(own) for own in sets.values()),
        "methods": sorted({method for one in repeats for method in one.outcomes}),
        "cheaper": {ours: cheaper_rivals([row for row in differences if row["ours"] == ours]) for ours in OURS},
        "ahead": {ours: [told(row) for row in rivals_ahead(repeats, ours)] for ours in OURS},
        "differences": differences,
        "paid": {
            dataset: paid_table(own, rows, [row for row in differences if row["ours"] == chosen])
            for dataset, own in sets.items()
        },
        "variance": [variance_row(dataset, variances) for dataset in sets] + [variance_row(None, variances)],
        "variances": variances,
        "ranks": None if ranks is None else dict(zip(ranks.names, ranks.ranks.tolist(), strict=True)),
    }


def spoken_for(repeats: list[Repeat]) -> str:
    """The first of our rules that took part everywhere: the one that differences are told for."""
    shared = set.intersection(*(set(one.outcomes) for one in repeats))
    ours = [name for name in OURS if name in shared]
    if not ours:
        raise ParameterError("study.leave_out", f"leave one of {OURS} in", "all of them left out")
    return ours[0]


def told(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in ("rival", "ours")} | {
        "rival": row["method"],
        "rival_error": row["rival"],
        "our_error": row["ours"],
    }


def paid_table(repeats: list[Repeat], rows: list[Row], differences: list[Row]) -> dict[str, Any]:
    """Realised risk of every method at every cost, over all repeats of a data set; whether it differs from ours."""
    dataset, costs = repeats[0].dataset, repeats[0].problem.costs.tolist()
    beyond = {
        (row["rival"], row["cost"]) for row in differences if row["dataset"] == dataset and row["corrected"] < LEVEL
    }
    lines = []
    for method in methods_of(repeats):
        cells = []
        for index, cost in enumerate(costs):
            found = over_repeats([one.paid(method, index) for one in repeats], [one.rows for one in repeats])
            cells.append({"risk": found.value, "error": found.standard_error, "differs": (method, cost) in beyond})
        own = [row["training_seconds"] for row in rows if (row["dataset"], row["method"]) == (dataset, method)]
        lines.append({"method": method, "seconds": float(np.mean(own)), "cells": cells})
    return {"costs": costs, "lines": sorted(lines, key=lambda line: sum(cell["risk"] for cell in line["cells"]))}


def variance_row(dataset: str | None, variances: list[Row]) -> Row:
    own = [row for row in variances if dataset in (None, row["dataset"])]
    ratios = variance_ratios(own)
    return {
        "dataset": dataset or "all",
        "repeats": len(ratios),
        "ratio": float(np.exp(np.mean(np.log(ratios)))) if ratios else None,
        "lower": sum(ratio < 1 for ratio in ratios),
        "chance": variance_chance(own),
        "errs_less": sum(row["error"] <= row["static_error"] for row in own),
        "pairs": len(own),
    }


def sections_of(repeats: list[Repeat], rows: list[Row], found: dict[str, Any], ranks: Ranking | None) -> list[Section]:
    curves = {
        dataset: {method: pooled_curve(own, method) for method in methods_of(own) if method != "random"}
        for dataset, own in by_dataset(repeats).items()
    }
    sections = [
        Section(
            "speed_accuracy",
            "Speed and accuracy",
            "Error against mean number of observations: lower left is better. Bands and bars are one standard error.",
            figures.speed_accuracy_curves(curves),
        ),
        Section(
            "realised_risk",
            "Realised risk",
            "What decisions cost, relative to the best static threshold on the same evidence: below 0 is cheaper.",
            figures.risks_by_cost(rows, "realised_risk"),
        ),
        Section(
            "aapr",
            "Believed risk",
            "What methods believe that they pay. Where beliefs are not calibrated, this is too good to be true.",
            figures.risks_by_cost(rows, "aapr"),
        ),
        Section(
            "tapering",
            "Thresholds that sink by hand",
            "The rivals of the ablation: concave, straight and convex.",
            figures.tapering_curves(),
        ),
    ]
    if found["variances"]:
        words = "Each point is one repeat and cost, at the same mean time."
        drawn = figures.variance_of_time(found["variances"])
        sections.append(Section("variance", "Variance of the hitting time", words, drawn))
    if ranks is not None:
        words = f"Ranks by realised risk, a data set a block (Friedman p = {ranks.chance:.2g}); a bar joins equals."
        sections.insert(3, Section("ranks", "Ranks", words, figures.critical_difference(ranks)))
    return sections


def write_page(folder: Path, sections: list[Section], found: dict[str, Any]) -> None:
    (folder / "figures").mkdir()
    for section in sections:
        section.figure.savefig(folder / "figures" / f"{section.name}.png", dpi=130)
    (folder / "index.html").write_text(render_study(found, sections))


def run() -> None:
    keep_quiet_about_known_errors()
    try:
        params = read_params()
        study_of(params)
    except FirmboundError as problem:
        sys.exit(f"firmbound: {problem}")
    run_flow(study_flow, params)


if __name__ == "__main__":
    run()
