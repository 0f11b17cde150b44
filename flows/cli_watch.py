"""Commands that look after a project: `firmbound logs` and `firmbound doctor`."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli_errors import one_line_errors

if TYPE_CHECKING:
    from flows.log_reading import Line, StageRun


def logs(
    run: Annotated[str | None, typer.Option(help="Name of a run, of a flow run or its id; `last`: the newest.")] = None,
    stage: Annotated[str | None, typer.Option(help="Such as boundary.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Such as gauss2.")] = None,
    level: Annotated[str | None, typer.Option(help="This or more serious: debug, info, warning, error.")] = None,
    t: Annotated[int | None, typer.Option(help="Tasks of this time step alone.")] = None,
    last: Annotated[int, typer.Option(min=1, help="So many lines at most, the newest.")] = 50,
    stages: Annotated[bool, typer.Option("--stages", help="Where time went: what each stage run used.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object a line.")] = False,
) -> None:
    """What stages logged on this machine, and what they used. The log is in .logs/.

    **Example**: `firmbound logs --run last --stages`
    """
    with one_line_errors():
        from flows.log_reading import Wish, read_log, stage_runs, wanted_lines

        lines = wanted_lines(read_log(), Wish(run, stage, dataset, level, t))
        if stages:
            runs = stage_runs(lines)[-last:]
            _print_json([asdict(one) for one in runs]) if as_json else _show_runs(runs)
        else:
            _print_json(lines[-last:]) if as_json else _show_lines(lines[-last:])


def doctor(
    checks: Annotated[list[str] | None, typer.Argument(help="Names of checks; none: all.")] = None,
) -> None:
    """Say what is missing on this machine, and what to do about it. Changes nothing.

    Ends with exit code 1 if something is missing that is needed.

    **Example**: `firmbound doctor`
    """
    from flows.doctor import examine

    with one_line_errors():
        code = examine(checks or [])
    raise typer.Exit(code)


def _print_json(found: "list[Line]") -> None:
    for one in found:
        print(json.dumps(one))


def _show_lines(lines: "list[Line]") -> None:
    if not lines:
        print("No line of the log fits. Stages write it while they run; `make run` runs them.")
    for line in lines:
        where = " ".join(filter(None, (line.get("stage"), line.get("dataset"), line.get("task"))))
        print(f"{line['time'][:19]} {line['level']:7} {where}: {_told(line)}")
        if line.get("exception"):
            print("    " + line["exception"].replace("\n", "\n    "))


def _told(line: "Line") -> str:
    if line.get("seconds") is None:
        return str(line["message"])
    used = f"{line['seconds']:.1f} s, {line['cpu_seconds']:.1f} CPU s, {line['peak_mb']:.0f} MB"
    return f"{line['message']}, {line['result']} after {used}"


def _show_runs(runs: "list[StageRun]") -> None:
    from flows.cli_tables import show_table
    from flows.log_reading import MEASURES

    rows = [
        [one.begun[:19], one.stage, one.dataset or "", *(_number(getattr(one, used)) for used in MEASURES), one.result]
        for one in runs
    ]
    columns = ["begun", "stage", "data set", "seconds", "CPU seconds", "peak MB", "child MB", "result"]
    show_table("what stage runs used", columns, rows)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}"
