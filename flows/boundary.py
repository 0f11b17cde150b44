"""Stage `boundary`: fit the stopping rule of every cost; `prepare` tasks in parallel over t, `fit` tasks backward."""

import numpy as np
from prefect import flow, get_run_logger

from firmbound.continuation.surface import worst_facts
from firmbound.fitting import fit_from_slices, make_fitter
from flows.evidence import evidence_store
from flows.params import Params
from flows.progress import progress
from flows.runners import PrefectSchedule
from flows.stage import main, reports_failure, stage_folder


@flow(name="boundary", flow_run_name="boundary {dataset}")
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
