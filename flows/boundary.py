"""Stage `boundary`: fit the stopping rule of every cost; `prepare` tasks in parallel over t, `fit` tasks backward."""

import numpy as np
from prefect import flow, get_run_logger
from prefect.runtime import flow_run

from firmbound.continuation.surface import worst_facts
from firmbound.fitting import fit_from_slices, make_fitter
from flows.evidence import evidence_store
from flows.params import Params
from flows.progress import progress
from flows.runners import PrefectSchedule
from flows.stage import main, reports_failure, stage_folder


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
    with progress(f"{dataset}: {len(section.costs)} costs, backward from t = {about.horizon - 1}") as advance:
        rule = fit_from_slices(
            store.evidence_at,
            prior,
            problem,
            make_fitter(section.method, problem, prior, section.options(), seed=section.seed),
            lengths=store.lengths if about.unequal else None,
            schedule=PrefectSchedule(dataset),
            progress=advance,
        )
    rule.with_confidence(section.confidence).save(stage_folder(dataset, "boundary"))
    worst = ", ".join(f"{name} {value:.2g}" for name, value in worst_facts(rule.surfaces).items())
    get_run_logger().info("%s: %d surfaces; at most %s", dataset, len(rule.surfaces), worst)


if __name__ == "__main__":
    main("boundary")
