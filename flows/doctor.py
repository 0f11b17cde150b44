"""What is missing on this machine, and what to do about it: `make doctor`, `firmbound doctor`. Changes no file.

python -m flows.doctor [check ...]      all checks, or those named; exit code 1 if something needed is missing

A check is a function that hands back a Finding. It imports what it needs itself: a package that is not there is a
finding like any other.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

sys.dont_write_bytecode = True  # compiled files would be a change, too

from flows import doctor_machine, doctor_project, doctor_services  # noqa: E402 - after the line above
from flows.finding import Finding, Verdict, bad  # noqa: E402
from flows.redaction import redact  # noqa: E402

CHECKS: dict[str, Callable[[], Finding]] = {
    "python": doctor_machine.python_version,
    "packages": doctor_machine.packages,
    "pins": doctor_machine.pins,
    "development": doctor_machine.development,
    "git": doctor_machine.git,
    "params": doctor_project.params,
    "repository": doctor_project.repository,
    "lock": doctor_project.lock,
    "cache": doctor_project.cache,
    "results": doctor_project.results,
    "folders": doctor_project.folders,
    "disk": doctor_machine.disk,
    "memory": doctor_machine.memory,
    "cores": doctor_machine.cores,
    "gpu": doctor_machine.gpu,
    "clock": doctor_machine.clock,
    "prefect": doctor_services.prefect_server,
    "mlflow": doctor_services.mlflow_store,
    "dask": doctor_services.dask,
    "ports": doctor_services.ports,
    "browser": doctor_machine.browser,
}
COLOURS = {Verdict.GOOD: "green", Verdict.NOTE: "yellow", Verdict.BAD: "red"}


def examine(names: Sequence[str] = ()) -> int:
    """Show what each check finds; 1 if something needed is missing, 2 for a name that is no check's."""
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        print(f"firmbound: `check` must be one of {', '.join(CHECKS)}; got {', '.join(unknown)}.", file=sys.stderr)
        return 2
    verdicts = []
    for name in names or CHECKS:
        finding = look(CHECKS[name])
        show(name, finding)
        verdicts.append(finding.verdict)
    missing = verdicts.count(Verdict.BAD)
    print(f"\n{missing} of {len(verdicts)} checks failed." if missing else "\nNothing that is needed is missing.")
    return 1 if missing else 0


def look(check: Callable[[], Finding]) -> Finding:
    """A check that cannot be made is a finding itself."""
    try:
        return check()
    except ImportError as problem:
        return bad(f"cannot be checked: {problem.name or problem} is not installed", doctor_machine.SETUP)
    except Exception as problem:
        said = f"cannot be checked: {type(problem).__name__}: {problem}"
        return bad(said, "Look at what it names; if that is in order, please report it.")


def show(name: str, finding: Finding) -> None:
    found, mend = (" ".join(redact(text).split()) for text in (finding.found, finding.mend))
    line = f"{name:12} {found}" + (f"\n{'':15}-> {mend}" if mend else "")
    try:
        from rich.console import Console
        from rich.text import Text
    except ImportError:
        print(f"{finding.verdict.value} {line}")
        return
    shown = Text(finding.verdict.value, style=f"bold {COLOURS[finding.verdict]}")
    Console(soft_wrap=True, highlight=False).print(shown.append(f" {line}", style="default not bold"))


if __name__ == "__main__":
    sys.exit(examine(sys.argv[1:]))
