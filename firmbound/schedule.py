"""Where work runs, as a protocol: the library does it in order, an orchestrator may do better."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

R = TypeVar("R")


class Handle(Protocol[R]):  # type: ignore[misc]  # R is only ever produced
    """Work under way."""

    def result(self) -> R: ...


class Schedule(Protocol):
    """Where work runs: at once, in a thread, or as a task of an orchestrator.

    Handles among the arguments are replaced by their results before the work starts.
    """

    def submit(self, name: str, work: Callable[..., R], *arguments: Any) -> Handle[R]: ...


@dataclass(frozen=True)
class _Done:
    value: Any

    def result(self) -> Any:
        return self.value


class InOrder:
    """The plain schedule: do it now, here."""

    def submit(self, name: str, work: Callable[..., R], *arguments: Any) -> Handle[R]:
        return _Done(work(*[given.value if isinstance(given, _Done) else given for given in arguments]))
