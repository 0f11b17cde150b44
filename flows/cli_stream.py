"""Observations as JSON lines in, decisions as JSON lines out, for any number of series at once."""

import json
import math
from typing import Any, TextIO

from firmbound.early.live import EarlyStream, StreamStep
from firmbound.early_classifier import EarlyClassifier
from firmbound.errors import FirmboundError, InvalidInput


def serve_lines(
    classifier: EarlyClassifier, lines: TextIO, decisions: TextIO, errors: TextIO, *, every: bool = False
) -> int:
    """Until the input ends; returns how many lines were malformed.

    One malformed line is reported and skipped: the other series must not suffer. A series that has decided is
    remembered by its id alone, and what still comes for it is not looked at until the id ends.
    """
    classifier.stream()  # what cannot be streamed is found before the first line
    open_series: dict[str, EarlyStream | None] = {}
    bad = 0

    def tell(name: str, step: StreamStep) -> None:
        print(json.dumps({"id": name} | plain_step(step)), file=decisions, flush=True)

    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            name, observation = parse_line(line)
            step = advance(classifier, open_series, name, observation)
        except FirmboundError as problem:
            bad += 1
            print(json.dumps({"line": number, "error": str(problem)}), file=errors, flush=True)
            continue
        if step is not None and (step.decided or every):
            tell(name, step)
    for name, series in open_series.items():
        if series is not None:
            tell(name, series.end())
    return bad


def advance(
    classifier: EarlyClassifier, open_series: dict[str, EarlyStream | None], name: str, observation: Any
) -> StreamStep | None:
    """One line's work; None if there is nothing to tell. An observation of None ends the series."""
    if observation is None:
        series = open_series.pop(name, None)
        return None if series is None else series.end()
    if name in open_series and open_series[name] is None:
        return None
    series = open_series.get(name) or classifier.stream()
    step = series.push(observation)
    open_series[name] = None if step.decided else series
    return step


def parse_line(line: str) -> tuple[str, Any]:
    """The id of a series and its observation, None where the series ends."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise InvalidInput("line", "be JSON", f"{line.strip()!r:.60}") from None
    if not isinstance(found, dict) or not isinstance(found.get("id", ""), str | int):
        raise InvalidInput("line", 'be an object such as {"id": "a", "x": [0.1]}', f"{line.strip()!r:.60}")
    unknown = set(found) - {"id", "x", "end"}
    if unknown or ("x" in found) == ("end" in found) or found.get("end", True) is not True:
        raise InvalidInput("line", 'hold an id and either x, a list of numbers, or "end": true', f"{sorted(found)}")
    if "x" in found and not isinstance(found["x"], list):
        raise InvalidInput("x", "be a list of numbers", f"{found['x']!r:.60}")
    numbers = [math.nan if value is None else value for value in found["x"]] if "x" in found else None
    return str(found.get("id", "")), numbers


def plain_step(step: StreamStep) -> dict[str, Any]:
    """As JSON knows it; the continuation risk at the horizon, which is infinite, is null."""
    label = step.label.item() if hasattr(step.label, "item") else step.label
    return step._asdict() | {
        "decided": bool(step.decided),
        "label": label,
        "posterior": step.posterior.tolist(),
        "continuation_risk": step.continuation_risk if math.isfinite(step.continuation_risk) else None,
    }
