"""The log of stages, read: lines that fit a wish, and what each stage used."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firmbound.errors import InvalidInput
from flows.observability import BEGUN, ENDED, FOLDER, NAME, OLD_FILES, old_file

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
NEWEST = "last"
MEASURES = ("seconds", "cpu_seconds", "peak_mb", "child_peak_mb")
Line = dict[str, Any]


@dataclass(frozen=True)
class Wish:
    """Which lines; None: all. run: its name, or `last`. level: this or more serious."""

    run: str | None = None
    stage: str | None = None
    dataset: str | None = None
    level: str | None = None
    t: int | None = None

    def __post_init__(self) -> None:
        if self.level is not None and self.level.upper() not in LEVELS:
            raise InvalidInput("level", f"be one of {', '.join(LEVELS).lower()}", repr(self.level))

    def fits(self, line: Line) -> bool:
        if self.level is not None and _number(line["level"]) < _number(self.level.upper()):
            return False
        if self.run is not None and self.run not in (line.get("run"), line.get("flow_run"), line.get("flow_run_id")):
            return False
        asked = (("stage", self.stage), ("dataset", self.dataset), ("t", self.t))
        return all(wanted is None or line.get(name) == wanted for name, wanted in asked)


@dataclass(frozen=True)
class StageRun:
    """One run of a stage. result: completed, failed, interrupted, or `no end` of one that was killed or still runs."""

    id: str
    stage: str
    dataset: str | None
    run: str | None
    begun: str
    result: str
    seconds: float | None = None
    cpu_seconds: float | None = None
    peak_mb: float | None = None
    child_peak_mb: float | None = None
    exception: str | None = None


def read_log(folder: Path = FOLDER) -> Iterator[Line]:
    """All lines, the oldest first; a line that a full disk has cut is left out."""
    for file in (*(old_file(folder, number) for number in range(OLD_FILES, 0, -1)), folder / NAME):
        if not file.is_file():
            continue
        with file.open(errors="replace") as lines:
            for text in lines:
                try:
                    line = json.loads(text)
                except ValueError:
                    continue
                if isinstance(line, dict) and {"time", "level", "message"} <= set(line):
                    yield line


def wanted_lines(lines: Iterable[Line], wish: Wish) -> list[Line]:
    found = list(lines)
    if wish.run == NEWEST:
        newest = next((line["run"] or line["flow_run_id"] for line in reversed(found) if _has_run(line)), None)
        wish = Wish(newest, wish.stage, wish.dataset, wish.level, wish.t)
    return [line for line in found if wish.fits(line)]


def stage_runs(lines: Iterable[Line]) -> list[StageRun]:
    """By the order in which they began."""
    found: dict[str, StageRun] = {}
    for line in lines:
        number = line.get("stage_run")
        if not isinstance(number, str):
            continue
        about: dict[str, Any] = {name: line.get(name) for name in ("stage", "dataset", "run")}
        if line["message"] == BEGUN:
            found[number] = StageRun(id=number, begun=line["time"], result="no end", **about)
        elif line["message"] == ENDED:
            used: dict[str, Any] = {name: line.get(name) for name in MEASURES}
            begun = found[number].begun if number in found else line["time"]
            told: dict[str, Any] = {"result": line["result"], "exception": line.get("exception")}
            found[number] = StageRun(id=number, begun=begun, **about, **told, **used)
    return list(found.values())


def _has_run(line: Line) -> bool:
    return bool(line.get("run") or line.get("flow_run_id"))


def _number(level: str) -> int:
    return logging.getLevelNamesMapping().get(level, logging.INFO)
