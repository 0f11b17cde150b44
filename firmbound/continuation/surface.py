"""What backward induction asks of an estimator: three small protocols, no base class."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from firmbound.arrays import Floats
from firmbound.errors import InvalidInput

# What surfaces are functions of, a row a sequence: posteriors (K), log-likelihood ratios (K - 1), the largest
# posteriors in order and the rest (RANKS + 1), or posteriors and summaries of the past beside them (K + M).
Statistic = Literal["posterior", "llr", "ranked", "memory"]


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
        """All there is to save: what is registered for `kind` makes an equal surface of them."""
        ...

    def facts(self) -> Mapping[str, float]:
        """How the fit went, the worst over costs of each number."""
        ...


@runtime_checkable
class UncertainSurface(RiskSurface, Protocol):
    """A surface that knows how sure it is."""

    def deviation(self, statistic: Floats) -> Floats:
        """Standard deviation of the surface, (m, p) -> (m, C)."""
        ...


class PreparedFit(Protocol):
    """What was made of the statistic at one t before any risk was known."""

    def fit(self, next_risk: Floats, later: RiskSurface | None = None) -> RiskSurface:
        """Regress the minimum risk one step later, (n, C), on the prepared statistic: all costs at once.

        `later` is the surface at t + 1, from which an iterative fit may start.
        """
        ...


class SurfaceFitter(Protocol):
    """An estimator of the conditional expectation E[minimum risk at t + 1 | statistic at t]."""

    @property
    def statistic(self) -> Statistic: ...

    def prepare(self, statistic: Floats) -> PreparedFit:
        """Work that needs no future, (n, p): every t may be prepared in parallel."""
        ...


def worst_facts(surfaces: Iterable[RiskSurface]) -> dict[str, float]:
    """The largest of each number over all time steps; nan where one of them is."""
    found: dict[str, list[float]] = {}
    for surface in surfaces:
        for name, value in surface.facts().items():
            found.setdefault(name, []).append(value)
    return {name: float(np.max(values)) for name, values in found.items()}


def check_targets(next_risk: Floats) -> Floats:
    """(n, C) finite targets."""
    if next_risk.ndim != 2:
        raise InvalidInput("next_risk", "have shape (n, C)", f"shape {next_risk.shape}")
    if not np.all(np.isfinite(next_risk)):
        raise InvalidInput(
            "next_risk", "be finite", f"{np.count_nonzero(~np.isfinite(next_risk))} NaN or infinite values"
        )
    return next_risk
