"""The section `schedule` of params.yaml: when `make serve` runs the pipeline, and where its pages are."""

from __future__ import annotations

import re
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field

from firmbound.errors import ParameterError
from flows.recorded_sections import Section

Port = Annotated[int, Field(ge=0, le=65535)]
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
# Name, least and largest number, words that stand for numbers from the least on.
FIELDS = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, MONTHS),
    ("day of the week", 0, 7, WEEKDAYS),
)
LONGEST = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class Schedule(Section):
    """cron: five fields, read in `timezone`. Ports are of the loopback address; 0: any free one."""

    cron: str
    timezone: str
    paused: bool
    prefect_port: Port
    mlflow_port: Port


def check_schedule(schedule: Schedule) -> None:
    _check_cron(schedule.cron)
    try:
        ZoneInfo(schedule.timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        rule = "name a time zone, such as UTC or Europe/Berlin"
        raise ParameterError("schedule.timezone", rule, repr(schedule.timezone)) from None
    if schedule.prefect_port == schedule.mlflow_port != 0:
        raise ParameterError("schedule.mlflow_port", "differ from schedule.prefect_port", schedule.mlflow_port)


def _check_cron(cron: str) -> None:
    parts = cron.lower().split()
    if len(parts) != len(FIELDS):
        rule = f"have five fields: {', '.join(name for name, *_ in FIELDS)}"
        raise ParameterError("schedule.cron", rule, repr(cron), "Every day at three: 0 3 * * *")
    values = []
    for part, (name, least, largest, words) in zip(parts, FIELDS, strict=True):
        found = [_numbers(piece, least, largest, words) for piece in part.split(",")]
        if not all(found):
            rule = f"have as its {name} * or numbers from {least} to {largest}, as in 5, 1-3, */2 or 1,4"
            raise ParameterError("schedule.cron", rule, f"{part!r} in {cron!r}")
        values.append(set().union(*found))
    _, _, days, months, _ = values
    # Where both are restricted, cron takes a day that fits either of them.
    if parts[4] == "*" and not any(day <= LONGEST[month - 1] for day in days for month in months):
        raise ParameterError("schedule.cron", "name a day that its months have", repr(cron))


def _numbers(piece: str, least: int, largest: int, words: tuple[str, ...]) -> set[int]:
    """What a piece of a field stands for; nothing if it cannot be read."""
    one = r"\d{1,2}" + "".join(f"|{word}" for word in words)
    found = re.fullmatch(rf"(?:(\*)|({one})(?:-({one}))?)(?:/(\d{{1,2}}))?", piece)
    if found is None:
        return set()
    star, first, last, step = found.groups()
    if step is not None and (int(step) == 0 or not (star or last)):
        return set()

    def number(text: str) -> int:
        return least + words.index(text) if text in words else int(text)

    start = least if star else number(first)
    end = largest if star else number(last or first)
    return set(range(start, end + 1, int(step or 1))) if least <= start <= end <= largest else set()
