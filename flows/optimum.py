"""The exact optimum, where there is one: Gaussian problems of two or three classes."""

from __future__ import annotations

from firmbound.costs import DecisionProblem
from firmbound.datasets import GaussianProblem
from firmbound.oracle import Oracle, solve_gaussian
from flows.sections import Features, GeneratedFeatures


def gaussian_behind(section: Features) -> GaussianProblem | None:
    """The problem that sequences are drawn from, if its optimum can be found."""
    drawn = section.problem("train") if isinstance(section, GeneratedFeatures) else None
    return drawn if isinstance(drawn, GaussianProblem) and drawn.classes <= 3 else None


def optimum_of(drawn: GaussianProblem, problem: DecisionProblem) -> Oracle:
    return solve_gaussian(drawn, costs=problem.costs, penalty=problem.penalty, delay=problem.delay)
