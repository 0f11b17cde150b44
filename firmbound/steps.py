"""Where backward induction keeps what a step leaves for the next, as a protocol: in memory, or where a kill leaves it.

Work may run in other processes, on other machines. What it shares is large, so it hands on places, not arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from firmbound.arrays import Floats
from firmbound.continuation.surface import RiskSurface


class Place(Protocol):
    """Where an array lies."""

    def read(self) -> NDArray[Any]: ...

    def is_there(self) -> bool: ...


@dataclass(frozen=True)
class Step:
    """A finished step: the surface at t, and where the minimum risks (n, C) of all sequences at t lie."""

    surface: RiskSurface | None
    minimum: Place


class Steps(Protocol):
    """Finished steps, and arrays that all steps read."""

    def lay(self, name: str, array: NDArray[Any]) -> Place:
        """Put an array where all work can read it."""
        ...

    def keep(self, t: int, surface: RiskSurface, minimum: Floats) -> Step:
        """Called by the work itself, wherever it runs, when step t is finished."""
        ...

    def find(self, t: int) -> Step | None:
        """What an earlier induction on the same data left of step t."""
        ...

    def forget_minimum(self, t: int) -> None:
        """Step t - 1 is finished, so nobody asks for the minimum risks at t again."""
        ...


@dataclass(frozen=True)
class _Held:
    array: NDArray[Any]

    def read(self) -> NDArray[Any]:
        return self.array

    def is_there(self) -> bool:
        return True


class InMemory:
    """The plain way: all work runs in this process, and ends with it."""

    def lay(self, name: str, array: NDArray[Any]) -> Place:
        return _Held(array)

    def keep(self, t: int, surface: RiskSurface, minimum: Floats) -> Step:
        return Step(surface, _Held(minimum))

    def find(self, t: int) -> Step | None:
        return None

    def forget_minimum(self, t: int) -> None:
        """It is gone when nobody holds it."""
