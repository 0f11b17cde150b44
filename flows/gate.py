"""Whether what was fitted may become champion."""

import json

from flows.stage import stage_folder


def refusal(dataset: str) -> str | None:
    """Why what was fitted last may not become champion; None if it may."""
    found = json.loads((stage_folder(dataset, "evaluation") / "calibration.json").read_text())
    if found["passes"]:
        return None
    beyond = [error - chance for error, chance in zip(found["error"], found["chance"], strict=True)][: found["judged"]]
    t = beyond.index(max(beyond))
    return (
        f"its evidence is not calibrated: an error of {found['error'][t]:.3f} at t = {t + 1}, where chance alone would "
        f"make {found['chance'][t]:.3f}; the rest is above the limit of {found['limit']:g} "
        "(params.yaml: evaluation.calibration_limit)"
    )
