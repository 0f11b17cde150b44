"""Stage `boundary`: fit the stopping rule of every cost; `prepare` tasks in parallel over t, `fit` tasks backward.

A step that is finished is on disk; after a kill, the same work goes on with the one before it.
"""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
from prefect import flow, get_run_logger
from prefect.runtime import flow_run

import firmbound
from firmbound.continuation.surface import worst_facts
from firmbound.fitting import fit_from_slices, make_fitter
from firmbound.steps_on_disk import OnDisk
from firmbound.store import TrajectoryStore
from flows.evidence import evidence_store
from flows.params import Params
from flows.progress import progress
from flows.runners import PrefectSchedule
from flows.sections import BoundarySection
from flows.stage import forget_others, main, reports_failure, stage_folder


def run_name() -> str:
    """Data set and cost grid, as a run is found by."""
    given = flow_run.parameters
    costs = given["params"].boundary[given["dataset"]].costs
    grid = f"costs {min(costs):g} to {max(costs):g}" if len(costs) > 1 else f"cost {costs[0]:g}"
    return f"boundary {given['dataset']}, {grid}"


@flow(name="boundary", flow_run_name=run_name)
@reports_failure
def boundary_flow(dataset: str, params: Params) -> None:
    """Write data/<dataset>/boundary, a bundle with the fitted rule."""
    section = params.boundary[dataset]
    store = evidence_store(dataset, section.fit_on)
    about = store.description
    prior = np.array(about.prior)
    problem = section.decision_problem(classes=about.classes, horizon=about.horizon)
    scratch = stage_folder(dataset, ".induction")
    steps = OnDisk(scratch / identity(section, store))
    forget_others(steps.folder)
    if steps.finished():
        get_run_logger().info("%s: goes on from t = %d, which was finished before", dataset, min(steps.finished()))
    with progress(f"{dataset}: {len(section.costs)} costs, backward from t = {about.horizon - 1}") as advance:
        rule = fit_from_slices(
            store.evidence_at,
            prior,
            problem,
            make_fitter(section.method, problem, prior, section.options(), seed=section.seed),
            lengths=store.lengths if about.unequal else None,
            schedule=PrefectSchedule(dataset),
            steps=steps,
            progress=advance,
        )
    rule.with_confidence(section.confidence).save(stage_folder(dataset, "boundary"))
    shutil.rmtree(scratch, ignore_errors=True)  # steps have done their work
    worst = ", ".join(f"{name} {value:.2g}" for name, value in worst_facts(rule.surfaces).items())
    get_run_logger().info("%s: %d surfaces; at most %s", dataset, len(rule.surfaces), worst)


def identity(section: BoundarySection, store: TrajectoryStore) -> str:
    """Names the folder of finished steps: other settings, evidence or code start anew."""
    library = Path(firmbound.__file__).parent
    names = ("arrays", "backward_induction", "costs", "fitting", "memory", "posterior", "simplex", "steps_on_disk")
    code = [library / f"{name}.py" for name in names] + sorted((library / "continuation").glob("*.py"))
    about = hashlib.sha256(json.dumps([section.model_dump(), [file.read_text() for file in code]]).encode())
    for file in sorted(path for path in store.path.rglob("*") if path.is_file()):
        about.update(file.read_bytes())
    return about.hexdigest()[:16]


if __name__ == "__main__":
    main("boundary")
