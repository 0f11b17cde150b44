"""What backward induction asks of an estimator: three small protocols, no base class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Protocol

from numpy.typing import NDArray

from firmbound.arrays import Floats

Statistic = Literal["posterior", "llr"]


class RiskSurface(Protocol):
    """Continuation risk without the cost of the next observation, for C costs: (m, p) -> (m, C)."""

    kind: ClassVar[str]

    def __call__(self, statistic: Floats) -> Floats: ...

    def at(self, statistic: Floats) -> float:
        """One point (p,) of a surface of one cost, without the overhead of arrays of them."""
        ...

    def select(self, index: int) -> RiskSurface:
        """The surface of one cost: (m, p) -> (m, 1)."""
        ...

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """The constructor's arguments: the class registered for `kind` makes an equal surface of them."""
        ...


class PreparedFit(Protocol):
    """What was made of the statistic at one t before any risk was known."""

    def fit(self, next_risk: Floats) -> RiskSurface:
        """Regress the minimum risk one step later, (n, C), on the prepared statistic: all costs at once."""
        ...


class SurfaceFitter(Protocol):
    """An estimator of the conditional expectation E[minimum risk at t + 1 | statistic at t]."""

    @property
    def statistic(self) -> Statistic: ...

    def prepare(self, statistic: Floats) -> PreparedFit:
        """Work that needs no future, (n, p): every t may be prepared in parallel."""
        ...
