"""What the rules of a front did on given sequences: the ground for choosing among them, for promises and for drift."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from firmbound.arrays import Bools, Floats, Ints
from firmbound.early.guarantees import error_interval
from firmbound.evaluation.estimates import mean_of
from firmbound.evaluation.risk import believed_risk, realised_risk
from firmbound.evaluation.risk_gap import Alarm, risk_gap
from firmbound.posterior import posterior
from firmbound.stopping_rule import StoppingRule
from firmbound.trajectories import Decisions


@dataclass(frozen=True)
class FrontPoint:
    """One cost of the front on labelled sequences. The error has an exact 95 % interval; `_error`: a standard error.

    risk: what was paid, penalties of the true labels and costs. believed_risk: what the rule took it for when it
    decided (AAPR), None in a record that does not hold it. risk_gap: the former less the latter. alarm: the word for a
    gap beyond chance and large enough to matter, else None.
    """

    cost: float
    error: float
    error_low: float
    error_high: float
    mean_time: float
    mean_time_error: float
    risk: float
    risk_error: float
    believed_risk: float | None = None
    believed_risk_error: float | None = None
    risk_gap: float | None = None
    risk_gap_error: float | None = None
    alarm: Alarm | None = None


@dataclass(frozen=True)
class Record:
    """Decisions of C rules on the same m sequences, the slowest rule first.

    time, label: (C, m). confidence: (C, m), the posterior of what was decided. truth: (m,) true classes, or None.
    believed: (C, m) risks of the decisions as they were believed then; None where an older file does not tell.
    """

    time: Ints
    label: Ints
    confidence: Floats
    truth: Ints | None
    believed: Floats | None = None

    @classmethod
    def of(
        cls,
        rule: StoppingRule,
        evidence: NDArray[Any],
        *,
        lengths: ArrayLike | None = None,
        truth: Ints | None = None,
        cost: float | None = None,
    ) -> Record:
        """On (m, T, K) evidence; of all costs of the rule, or of one."""
        costs = rule.costs.tolist() if cost is None else [cost]
        chosen = [rule.decide(evidence, cost=each, lengths=lengths) for each in costs]
        rows = np.arange(len(evidence))
        sure = [posterior(evidence[rows, d.time - 1], rule.prior)[rows, d.label] for d in chosen]
        believed = [
            believed_risk(d, evidence, rule.prior, rule.problem, each) for d, each in zip(chosen, costs, strict=True)
        ]
        return cls(
            np.stack([d.time for d in chosen]),
            np.stack([d.label for d in chosen]),
            np.stack(sure),
            truth,
            np.stack(believed),
        )

    @property
    def sequences(self) -> int:
        return int(self.time.shape[1])

    @property
    def wrong(self) -> Bools:
        """(C, m)"""
        assert self.truth is not None
        return np.asarray(self.label != self.truth)

    def points(self, rule: StoppingRule) -> list[FrontPoint]:
        """Error, time and risk at every cost."""
        return [self._point(rule, index, cost) for index, cost in enumerate(rule.costs.tolist())]

    def _point(self, rule: StoppingRule, index: int, cost: float) -> FrontPoint:
        assert self.truth is not None
        wrong = int(self.wrong[index].sum())
        low, high = error_interval(wrong, self.sequences, 0.95)
        chosen = Decisions(self.time[index], self.label[index], rule.problem.horizon)
        time = mean_of(chosen.time.astype(float))
        risk = mean_of(realised_risk(chosen, self.truth, rule.problem, cost))
        point = FrontPoint(
            cost=cost,
            error=wrong / self.sequences,
            error_low=low,
            error_high=high,
            mean_time=time.value,
            mean_time_error=time.standard_error,
            risk=risk.value,
            risk_error=risk.standard_error,
        )
        if self.believed is None:
            return point
        believed = mean_of(self.believed[index])
        gap = risk_gap(chosen, self.believed[index], self.truth, rule.problem, cost)
        return replace(
            point,
            believed_risk=believed.value,
            believed_risk_error=believed.standard_error,
            risk_gap=gap.value,
            risk_gap_error=gap.standard_error,
            alarm=gap.alarm(),
        )

    def fits(self, rule: StoppingRule) -> bool:
        truth = 0 if self.truth is None else int(self.truth.max(initial=0))
        within = max(int(self.label.max(initial=0)), truth) < rule.problem.classes
        return len(self.time) == rule.costs.size and within and int(self.time.max(initial=1)) <= rule.problem.horizon

    def row(self, index: int) -> Record:
        """The rule of one cost alone."""
        one = slice(index, index + 1)
        believed = None if self.believed is None else self.believed[one]
        return Record(self.time[one], self.label[one], self.confidence[one], self.truth, believed)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """As they are saved."""
        truth = {} if self.truth is None else {"truth": self.truth.astype(np.int32)}
        believed = {} if self.believed is None else {"believed": self.believed}
        return {
            "time": self.time.astype(np.int32),
            "label": self.label.astype(np.int32),
            "confidence": self.confidence,
            **truth,
            **believed,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Record:
        if any(arrays[name].dtype.kind not in "iu" for name in arrays if name not in ("confidence", "believed")):
            raise ValueError("its record holds times or classes that are no whole numbers")
        time, label = arrays["time"].astype(np.int64), arrays["label"].astype(np.int64)
        confidence = np.asarray(arrays["confidence"], dtype=np.float64)
        believed = np.asarray(arrays["believed"], dtype=np.float64) if "believed" in arrays else None
        truth = arrays["truth"].astype(np.int64) if "truth" in arrays else None
        beliefs = [confidence] if believed is None else [confidence, believed]
        if any(part.shape != time.shape for part in (label, *beliefs)) or time.ndim != 2:
            raise ValueError(f"its record holds {[part.shape for part in (time, label, *beliefs)]}")
        if min(time.min(initial=1), 1 + label.min(initial=0)) < 1 or not all(np.isfinite(b).all() for b in beliefs):
            raise ValueError("its record holds impossible times, classes or beliefs")
        if truth is not None and truth.shape != time.shape[1:]:
            raise ValueError(f"its record knows the classes of {truth.shape} of {time.shape[1]} sequences")
        return cls(time, label, confidence, truth, believed)
