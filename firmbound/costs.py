"""The decision problem itself: what an error costs, what an observation costs, what stopping now risks."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from firmbound.arrays import Floats, Ints, finite_array, is_real
from firmbound.errors import InvalidInput
from firmbound.simplex import highest_minimum

# Risks are computed in units of the largest penalty. Rounding the ratios to this many digits makes them the same bits
# whatever common factor penalty and costs carry, so decisions are identical, not nearly so (App. "Parameter Space").
SIGNIFICANT_DIGITS = 12
# Below this share of the penalty a cost is lost in the rounding of risks.
SMALLEST_RATIO = 1e-12
# Risks closer than this are equal: sums of the same numbers in another order.
TIE = 1e-14


@dataclass(frozen=True)
class DecisionProblem:
    """K classes, T observations at most, penalties, and C costs per observation fitted together.

    penalty (K, K): row = true class, column = decided class. A float L means L off the diagonal; a (K,) vector means
    L_k for deciding k wrongly. delay (T,): the t-th observation costs `cost * delay[t - 1]`, 1 by default; the first
    observation is paid for too. Risks are linear in the posterior for each decision, so the stopping risk, a minimum
    of them, is concave whatever the matrix, and adding a cost that does not depend on the posterior keeps it so.
    """

    penalty: Floats
    costs: Floats
    delay: Floats
    scale: float = field(init=False)
    unit_penalty: Floats = field(init=False)
    unit_costs: Floats = field(init=False)
    unit_least: Floats = field(init=False)

    def __post_init__(self) -> None:
        scale = float(self.penalty.max())
        object.__setattr__(self, "scale", scale)
        object.__setattr__(self, "unit_penalty", _round_significant(self.penalty / scale))
        object.__setattr__(self, "unit_costs", _round_significant(self.costs / scale))
        object.__setattr__(self, "unit_least", self.unit_penalty.min(axis=1))
        for array in (self.penalty, self.costs, self.delay, self.unit_penalty, self.unit_costs, self.unit_least):
            array.setflags(write=False)

    @classmethod
    def create(
        cls,
        *,
        classes: int,
        horizon: int,
        penalty: ArrayLike,
        costs: ArrayLike,
        delay: ArrayLike | None = None,
    ) -> DecisionProblem:
        """Check what a person gave and bring it to the full form."""
        if classes < 2:
            raise InvalidInput("classes", "be at least 2", classes, "One class leaves nothing to decide.")
        if horizon < 2:
            raise InvalidInput(
                "horizon", "be at least 2", horizon, "With one observation there is nothing to wait for."
            )
        matrix = _penalty_matrix(penalty, classes)
        profile = _delay_profile(delay, horizon)
        grid = _cost_grid(costs)
        if grid.min() < SMALLEST_RATIO * matrix.max():
            raise InvalidInput("costs", f"be at least {SMALLEST_RATIO:g} of the penalty", grid.tolist())
        problem = cls(matrix, grid, profile)
        problem._check_worth_waiting()
        return problem

    @property
    def classes(self) -> int:
        return int(self.penalty.shape[0])

    @property
    def horizon(self) -> int:
        return int(self.delay.shape[0])

    @property
    def even(self) -> bool:
        """Whether any wrong decision costs the same, and a right one nothing."""
        return bool(np.array_equal(self.unit_penalty, 1.0 - np.eye(self.classes)))

    def decision_risk(self, posterior: Floats) -> Floats:
        """Risk of each decision in units of `scale`, sum_j pi_j penalty_jk.  (..., K) -> (..., K).

        With a zero diagonal this sums the *other* classes, so it keeps its digits when pi_k rounds to 1.
        """
        return np.asarray(posterior @ self.unit_penalty, dtype=np.float64)

    def stopping_risk(self, posterior: Floats) -> Floats:
        """Risk of deciding now in units of `scale`, min_k sum_j pi_j penalty_jk.  (..., K) -> (...)."""
        return np.asarray(self.decision_risk(posterior).min(axis=-1), dtype=np.float64)

    def least_risk(self, posterior: Floats) -> Floats:
        """Risk that is left when the class is known, in units of `scale`: no look can go below.  (..., K) -> (...)."""
        return np.asarray(posterior @ self.unit_least, dtype=np.float64)

    def best_label(self, posterior: Floats) -> Ints:
        """The decision of least risk; of equals, to within rounding, the lowest index.  (..., K) -> (...)."""
        risk = self.decision_risk(posterior)
        return np.asarray((risk <= risk.min(axis=-1, keepdims=True) + TIE).argmax(axis=-1), dtype=np.int64)

    def next_cost(self, t: int) -> Floats:
        """Price, in units of `scale`, of the observation after the t-th (t in 1..T-1).  -> (C,)."""
        return np.asarray(self.unit_costs * self.delay[t], dtype=np.float64)

    def spent(self, time: Ints, cost: float) -> Floats:
        """Cost of the first `time` observations, cost * sum of the delay profile.  (n,) -> (n,)."""
        return np.asarray(cost * np.cumsum(self.delay)[np.asarray(time) - 1], dtype=np.float64)

    def cost_index(self, cost: float | None) -> int:
        """Position of `cost` on the grid; None when there is only one."""
        if cost is None:
            if self.costs.size == 1:
                return 0
            raise InvalidInput("cost", "be named when a rule holds several", None, f"Choose of {self.costs.tolist()}.")
        if not is_real(cost):
            raise InvalidInput("cost", f"be one of {self.costs.tolist()}", f"{cost!r:.60}")
        wanted = float(str(cost))  # as it reads: a number of single precision means what it shows
        close = np.flatnonzero(np.isclose(self.costs, wanted, rtol=1e-9, atol=0.0))
        if close.size == 0:
            raise InvalidInput("cost", f"be one of {self.costs.tolist()}", cost, "Fit the rule with this cost too.")
        return int(close[0])

    @property
    def dearest(self) -> float:
        """The cost at which no one would ever observe twice."""
        return float(self.scale * _largest_gain(self.unit_penalty) / self.delay[1])

    def _check_worth_waiting(self) -> None:
        too_dear = self.costs[self.costs >= self.dearest]
        if too_dear.size:
            raise InvalidInput(
                "costs",
                f"be below {self.dearest:.6g}, the most that a second observation could gain",
                too_dear.tolist(),
                "No one would ever observe twice. Costs are per observation, not per series.",
            )


def _penalty_matrix(penalty: ArrayLike, classes: int) -> Floats:
    words = f"of shape (), ({classes},) or ({classes}, {classes})"
    array = finite_array("penalty", penalty, ndim=None, shape_words=words)
    if array.size and array.min() < 0:
        raise InvalidInput("penalty", "be non-negative", penalty)
    if array.shape not in {(), (classes,), (classes, classes)}:
        raise InvalidInput(
            "penalty",
            f"be a number, a ({classes},) vector or a ({classes}, {classes}) matrix",
            f"shape {array.shape}",
            "A matrix has a row for the true class and a column for the decision.",
        )
    if array.ndim == 2:
        matrix = array.astype(np.float64)
    else:
        matrix = np.broadcast_to(array.astype(np.float64), (classes, classes)) * (1.0 - np.eye(classes))
    if matrix.max() <= 0 or _largest_gain(matrix / matrix.max()) < 1e-9:
        advice = "One decision is as good as any for every class, so there is nothing to wait for."
        raise InvalidInput("penalty", "make the best decision depend on the class", penalty, advice)
    return matrix


def _cost_grid(costs: ArrayLike) -> Floats:
    array = np.atleast_1d(finite_array("costs", costs, ndim=None, shape_words="(C,)")).astype(np.float64)
    if array.ndim != 1:
        raise InvalidInput("costs", "be a number or have shape (C,)", f"shape {array.shape}")
    if array.size == 0:
        raise InvalidInput("costs", "hold at least one cost", "none")
    if array.min() <= 0:
        raise InvalidInput(
            "costs", "be positive", array.tolist(), "With free observations one always waits to the end."
        )
    if np.unique(array).size != array.size:
        raise InvalidInput("costs", "differ from each other", array.tolist())
    return array.copy()


def _delay_profile(delay: ArrayLike | None, horizon: int) -> Floats:
    if delay is None:
        return np.ones(horizon)
    array = finite_array("delay", delay, ndim=1, shape_words=f"({horizon},)").astype(np.float64)
    if array.shape != (horizon,):
        raise InvalidInput("delay", f"have shape ({horizon},), one factor an observation", f"shape {array.shape}")
    if array.min() < 0 or array[1:].max() <= 0:
        raise InvalidInput("delay", "be non-negative and positive somewhere after the first", array.tolist())
    return array.copy()


def _largest_gain(penalty: Floats) -> float:
    """The most that knowing the class could save, max over the simplex of min_k (pi @ penalty)_k - pi @ row minima.

    This is the value of a matrix game, by linear programming.
    """
    matrix = penalty - penalty.min(axis=1, keepdims=True)
    return highest_minimum(matrix.T, np.zeros(len(matrix))) or 0.0


def _round_significant(values: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        magnitude = np.where(values > 0, np.floor(np.log10(np.where(values > 0, values, 1.0))), 0.0)
    unit = 10.0 ** (SIGNIFICANT_DIGITS - 1 - magnitude)
    return np.asarray(np.round(values * unit) / unit, dtype=np.float64)
