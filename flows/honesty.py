"""Whether beliefs are honest: calibration at each t, and what is paid against what is believed at each cost."""

from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firmbound.arrays import Floats, Ints
from firmbound.evaluation.calibration import calibration, reliability
from firmbound.posterior import posterior
from flows.evidence import choice_of
from flows.params import LearnedEvidence, Params

Row = dict[str, Any]
ENOUGH = 500  # sequences
SHOWN = ("cost", "aapr", "aapr_error", "realised_risk", "realised_risk_error", "risk_gap", "risk_gap_error", "alarm")


def is_judged(dataset: str, params: Params) -> bool:
    """Evidence that was learned or refined is held to limits; what is given is shown as it is."""
    return isinstance(params.tandem[dataset], LearnedEvidence) or bool(choice_of(dataset)["refined"])


def judge_risks(rows: list[Row], limit: float, judged: bool) -> Row:
    """Both risks of the rule at every cost, and whether it passes: what it pays must not be more than it believes."""
    ours = [{name: row[name] for name in SHOWN} for row in rows if row["method"] == "firmbound"]
    rings = any(row["alarm"] == "overconfident" for row in ours)
    return {"limit": limit, "judged": judged, "passes": not (judged and rings), "costs": ours}


def judge_calibration(evidence: NDArray[Any], labels: Ints, ends: Ints, prior: Floats, limit: float | None) -> Row:
    """How far beliefs can be trusted at each t, and whether they pass: what report and registry go by."""
    found = calibration(evidence, labels, prior, ends)
    horizon, judged = int(ends.max()), _judged(ends)
    drawn = sorted({1, max(1, horizon // 5), max(1, horizon // 2), horizon})
    there = {t: ends >= t for t in drawn}
    curves = {
        str(t): asdict(reliability(posterior(evidence[here, t - 1], prior), labels[here])) for t, here in there.items()
    }
    return {
        "error": found.error.tolist(),
        "chance": found.chance.tolist(),
        "negative_log_likelihood": found.negative_log_likelihood.tolist(),
        "largest_ratio": found.largest_ratio,
        "saturated": found.saturated,
        "limit": limit,
        "judged": judged,
        "passes": limit is None or bool((found.error - found.chance)[:judged].max() <= limit),
        "reliability": {t: {name: array.tolist() for name, array in curve.items()} for t, curve in curves.items()},
    }


def _judged(ends: Ints) -> int:
    """The last step that enough test sequences reach to tell an error of calibration from chance."""
    return int(np.sort(ends)[::-1][min(ENOUGH, len(ends)) - 1])
