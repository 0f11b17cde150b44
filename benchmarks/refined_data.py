"""A data set of a pipeline that has run: what decisions cost on its test sequences without and with refinement."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import firmbound
from firmbound.evaluation.estimates import mean_of
from firmbound.fitting import fit_from_slices, make_fitter
from firmbound.refinement.choice import Contestant
from firmbound.refinement.sureness import temperature_at_decisions
from firmbound.store import TrajectoryStore
from flows.params import read_params


def without_and_with(project: Path, dataset: str) -> dict[str, Any]:
    """Both rules are fitted here, on all sequences of the boundary's split; whatever the pipeline chose is told too."""
    params = read_params(project / "params.yaml")
    section = params.boundary[dataset]
    folder = project / "data" / dataset
    fit, held_out, test = (
        TrajectoryStore(folder / "tandem" / f"{split}.zarr") for split in (section.fit_on, "validation", "test")
    )
    about = fit.description
    problem = section.decision_problem(classes=about.classes, horizon=about.horizon)
    prior = np.array(about.prior)

    def rule_on(evidence: NDArray[Any]) -> firmbound.StoppingRule:
        fitter = make_fitter(section.method, problem, prior, section.options(), seed=section.seed)
        ends = fit.lengths if about.unequal else None
        return fit_from_slices(lambda t: evidence[:, t - 1], prior, problem, fitter, lengths=ends)

    given, new = fit.evidence(), test.evidence()
    refiner, honest = firmbound.fit_refiner(
        given, fit.labels, lengths=fit.lengths, options=params.refinement[dataset].options()
    )
    judging = honest if section.fit_on == "validation" else refiner.refine(held_out.evidence())
    temperature = temperature_at_decisions(rule_on(honest), judging, held_out.labels, held_out.lengths)
    refiner, honest = refiner.cooled(temperature), honest / np.float32(temperature)
    before, after = (
        Contestant(rule_on(seen), fresh).paid(test.labels, test.lengths)
        for seen, fresh in ((given, new), (honest, refiner.refine(new)))
    )
    rows = []
    for place, cost in enumerate(section.costs):
        change = mean_of(after[place] - before[place])
        rows.append(
            {
                "cost": cost,
                "without": float(before[place].mean()),
                "with": float(after[place].mean()),
                "change": change.value,
                "change_error": change.standard_error,
            }
        )
    chosen = json.loads((folder / "refinement" / "choice.json").read_text())
    return {"chosen": chosen, "ridge": refiner.ridge, "temperature": temperature, "test": rows}
