"""What stages tell: JSON lines in .logs/, and at the end of each stage how long it took and how much memory.

One line is one write to a file opened for appending, so processes that write side by side never mix their lines. Files
are of limited size, the oldest is dropped, and no result depends on them: DVC does not know of them.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import sys
import traceback
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flows.redaction import install, redact
from flows.usage import Usage

FOLDER, NAME = Path(".logs"), "firmbound.jsonl"
LARGEST_FILE = 16 * 2**20
OLD_FILES = 4
LONGEST_TEXT = 20_000
# Names the run of the pipeline that a stage belongs to; child processes inherit it, and the two others.
RUN, STAGE, DATASET = "FIRMBOUND_RUN", "FIRMBOUND_STAGE", "FIRMBOUND_DATASET"
# Of stages' beginnings and ends; these are for the file, people see the flow's own lines.
STAGES = "firmbound.stages"
BEGUN, ENDED = "stage begun", "stage ended"
TIME_STEP = re.compile(r"\bt=(\d+)\b")


class JsonLines(logging.Handler):
    """Appends each record to the log as one line of JSON. A log that cannot be written is told once, and work goes on.

    It has no formatter, for Prefect would take a handler with one as a wish to have no console.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder, self.told = folder.absolute(), False

    def emit(self, record: logging.LogRecord) -> None:
        try:
            append(self.folder, as_line(record))
        except OSError as problem:
            if not self.told:
                self.told = True
                print(f"firmbound: the log {self.folder / NAME} cannot be written: {problem}", file=sys.stderr)
        except Exception:
            self.handleError(record)


def append(folder: Path, line: str) -> None:
    """One write. Opened by name each time: after another process has moved the file, lines go to the new one."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder / NAME, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(handle, line.encode())
        full = os.fstat(handle).st_size >= LARGEST_FILE
    finally:
        os.close(handle)
    if full:
        rotate(folder)


def rotate(folder: Path) -> None:
    """Number the old files up; whoever came second finds the new file small, and does nothing."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        newest = folder / NAME
        if not newest.is_file() or newest.stat().st_size < LARGEST_FILE:
            return
        for number in range(OLD_FILES - 1, 0, -1):
            if old_file(folder, number).is_file():
                old_file(folder, number).replace(old_file(folder, number + 1))
        newest.replace(old_file(folder, 1))
    finally:
        os.close(handle)


def old_file(folder: Path, number: int) -> Path:
    return folder / f"{Path(NAME).stem}.{number}.jsonl"


def as_line(record: logging.LogRecord) -> str:
    """Everything a filter may ask for is a field of its own; what is not known is null."""
    task, flow_run = _prefect_names(record)
    step = TIME_STEP.search(task or "")
    fields = {
        "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
        "level": record.levelname,
        "message": record.getMessage(),
        "run": os.environ.get(RUN),
        "stage": os.environ.get(STAGE),
        "dataset": os.environ.get(DATASET),
        "t": int(step[1]) if step else None,
        "task": task,
        "flow_run": flow_run[0],
        "flow_run_id": flow_run[1],
        "logger": record.name,
        "process": record.process,
        "exception": _exception(record),
        **getattr(record, "measured", {}),
    }
    return json.dumps({name: _clean(value) for name, value in fields.items()}, allow_nan=False) + "\n"


def _prefect_names(record: logging.LogRecord) -> tuple[str | None, tuple[str | None, str | None]]:
    """Task, and name and id of the flow run: as Prefect's logger says, or of the run that this thread is in."""
    task, name = getattr(record, "task_run_name", None), getattr(record, "flow_run_name", None)
    number = getattr(record, "flow_run_id", None)
    context = sys.modules.get("prefect.context")
    if context is not None and number is None:
        in_task, in_flow = context.TaskRunContext.get(), context.FlowRunContext.get()
        task = task or (in_task.task_run.name if in_task else None)
        number = in_task.task_run.flow_run_id if in_task else None
        if in_flow and in_flow.flow_run:
            name, number = in_flow.flow_run.name, in_flow.flow_run.id
    known = [None if value in (None, "<unknown>") else str(value) for value in (task, name, number)]
    return known[0], (known[1], known[2])


def _exception(record: logging.LogRecord) -> str | None:
    if isinstance(record.exc_info, tuple) and record.exc_info[0] is not None:
        return "".join(traceback.format_exception(*record.exc_info)).rstrip()
    return record.exc_text


def _clean(value: Any) -> Any:
    """Without secrets, and not longer than anybody reads; of a traceback the end says most."""
    if not isinstance(value, str):
        return value
    text = redact(value)
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT // 2]} [..] {text[-LONGEST_TEXT // 2 :]}"


def attach(folder: Path = FOLDER) -> None:
    """Send what this process logs to the file, too; and let no secret into any log. A second call changes nothing."""
    import prefect  # noqa: F401 - it sets up logging when it is imported, and would remove a handler that came before

    install()
    root, stages = logging.getLogger(), logging.getLogger(STAGES)
    if any(isinstance(handler, JsonLines) for handler in root.handlers):
        return
    handler = JsonLines(folder)
    root.addHandler(handler)
    stages.addHandler(handler)
    stages.propagate = False
    stages.setLevel(logging.INFO)


@contextmanager
def observed(stage: str, dataset: str | None = None) -> Iterator[None]:
    """Log a stage's beginning, and at its end what it used and how it ended, also if it failed."""
    os.environ[STAGE] = stage
    os.environ.pop(DATASET, None)
    if dataset is not None:
        os.environ[DATASET] = dataset
    attach()
    log, number, usage = logging.getLogger(STAGES), uuid.uuid4().hex, Usage()
    log.info(BEGUN, extra={"measured": {"stage_run": number}})
    result, problem = "failed", None
    try:
        yield
        result = "completed"
    except SystemExit as ended:
        result = "failed" if ended.code else "completed"
        problem = str(ended.code) if ended.code else None
        raise
    except KeyboardInterrupt:
        result = "interrupted"
        raise
    except BaseException as ended:
        told_to_end = type(ended).__name__ == "TerminationSignal"  # what Prefect makes of SIGTERM
        result, problem = ("interrupted", None) if told_to_end else ("failed", traceback.format_exc())
        raise
    finally:
        level = logging.INFO if result == "completed" else logging.ERROR
        measured = {"stage_run": number, "result": result, "exception": problem, **usage.now()}
        log.log(level, ENDED, extra={"measured": measured})
