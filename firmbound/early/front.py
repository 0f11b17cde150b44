"""What the rules of a front did on given sequences: the ground for choosing among them, for promises and for drift."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from firmbound.arrays import Bools, Floats, Ints
from firmbound.early.guarantees import error_interval
from firmbound.evaluation.estimates import mean_of
from firmbound.evaluation.risk import realised_risk
from firmbound.posterior import posterior
from firmbound.stopping_rule import StoppingRule
from firmbound.trajectories import Decisions


@dataclass(frozen=True)
class FrontPoint:
    """One cost of the front on labelled sequences. The error has an exact 95 % interval; `_error`: a standard error."""

    cost: float
    error: float
    error_low: float
    error_high: float
    mean_time: float
    mean_time_error: float
    risk: float
    risk_error: float


@dataclass(frozen=True)
class Record:
    """Decisions of C rules on the same m sequences, the slowest rule first.

    time, label: (C, m). confidence: (C, m), the posterior of what was decided. truth: (m,) true classes, or None.
    """

    time: Ints
    label: Ints
    confidence: Floats
    truth: Ints | None

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
        chosen = [
            rule.decide(evidence, cost=each, lengths=lengths)
            for each in (rule.costs.tolist() if cost is None else [cost])
        ]
        rows = np.arange(len(evidence))
        sure = [posterior(evidence[rows, d.time - 1], rule.prior)[rows, d.label] for d in chosen]
        return cls(np.stack([d.time for d in chosen]), np.stack([d.label for d in chosen]), np.stack(sure), truth)

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
        assert self.truth is not None
        points = []
        for index, cost in enumerate(rule.costs.tolist()):
            wrong = int(self.wrong[index].sum())
            chosen = Decisions(self.time[index], self.label[index], rule.problem.horizon)
            time = mean_of(chosen.time.astype(float))
            risk = mean_of(realised_risk(chosen, self.truth, rule.problem, cost))
            points.append(
                FrontPoint(
                    cost,
                    wrong / self.sequences,
                    *error_interval(wrong, self.sequences, 0.95),
                    time.value,
                    time.standard_error,
                    risk.value,
                    risk.standard_error,
                )
            )
        return points

    def fits(self, rule: StoppingRule) -> bool:
        truth = 0 if self.truth is None else int(self.truth.max(initial=0))
        within = max(int(self.label.max(initial=0)), truth) < rule.problem.classes
        return len(self.time) == rule.costs.size and within and int(self.time.max(initial=1)) <= rule.problem.horizon

    def row(self, index: int) -> Record:
        """The rule of one cost alone."""
        one = slice(index, index + 1)
        return Record(self.time[one], self.label[one], self.confidence[one], self.truth)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """As they are saved."""
        truth = {} if self.truth is None else {"truth": self.truth.astype(np.int32)}
        return {
            "time": self.time.astype(np.int32),
            "label": self.label.astype(np.int32),
            "confidence": self.confidence,
            **truth,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Record:
        if any(arrays[name].dtype.kind not in "iu" for name in arrays if name != "confidence"):
            raise ValueError("its record holds times or classes that are no whole numbers")
        time, label = arrays["time"].astype(np.int64), arrays["label"].astype(np.int64)
        confidence = np.asarray(arrays["confidence"], dtype=np.float64)
        truth = arrays["truth"].astype(np.int64) if "truth" in arrays else None
        if not time.shape == label.shape == confidence.shape or time.ndim != 2:
            raise ValueError(f"its record holds {time.shape}, {label.shape} and {confidence.shape}")
        if min(time.min(initial=1), 1 + label.min(initial=0)) < 1 or not np.isfinite(confidence).all():
            raise ValueError("its record holds impossible times, classes or confidences")
        if truth is not None and truth.shape != time.shape[1:]:
            raise ValueError(f"its record knows the classes of {truth.shape} of {time.shape[1]} sequences")
        return cls(time, label, confidence, truth)
