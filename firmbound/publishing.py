"""Folders that appear whole or not at all: write beside, then rename."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from firmbound.errors import PublishingError

PARTIAL = ".partial"
REPLACED = ".replaced"
WORK = ".work"  # in a folder that can be gone on with: whose it is


def recover(target: Path) -> None:
    """Give back its name to what a kill between the two renames of `publish` left without one."""
    replaced = target.with_name(f".{target.name}{REPLACED}")
    if replaced.exists() and not target.exists():
        replaced.rename(target)


@contextmanager
def publish(target: str | Path, *, resume: str | None = None) -> Iterator[Path]:
    """Yield an empty folder beside `target` that takes its name when the block ends without an error.

    What was there before stays until that moment, and stays for good if the block fails. A kill leaves at most a hidden
    folder beside the target, which the next call removes.

    resume: names the work. A call that names the same finds in the folder what a killed or failed one had put there;
    whoever asks for this must be able to tell what is whole.
    """
    target = Path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}{PARTIAL}")
    replaced = target.with_name(f".{target.name}{REPLACED}")
    recover(target)
    shutil.rmtree(replaced, ignore_errors=True)
    partial.mkdir(exist_ok=True)
    with _only_writer(partial, target):
        if resume is None or not _is_of(partial, resume):
            _empty(partial)
        if resume is not None:
            (partial / WORK).write_text(resume)
        try:
            yield partial
            (partial / WORK).unlink(missing_ok=True)
            _sync(partial)
        except BaseException:
            if resume is None:
                shutil.rmtree(partial, ignore_errors=True)
            raise
        if target.exists():
            target.rename(replaced)
        partial.rename(target)
        shutil.rmtree(replaced, ignore_errors=True)


@contextmanager
def whole_file(target: str | Path) -> Iterator[TextIO]:
    """Yield a text file beside `target` that takes its name when the block ends without an error."""
    target = Path(target)
    partial = _own_partial(target)
    try:
        with partial.open("w", newline="") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def whole_array(target: str | Path, array: NDArray[Any]) -> None:
    """Write an array to a file that is there as a whole, or not at all."""
    target = Path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = _own_partial(target)
    try:
        with partial.open("wb") as file:
            np.save(file, array, allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _own_partial(target: Path) -> Path:
    """Two may write the same at once, as when a scheduler believes that the first is lost."""
    return target.with_name(f".{target.name}.{os.getpid()}-{get_ident()}{PARTIAL}")


def _is_of(partial: Path, work: str) -> bool:
    name = partial / WORK
    return name.is_file() and name.read_text() == work


@contextmanager
def _only_writer(partial: Path, target: Path) -> Iterator[None]:
    """Hold a lock on the folder itself; the system lets go of it when the process ends, however it ends."""
    handle = os.open(partial, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise PublishingError(f"{target} is being written by another process. Wait for it, or end it.") from None
    try:
        yield
    finally:
        os.close(handle)


def _empty(folder: Path) -> None:
    """Remove what a killed writer left."""
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _sync(folder: Path) -> None:
    """Ask the disk to hold the folder's files before their name does: a crash must not leave a name without content."""
    for path in [*folder.rglob("*"), folder]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
