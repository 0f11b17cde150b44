"""Whether what was fitted may become champion, and what a reader must know of the risks that it believes."""

import json
from typing import Any, get_args

from firmbound.evaluation.risk_gap import SURE, Alarm, in_words
from flows.stage import stage_folder

Row = dict[str, Any]


def refusal(dataset: str) -> str | None:
    """Why what was fitted last may not become champion; None if it may."""
    found = json.loads((stage_folder(dataset, "evaluation") / "calibration.json").read_text())
    reasons = [] if found["passes"] else [_uncalibrated(found)]
    if not found["risk"]["passes"]:
        reasons.append(_overconfident(found["risk"]))
    return "; and ".join(reasons) or None


def alarms(risk: Row) -> list[str]:
    """Sentences for costs at which believed and realised risk differ beyond chance and by enough, either way."""
    found = []
    for alarm in get_args(Alarm):
        rings = "; ".join(_words(row) for row in risk["costs"] if row["alarm"] == alarm)
        if rings:
            found.append(f"The rule is {alarm}: {rings}. Judge it by what it pays.")
    return found


def overview(risk: Row) -> str:
    """Both risks at every cost in one sentence."""
    told = "; ".join(_words(row) for row in risk["costs"])
    agree = all(row["alarm"] is None for row in risk["costs"])
    return f"The rule must be judged by what it pays: {told}." + (
        f" The two agree, within {SURE:g} standard errors or {100 * risk['limit']:g} %." if agree else ""
    )


def _uncalibrated(found: Row) -> str:
    beyond = [error - chance for error, chance in zip(found["error"], found["chance"], strict=True)][: found["judged"]]
    t = beyond.index(max(beyond))
    return (
        f"its evidence is not calibrated: an error of {found['error'][t]:.3f} at t = {t + 1}, where chance alone would "
        f"make {found['chance'][t]:.3f}; the rest is above the limit of {found['limit']:g} "
        "(params.yaml: evaluation.calibration_limit)"
    )


def _overconfident(risk: Row) -> str:
    rings = [row for row in risk["costs"] if row["alarm"] == "overconfident"]
    worst = max(rings, key=lambda row: row["risk_gap"] / row["realised_risk"])
    return (
        f"it pays more than it believes: {_words(worst)}, a gap of {worst['risk_gap']:.3f} beyond {SURE:g} standard "
        f"errors and above the limit of {risk['limit']:g} of what it pays (params.yaml: evaluation.risk_gap_limit)"
    )


def _words(row: Row) -> str:
    return in_words(row["cost"], row["aapr"], row["realised_risk"], row["realised_risk_error"])
