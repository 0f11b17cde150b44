"""Checks of the machine: Python, packages, programs, disk, memory, processor, clock. Nothing is written."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.doctor_reading import bytes_to_come, cache_folder, existing, raw_params
from flows.finding import Finding, bad, good, note

if TYPE_CHECKING:
    from packaging.requirements import Requirement

PACKAGE, EXTRA = "firmbound", "pipeline"
SETUP = "Run `make setup`."
GIGABYTE = 1_000_000_000
# What logs, databases and figures take beside the stores; and where work gets uncomfortable.
LEAST_DISK, EASY_DISK = 0.5 * GIGABYTE, 5 * GIGABYTE
LEAST_MEMORY, EASY_MEMORY = 0.7 * GIGABYTE, 2 * GIGABYTE
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def python_version() -> Finding:
    from packaging.specifiers import SpecifierSet

    wanted = _about_us()["Requires-Python"]
    here = ".".join(map(str, sys.version_info[:3]))
    if not SpecifierSet(wanted).contains(here, prereleases=True):
        return bad(f"Python {here}; {wanted} is needed", "Install such a Python, then `make setup PYTHON=python3.x`.")
    return good(f"Python {here}")


def packages() -> Finding:
    """Versions against the bounds of the package as it is installed; its upper bounds are known breakages."""
    wrong, count = [], 0
    for wanted in _requirements(EXTRA):
        count += 1
        there = _version(wanted.name)
        if there is None:
            wrong.append(f"{wanted.name} is missing")
        elif not wanted.specifier.contains(there, prereleases=True):
            wrong.append(f"{wanted.name} {there}, where {wanted.specifier} is needed")
    if wrong:
        return bad("; ".join(wrong), f"{SETUP} If that changes nothing, remove .venv/ first.")
    return good(f"{count} packages of the pipeline are there, in versions known to work")


def pins() -> Finding:
    """Versions against constraints.txt, what was tested together."""
    file = Path("constraints.txt")
    if not file.is_file():
        return note("no constraints.txt here", "Run from the project's root.")
    pinned = [line.strip().split("==") for line in file.read_text().splitlines() if "==" in line]
    found = [(name, version, _version(name)) for name, version in pinned]
    # torch's builds for one processor or another have the same version: 2.13.0+cpu is 2.13.0.
    different = [one for one in found if one[2] is not None and one[2].partition("+")[0] != one[1]]
    other = [f"{name} {there} (tested: {version})" for name, version, there in different]
    if other:
        shown = ", ".join(other[:5]) + (f" and {len(other) - 5} more" if len(other) > 5 else "")
        return note(f"other versions than were tested together: {shown}", SETUP)
    return good("versions are those that were tested together (constraints.txt)")


def development() -> Finding:
    missing = [wanted.name for wanted in _requirements("dev") if _version(wanted.name) is None]
    if missing:
        return note(f"not there, and needed by tests and style checks alone: {', '.join(missing)}", SETUP)
    return good("packages of tests and style checks are there")


def git() -> Finding:
    if shutil.which("git") is None:
        return bad("git is not to be found", "Install git; DVC and the tests need it.")
    return good("git is there")


def browser() -> Finding:
    cached = Path.home() / ".cache" / "ms-playwright"
    found = next(filter(None, map(shutil.which, BROWSERS)), None) or next(cached.glob("chromium-*"), None)
    if found is None:
        advice = "Install Chromium, or run `.venv/bin/playwright install chromium`; the pipeline needs neither."
        return note("no Chromium for the tests that look at pages", advice)
    return good(f"a browser for the tests: {found}")


def disk() -> Finding:
    """Room for the stores that are still to be made, on the disks of data/ and of the cache."""
    needed = LEAST_DISK + bytes_to_come()
    free = {place: shutil.disk_usage(existing(place)).free for place in (Path("data"), cache_folder())}
    place, least = min(free.items(), key=lambda item: item[1])
    told = f"{least / GIGABYTE:.1f} GB free for {place}"
    advice = "Free some; `dvc gc -w` removes what no present result needs."
    if least < needed:
        return bad(f"{told}, {needed / GIGABYTE:.1f} GB are needed", advice)
    return note(told, advice) if least < EASY_DISK else good(told)


def memory() -> Finding:
    import psutil

    free = psutil.virtual_memory().available
    told = f"{free / GIGABYTE:.1f} GB of memory free"
    if free < LEAST_MEMORY:
        return bad(told, "End other programs; the smallest run needs 0.7 GB.")
    return good(told) if free >= EASY_MEMORY else note(told, "Large data sets will not fit: end other programs first.")


def cores() -> Finding:
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = (raw_params().get("runner") or {}).get("workers")
    told = f"{there} cores"
    if isinstance(workers, int) and workers > there:
        advice = f"Set runner.workers to {there} in params.yaml: more are in each other's way."
        return note(f"{told}, {workers} workers", advice)
    return good(told)


def gpu() -> Finding:
    """Whether there is one, and whether params.yaml asks for one."""
    asked = sorted(_asking_for_cuda(raw_params()))
    if _version("torch") is None:
        return bad("torch is missing", SETUP)
    import torch

    if torch.cuda.is_available():
        return good(f"GPU: {torch.cuda.get_device_name()}")
    if asked:
        return bad(f"no GPU that torch can use, and params.yaml asks for one: {', '.join(asked)}", "Set them to auto.")
    return good("no GPU, and nothing asks for one")


def clock() -> Finding:
    """DVC, make and checkpoints compare times: a clock behind the files makes old things look new."""
    newest = max((file.stat().st_mtime for file in Path().glob("*") if file.is_file()), default=0.0)
    ahead = newest - time.time()
    if ahead > 60:
        advice = "Set the clock; then `touch` the files that come from the future."
        return bad(f"the clock lies {ahead / 60:,.0f} minutes behind the newest file of the project", advice)
    zone = os.environ.get("TZ", "").lstrip(":")
    if zone and not _known_zone(zone):
        return note(f"TZ names an unknown time zone: {zone}", "Unset TZ or correct it; logs are in UTC anyway.")
    return good(f"the clock says {time.strftime('%Y-%m-%d %H:%M %Z')}")


def _known_zone(zone: str) -> bool:
    import re
    from zoneinfo import ZoneInfo

    if re.fullmatch(r"<?[A-Za-z+\-0-9]{3,}>?[+-]?\d+(:\d+)*.*", zone):  # POSIX's own way to write one, as in EST5EDT
        return True
    try:
        return Path(zone).is_file() if zone.startswith("/") else bool(ZoneInfo(zone))
    except (KeyError, OSError, ValueError):
        return False


def _about_us() -> metadata.PackageMetadata:
    try:
        return metadata.metadata(PACKAGE)
    except metadata.PackageNotFoundError:
        raise ModuleNotFoundError(f"No package {PACKAGE}", name=PACKAGE) from None


def _requirements(extra: str) -> Iterator[Requirement]:
    """Of the installed package: what it needs always, and with an extra."""
    from packaging.requirements import Requirement

    for text in _about_us().get_all("Requires-Dist") or []:
        wanted = Requirement(text)
        if wanted.name != PACKAGE and (wanted.marker is None or wanted.marker.evaluate({"extra": extra})):
            yield wanted


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _asking_for_cuda(tree: Any, path: str = "") -> Iterator[str]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            if key == "device" and value == "cuda":
                yield f"{path}device"
            yield from _asking_for_cuda(value, f"{path}{key}.")
