"""What the page of a pipeline's run shows: numbers, verdicts, links and figures, as Prefect's artifacts."""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from PIL import Image
from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact

from flows.redaction import without_userinfo
from flows.registry import CHAMPION, Standing
from flows.servers import MLFLOW_PAGE
from flows.stage import stage_folder
from flows.tracking import connect

# Artifacts lie in Prefect's database, run by run: a figure must be small.
FIGURES = ("speed_accuracy", "risk_curves")
FIGURE_WIDTH = 560


def verdict(found: Standing) -> str:
    """In a few words: champion, or refused and why."""
    if CHAMPION in found.aliases:
        return f"champion version {found.version}"
    return f"refused version {found.version}: {found.reason.removeprefix('not promoted: ')}"


def show(found: dict[str, Standing]) -> None:
    """Put all data sets' results on the page of the run that is under way."""
    table = [row for dataset in found for row in rows(dataset)]
    create_table_artifact(table, key="results", description="What decisions cost on test sequences.")
    for dataset, one in found.items():
        address = mlflow_address(one)
        own = [row for row in table if row["data set"] == dataset]
        told = page(dataset, one, own, address)
        create_markdown_artifact(told, key=artifact_key(dataset), description=f"{dataset}: {verdict(one)}")
        if address is not None:
            create_link_artifact(address, f"MLflow run of {dataset}", key=artifact_key(f"mlflow {dataset}"))


def artifact_key(name: str) -> str:
    """Prefect takes small letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def rows(dataset: str) -> list[dict[str, Any]]:
    """A row a cost, with the numbers of metrics.json."""
    metrics = json.loads((stage_folder(dataset, "evaluation") / "metrics.json").read_text())
    return [
        {
            "data set": dataset,
            "cost": float(name.removeprefix("cost ")),
            "mean time": ours["mean_time"],
            "error": ours["error_rate"],
            "realised risk": ours["realised_risk"],
            "±": ours["realised_risk_error"],
            "believed risk": ours["aapr"],
            "regret": ours.get("regret"),
            "alarm": next((kind for kind in ("overconfident", "underconfident") if ours[kind]), None),
        }
        for name, ours in metrics.items()
        if name.startswith("cost ")
    ]


def page(dataset: str, found: Standing, rows: list[dict[str, Any]], address: str | None) -> str:
    report = (stage_folder(dataset, "report") / "index.html").absolute()
    lines = [
        f"# {dataset}: {verdict(found)}",
        f"{found.name}, version {found.version}. {found.reason}",
        "| cost | mean time | error | realised risk | believed | regret |",
        "| --- | --- | --- | --- | --- | --- |",
        *(_line(row) for row in rows),
        "",
        f"Report: `{report}`" + (f", MLflow: [run]({address})" if address else ""),
        *(f"![{name}]({small(report.parent / 'figures' / f'{name}.png')})" for name in FIGURES),
    ]
    # Lines of a table stand together, all else apart.
    return "\n".join(line if line.startswith("|") else f"\n{line}\n" for line in lines)


def _line(row: dict[str, Any]) -> str:
    regret = "" if row["regret"] is None else f"{100 * row['regret']:.3f} %"
    alarm = f" ({row['alarm']})" if row["alarm"] else ""
    paid = f"{row['realised risk']:.3f} ± {row['±']:.3f}"
    return (
        f"| {row['cost']:g} | {row['mean time']:.1f} | {100 * row['error']:.2f} % | {paid} "
        f"| {row['believed risk']:.3f}{alarm} | {regret} |"
    )


def small(figure: Path) -> str:
    """A figure as an address that holds all of it: a page of Prefect's cannot read files."""
    with Image.open(figure) as picture:
        height = round(picture.height * FIGURE_WIDTH / picture.width)
        shrunk = picture.convert("RGB").resize((FIGURE_WIDTH, height), Image.Resampling.LANCZOS)
    written = BytesIO()
    shrunk.quantize(64).save(written, "PNG", optimize=True)
    return f"data:image/png;base64,{b64encode(written.getvalue()).decode()}"


def mlflow_address(found: Standing) -> str | None:
    """The run of a version on MLflow's page, where there is such a page."""
    given = os.environ.get("MLFLOW_TRACKING_URI", "")
    base = without_userinfo(given) if urlsplit(given).scheme in ("http", "https") else os.environ.get(MLFLOW_PAGE)
    client = connect()
    run = client.get_model_version(found.name, found.version).run_id
    if base is None or not run:
        return None
    experiment = client.get_run(run).info.experiment_id
    return f"{base.rstrip('/')}/#/experiments/{experiment}/runs/{run}"
