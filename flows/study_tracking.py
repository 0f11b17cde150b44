"""The study in MLflow: a run with its settings, the numbers that matter, table, page and figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlflow

from flows.tracking import EXPERIMENT, connect, flat


def log_study(settings: dict[str, Any], found: dict[str, Any], folder: Path) -> str:
    """Log what lies in `folder`; returns the run's id."""
    connect()
    mlflow.set_experiment(EXPERIMENT)
    with mlflow.start_run(run_name="study", tags={"stage": "study"}) as run:
        mlflow.log_params(flat({"study": settings}))
        mlflow.log_metrics(study_metrics(found))
        mlflow.log_artifacts(str(folder), "study")
        return str(run.info.run_id)


def study_metrics(found: dict[str, Any]) -> dict[str, float]:
    """Mean ranks, how many points of rivals are ahead, and the variance of time as a share of static's."""
    numbers = {f"mean_rank.{name}": float(rank) for name, rank in (found["ranks"] or {}).items()}
    for ours, rows in found["ahead"].items():
        numbers[f"rivals_ahead.{ours}"] = float(len(rows))
        numbers[f"rivals_cheaper.{ours}"] = float(len(found["cheaper"][ours]))
    ratios = {f"{row['ours']}.{row['dataset']}": row["ratio"] for row in found["variance"] if row["ratio"] is not None}
    return numbers | {f"time_variance_ratio.{name}": ratio for name, ratio in ratios.items()}
