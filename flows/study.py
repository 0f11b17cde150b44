"""Stage `study`, the last: one table of all methods, repeats and data sets, what it says, figures and a page."""

import json
from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from prefect import flow, get_run_logger

from firmbound.errors import ParameterError
from firmbound.evaluation.paired_tests import Ranking
from firmbound.publishing import publish
from firmbound.study.findings import (
    LEVEL,
    OURS,
    SHARES,
    beside_static,
    cheaper_rivals,
    errors_at_same_times,
    errors_at_shares,
    paid_differences,
    ranking,
    rivals_ahead,
    time_variances,
    variance_chance,
    variance_ratios,
)
from firmbound.study.repeats import Repeat, by_dataset, having, methods_of, over_repeats
from firmbound.study.table import Row, rows_of
from flows.experiments import FOLDER, TABLE, run_whole
from flows.outcomes import load_repeats, searched_options
from flows.params import Params, study_of
from flows.runners import work_task
from flows.stage import DATA, reports_failure
from flows.study_page import sections_of, write_page
from flows.study_tracking import log_study

# Classifiers that took part with a threshold and under our rule.
BELIEVERS = ("gru", "minirocket", "tandem")


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
    tried = pq.read_table(FOLDER / TABLE).to_pylist()
    steady = [row for row in found["variances"] if row["rule"] == found["ours"]]
    with publish(DATA / "study") as folder:
        pq.write_table(pa.Table.from_pylist(rows), folder / "table.parquet")
        (folder / "findings.json").write_text(json.dumps(found, indent=1) + "\n")
        write_page(folder, sections_of(repeats, rows, steady, ranks, tried), found)
    run = log_study(study_of(params).model_dump(), found, DATA / "study")
    get_run_logger().info("study: logged as MLflow run %s", run)
    for (dataset, rival), points in Counter(
        (row["dataset"], row["rival"]) for row in found["ahead"][found["ours"]]
    ).items():
        get_run_logger().warning("%s: %s errs less than %s at %d mean times", dataset, rival, found["ours"], points)


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
    sets = by_dataset(repeats)
    variances = {ours: time_variances(repeats, ours) for ours in OURS if ours in methods_of(repeats)}
    return {
        "ours": chosen,
        "datasets": list(sets),
        "repeats": {dataset: len(own) for dataset, own in sets.items()},
        "methods": methods_of(repeats),
        "searched": {dataset: searched_options(dataset) for dataset in sets},
        "failed": [
            {"dataset": one.dataset, "repeat": one.repeat, "method": method, "why": why}
            for one in repeats
            for method, why in one.failed.items()
        ],
        "cheaper": {ours: cheaper_rivals([row for row in differences if row["ours"] == ours]) for ours in OURS},
        "ahead": {ours: [told(row) for row in rivals_ahead(repeats, ours)] for ours in OURS},
        "beside_static": [row for ours in OURS[:2] for row in beside_static(repeats, ours)],
        "same_beliefs": [row for own in sets.values() for row in same_beliefs(own)],
        "shares": list(SHARES),
        "errors_at_shares": {
            dataset: {method: errors_at_shares(own, method) for method in methods_of(own)}
            for dataset, own in sets.items()
        },
        "differences": differences,
        "paid": {
            dataset: paid_table(own, rows, [row for row in differences if row["ours"] == chosen])
            for dataset, own in sets.items()
        },
        "variance": [
            variance_row(dataset, ours, found) for ours, found in variances.items() for dataset in (*sets, None)
        ],
        "variances": [row | {"rule": ours} for ours, found in variances.items() for row in found],
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


def same_beliefs(repeats: list[Repeat]) -> list[Row]:
    """Our rule and a threshold on the same classifier's beliefs: what the rule helps, whatever the network.

    behind: mean times at which our rule errs more, by more than one standard error, and by two.
    """
    rows = []
    for name, rule in product(BELIEVERS, ("firmbound", "refined")):
        points = errors_at_same_times(f"{name}-threshold", repeats, f"{name}-{rule}")
        if points:
            apart = [(row["ours"] - row["rival"], row["error"]) for row in points]
            differences = [more for more, _ in apart]
            rows.append(
                {
                    "dataset": repeats[0].dataset,
                    "classifier": name,
                    "rule": rule,
                    "points": len(points),
                    "behind": sum(more > error for more, error in apart),
                    "far_behind": sum(more > 2 * error for more, error in apart),
                    "mean_difference": float(np.mean(differences)),
                    "largest_difference": max(differences),
                }
            )
    return rows


def paid_table(repeats: list[Repeat], rows: list[Row], differences: list[Row]) -> dict[str, Any]:
    """Realised risk of every method at every cost, over all its repeats on a data set; whether it differs from ours."""
    dataset, costs = repeats[0].dataset, repeats[0].problem.costs.tolist()
    beyond = {
        (row["rival"], row["cost"]) for row in differences if row["dataset"] == dataset and row["corrected"] < LEVEL
    }
    lines = []
    for method in methods_of(repeats):
        cells, those = [], having(repeats, method)
        for index, cost in enumerate(costs):
            found = over_repeats([one.paid(method, index) for one in those], [one.rows for one in those])
            cells.append({"risk": found.value, "error": found.standard_error, "differs": (method, cost) in beyond})
        own = [row for row in rows if (row["dataset"], row["method"]) == (dataset, method)]
        means = {
            name: float(np.mean([row[name] for row in own]))
            for name in ("training_seconds", "step_ms_p50", "step_ms_p99")
        }
        lines.append({"method": method, "repeats": len(those), "cells": cells, **means})
    return {"costs": costs, "lines": sorted(lines, key=lambda line: sum(cell["risk"] for cell in line["cells"]))}


def variance_row(dataset: str | None, ours: str, variances: list[Row]) -> Row:
    own = [row for row in variances if dataset in (None, row["dataset"])]
    ratios = variance_ratios(own)
    return {
        "dataset": dataset or "all",
        "ours": ours,
        "repeats": len(ratios),
        "ratio": float(np.exp(np.mean(np.log(ratios)))) if ratios else None,
        "lower": sum(ratio < 1 for ratio in ratios),
        "chance": variance_chance(own),
        "errs_less": sum(row["error"] <= row["static_error"] for row in own),
        "pairs": len(own),
    }


if __name__ == "__main__":
    run_whole(study_flow)
