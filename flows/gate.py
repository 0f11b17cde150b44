"""Whether what was fitted may become champion."""

import json

from flows.stage import stage_folder


def refusal(dataset: str) -> str | None:
    """Why what was fitted last may not become champion; None if it may."""
    found = json.loads((stage_folder(dataset, "evaluation") / "calibration.json").read_text())
    if found["passes"]:
        return None
    worst = max(found["error"][: found["judged"]])
    return (
        f"its evidence is not calibrated: an error of {worst:.3f} at t = {found['error'].index(worst) + 1}, "
        f"above the limit of {found['limit']:g} (params.yaml: evaluation.calibration_limit)"
    )
