"""Pinned packages against known vulnerabilities, by pip-audit: `make audit`.

Exit code 0: none is known. 1: some are. 2: the lists of pins or of accepted ones cannot be read. 3: the service that
knows them gave no answer, so nothing was learned; pip-audit itself would call that a success.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PINS, SETTINGS = Path("constraints.txt"), Path("pyproject.toml")
NONE_KNOWN, SOME_KNOWN, UNREADABLE, NO_ANSWER = 0, 1, 2, 3
SECONDS_EACH = "15"


@dataclass(frozen=True)
class Vulnerability:
    package: str
    version: str
    names: tuple[str, ...]
    fixed_in: tuple[str, ...]

    def __str__(self) -> str:
        mend = f"mended in {', '.join(self.fixed_in)}" if self.fixed_in else "not mended yet"
        return f"{self.package} {self.version}: {', '.join(self.names)} ({mend})"


@dataclass(frozen=True)
class Answer:
    """What the service said: how many packages it knows, which it does not, and what is wrong with them."""

    known: int
    unknown: tuple[str, ...]
    vulnerabilities: tuple[Vulnerability, ...]


class NoAnswer(Exception):
    """The service could not be asked."""


def main() -> int:
    try:
        accepted = read_accepted(SETTINGS)
        if not PINS.is_file():
            raise ValueError(f"{PINS} is not here; run from the project's root")
    except ValueError as problem:
        print(f"firmbound: {problem}", file=sys.stderr)
        return UNREADABLE
    try:
        answer = parse(ask())
    except NoAnswer as problem:
        print(f"firmbound: nothing was audited: {problem}. Try again where the network is.", file=sys.stderr)
        return NO_ANSWER
    return tell(answer, accepted)


def read_accepted(file: Path) -> dict[str, str]:
    """Vulnerabilities that somebody looked at, with the reason why they do not touch us."""
    try:
        settings = tomllib.loads(file.read_text())
    except (OSError, tomllib.TOMLDecodeError) as problem:
        raise ValueError(f"{file} cannot be read: {problem}") from None
    found = settings.get("tool", {}).get("firmbound", {}).get("audit", {}).get("accepted", {})
    for name, reason in found.items():
        if not isinstance(reason, str) or len(reason.split()) < 3:
            raise ValueError(f"{file}: `audit.accepted.{name}` must say why in words; got {reason!r}")
    return dict(found)


def ask() -> str:
    """pip-audit's answer in JSON."""
    command = [sys.executable, "-m", "pip_audit", "-r", str(PINS), "--no-deps", "--disable-pip"]
    options = ["--format", "json", "--progress-spinner", "off", "--timeout", SECONDS_EACH]
    ended = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    if not ended.stdout.strip():
        said = (ended.stderr.strip().splitlines() or ["pip-audit said nothing"])[-1]
        raise NoAnswer(said[:300])
    return ended.stdout


def parse(said: str) -> Answer:
    try:
        packages = json.loads(said)["dependencies"]
        unknown = tuple(one["name"] for one in packages if "skip_reason" in one)
        found = tuple(_vulnerability(one, each) for one in packages for each in one.get("vulns", []))
    except (ValueError, KeyError, TypeError) as problem:
        raise NoAnswer(f"pip-audit's answer cannot be read ({problem!r})") from None
    if len(unknown) == len(packages):
        raise NoAnswer(f"the vulnerability service knows none of {len(packages)} packages, so it cannot be reached")
    return Answer(len(packages) - len(unknown), unknown, found)


def _vulnerability(package: dict[str, Any], one: dict[str, Any]) -> Vulnerability:
    names = (one["id"], *one.get("aliases", []))
    return Vulnerability(package["name"], package["version"], names, tuple(one.get("fix_versions", [])))


def tell(answer: Answer, accepted: dict[str, str]) -> int:
    """Print what is new, what was accepted and why, and what need not be accepted any more."""
    open_ones = [one for one in answer.vulnerabilities if not set(one.names) & set(accepted)]
    named = {name for one in answer.vulnerabilities for name in one.names}
    print(f"{answer.known} packages were looked up in {PINS}.")
    if answer.unknown:
        print(f"Not known to the service, so not audited: {', '.join(answer.unknown)}")
    for one in answer.vulnerabilities:
        reason = next((accepted[name] for name in one.names if name in accepted), None)
        print(f"  {one}" + (f"\n    accepted: {reason}" if reason else ""))
    for name in sorted(set(accepted) - named):
        print(f"  {name} is over: remove it from {SETTINGS}.")
    print(f"{len(open_ones)} vulnerabilities to look at." if open_ones else "None is known that is not accepted.")
    return SOME_KNOWN if open_ones else NONE_KNOWN


if __name__ == "__main__":
    sys.exit(main())
