"""Results as JSON beside a description of the machine, so that figures can be compared honestly."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results")


def record(name: str, results: dict[str, Any]) -> Path:
    """Write benchmarks/results/<name>.json and print where."""
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"{name}.json"
    file.write_text(json.dumps({"machine": machine(), "results": results}, indent=2) + "\n")
    print(f"written to {file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file}")
    return file


def machine() -> dict[str, Any]:
    model = [line for line in _cpuinfo() if line.startswith("model name")]
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "processor": model[0].split(":")[1].strip() if model else platform.processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "python": platform.python_version(),
        "versions": {
            name: version(name) for name in ("numpy", "scipy", "torch", "gpytorch", "prefect", "dvc", "mlflow")
        },
    }


def _cpuinfo() -> list[str]:
    file = Path("/proc/cpuinfo")
    return file.read_text().splitlines() if file.exists() else []


def _commit() -> str:
    asked = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return asked.stdout.strip() or "unknown"
