"""Folders that appear whole or not at all: write beside, then rename."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PARTIAL = ".partial"
REPLACED = ".replaced"


@contextmanager
def publish(target: str | Path) -> Iterator[Path]:
    """Yield an empty folder beside `target` that takes its name when the block ends without an error.

    What was there before stays until that moment, and stays for good if the block fails. A kill leaves at most a hidden
    folder beside the target, which the next call removes.
    """
    target = Path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}{PARTIAL}")
    replaced = target.with_name(f".{target.name}{REPLACED}")
    if replaced.exists() and not target.exists():
        replaced.rename(target)  # a kill came between the two renames below
    for leftover in (partial, replaced):
        shutil.rmtree(leftover, ignore_errors=True)
    partial.mkdir()
    try:
        yield partial
        _sync(partial)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    if target.exists():
        target.rename(replaced)
    partial.rename(target)
    shutil.rmtree(replaced, ignore_errors=True)


def _sync(folder: Path) -> None:
    """Ask the disk to hold the folder's files before their name does: a crash must not leave a name without content."""
    for path in [*folder.rglob("*"), folder]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
