"""What a check of the doctor found. Python's own library alone: a doctor who needs the patient's health is none."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """GOOD; NOTE, worth knowing, work goes on; BAD, something needed is missing."""

    GOOD = "✓"
    NOTE = "!"
    BAD = "✗"


@dataclass(frozen=True)
class Finding:
    """What was looked at, what was found, and unless all is well, what to do."""

    verdict: Verdict
    found: str
    mend: str = ""

    def __post_init__(self) -> None:
        if (self.verdict is not Verdict.GOOD) != bool(self.mend):
            raise ValueError("a finding says what to do exactly when something is to be done")


def good(found: str) -> Finding:
    return Finding(Verdict.GOOD, found)


def note(found: str, mend: str) -> Finding:
    return Finding(Verdict.NOTE, found, mend)


def bad(found: str, mend: str) -> Finding:
    return Finding(Verdict.BAD, found, mend)
