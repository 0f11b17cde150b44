"""The pipeline: `dvc repro`, then make sure that what was fitted is registered. `make run` starts this.

python -m flows.pipeline            run once, with a Prefect server of its own unless PREFECT_API_URL names one
python -m flows.pipeline study      the study: rivals on the same data sets
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from flows.redaction import redact
from flows.servers import ServerError, prefect_server
from flows.stage import stage_folder

if TYPE_CHECKING:
    from flows.params import Params

DVC = [sys.executable, "-m", "dvc"]
STUDY = "study"


def main() -> None:
    os.environ.setdefault("DVC_NO_ANALYTICS", "1")
    from firmbound.errors import FirmboundError
    from flows.params import read_params, study_of

    if sys.argv[1:] not in ([], [STUDY]):
        sys.exit(f"usage: python -m flows.pipeline [{STUDY}]")
    studies = sys.argv[1:] == [STUDY]
    try:
        params = read_params()
        if studies and study_of(params).search is not None:
            from flows.rival_search import spaces_of

            spaces_of(params)  # a slip in there is told now, not when the first search begins
    except FirmboundError as problem:
        sys.exit(redact(f"firmbound: {problem}"))
    ensure_repository()
    try:
        with prefect_server() as environment:
            # A process of its own: it has sent its last log line to the server before the server is stopped.
            command = [sys.executable, "-m", "flows.pipeline_flow", *sys.argv[1:]]
            code = wait_for(subprocess.Popen(command, env=environment))
    except ServerError as problem:
        sys.exit(redact(f"firmbound: {problem}"))
    if code:
        sys.exit(code)
    print(study_summary() if studies else summary(params))


def wait_for(flow: subprocess.Popen[bytes]) -> int:
    """Its exit code. The terminal's Ctrl-C is told to it too, and it ends in order; so we wait all the same."""
    while True:
        try:
            return flow.wait()
        except KeyboardInterrupt:
            continue


def ensure_repository() -> None:
    """Make git and DVC repositories where they are missing, as in a folder unpacked from an archive."""
    if shutil.which("git") and subprocess.run(["git", "rev-parse"], capture_output=True, check=False).returncode:
        subprocess.run(["git", "init", "-q"], check=True)
    if not Path(".dvc/config").exists():
        scm = [] if Path(".git").exists() else ["--no-scm"]
        subprocess.run([*DVC, "init", "-q", "-f", *scm], check=True)
        # Stores are large: link them from the cache instead of keeping two copies.
        subprocess.run([*DVC, "config", "-q", "cache.type", "hardlink,symlink,copy"], check=True)
        subprocess.run([*DVC, "config", "-q", "core.analytics", "false"], check=True)


def summary(params: Params) -> str:
    """Where everything is, and the numbers that matter."""
    from flows.results import standing  # MLflow, which nothing before waits for

    lines = ["", "firmbound: done."]
    for dataset in params.datasets:
        metrics = json.loads((stage_folder(dataset, "evaluation") / "metrics.json").read_text())
        lines.append(f"\n  {dataset}")
        for cost, ours in ((name, found) for name, found in metrics.items() if name.startswith("cost")):
            optimum = f", {100 * ours['regret']:.3f} % above the exact optimum" if "regret" in ours else ""
            alarm = next((f" ({name})" for name in ("overconfident", "underconfident") if ours[name]), "")
            lines.append(
                f"    {cost}: {ours['mean_time']:.1f} observations, {100 * ours['error_rate']:.2f} % wrong, "
                f"risk {ours['realised_risk']:.3f} ± {ours['realised_risk_error']:.3f}, "
                f"believed {ours['aapr']:.3f}{alarm}{optimum}"
            )
        lines.append(f"    report   {stage_folder(dataset, 'report') / 'index.html'}")
        lines.append(f"    metrics  {stage_folder(dataset, 'evaluation') / 'metrics.json'}   (dvc metrics show)")
        found = standing(dataset)
        if "champion" in found.aliases:
            lines.append(f"    model    models:/{found.name}@champion   (version {found.version}; {found.reason})")
        else:
            why = found.reason.removeprefix("not promoted: ")
            lines.append(f"    model    version {found.version} of {found.name}, not champion: {why}")
            lines.append(f"             by hand: firmbound promote {dataset} {found.version} --reason '...'")
    return "\n".join(lines)


def study_summary() -> str:
    """Where the study is, and first of all where a rival is ahead."""
    folder = Path("data") / STUDY
    found = json.loads((folder / "findings.json").read_text())
    lines = ["", f"firmbound: {len(found['methods'])} methods on {', '.join(found['datasets'])}."]
    for what in ("cheaper", "ahead"):
        words = (
            "pays less, beyond chance" if what == "cheaper" else "errs less at the same mean time, by a standard error"
        )
        for ours, rows in found[what].items():
            named = sorted({f"{row['rival']} on {row['dataset']}" for row in rows})
            lines.append(f"  who {words}, than {ours}: {', '.join(named) or 'nobody'}")
    lines += [
        f"  variance of time as a share of static's, {row['dataset']}: {row['ratio']:.2f} (p = {row['chance']:.1g})"
        for row in found["variance"]
        if row["ratio"] is not None and row["ours"] == found["ours"]
    ]
    lines += [f"    page   {folder / 'index.html'}", f"    table  {folder / 'table.parquet'}"]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
