"""What a process has opened, kept for its next task: each opens it once, wherever tasks run."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from threading import Lock
from typing import Any, ParamSpec, TypeVar

from pydantic import BaseModel

P = ParamSpec("P")
R = TypeVar("R")


def held(opens: Callable[P, R]) -> Callable[P, R]:
    """The last result stays, for tasks of one stage ask for the same; another question lets go of it.

    Questions must tell apart what may change while a process lives, as `stamp` does for a folder.
    """
    answers: dict[Any, R] = {}
    one_at_a_time = Lock()

    @wraps(opens)
    def ask(*args: P.args, **kwargs: P.kwargs) -> R:
        question = tuple(_hashable(part) for part in (*args, *sorted(kwargs.items())))
        with one_at_a_time:
            if question not in answers:
                answers.clear()
                answers[question] = opens(*args, **kwargs)
            return answers[question]

    return ask


def stamp(*folders: Path) -> str:
    """Changes when one of the folders was published anew."""
    found = [folder.stat() for folder in folders]
    return ",".join(f"{one.st_ino}-{one.st_mtime_ns}" for one in found)


def _hashable(part: Any) -> Any:
    return part.model_dump_json() if isinstance(part, BaseModel) else part
