"""From evidence to a stopping rule: the estimator of a method's name, and backward induction with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from firmbound.arrays import Floats, Ints, check_lengths
from firmbound.backward_induction import Progress, induce
from firmbound.continuation.convex import ConvexFitter, ConvexOptions
from firmbound.continuation.gaussian_process import ProcessFitter, ProcessOptions
from firmbound.continuation.memory_fitter import MemoryFitter
from firmbound.continuation.surface import Statistic, SurfaceFitter
from firmbound.costs import DecisionProblem
from firmbound.errors import InvalidInput
from firmbound.posterior import class_prior
from firmbound.schedule import Schedule
from firmbound.steps import Steps
from firmbound.stopping_rule import StoppingRule, check_confidence
from firmbound.trajectories import check_evidence

Method = Literal["cfl", "gp"]
Options = ConvexOptions | ProcessOptions
# From so many classes on, surfaces are functions of ranked posteriors: those of each posterior would need more
# sequences than there are (benchmarks/results/ranked.json).
RANKED_FROM = 10


def fit_stopping_rule(
    evidence: ArrayLike,
    *,
    lengths: ArrayLike | None = None,
    costs: ArrayLike,
    penalty: ArrayLike = 10.0,
    prior: ArrayLike | None = None,
    delay: ArrayLike | None = None,
    method: Method = "cfl",
    options: Options | None = None,
    statistic: Statistic | None = None,
    confidence: float = 0.5,
    schedule: Schedule | None = None,
    progress: Progress | None = None,
    seed: int = 0,
) -> StoppingRule:
    """Fit the rules of all `costs` on evidence (n, T, K), which needs no labels.

    lengths: (n,) observations of each sequence, where some end before T; those are decided at their end.
    penalty: a number, a (K,) vector or a (K, K) matrix (row = true class, column = decision). prior: (K,), uniform by
    default. delay: (T,) factors on the cost of each observation. method: "cfl", concave surfaces, or "gp", Gaussian
    processes, which know how sure they are: with a `confidence` above one half the rule stops only when stopping is
    better with that probability. statistic: what the risk of going on depends on, "posterior", "llr" ("gp" alone),
    "ranked", the largest posteriors whatever classes they are of, or "memory", the past beside the posterior, for
    evidence that is not Markov; by default what the options say, else "ranked" for many classes of one penalty. `seed`
    is for what draws at random: subsamples, folds, mini-batches.

    >>> problem = firmbound.datasets.gaussian(classes=2, sequences=20_000)
    >>> rule = firmbound.fit_stopping_rule(problem.evidence, costs=[0.02, 0.2, 0.4], penalty=10.0)
    >>> rule.decide(problem.evidence, cost=0.2).time.mean()
    """
    check_confidence(confidence, certain=method == "cfl")
    values = check_evidence(evidence)
    _, horizon, classes = values.shape
    problem = DecisionProblem.create(classes=classes, horizon=horizon, penalty=penalty, costs=costs, delay=delay)
    chances = class_prior(prior, classes)
    fitter = make_fitter(method, problem, chances, options, seed=seed, statistic=statistic)
    ends = None if lengths is None else check_lengths(lengths, count=len(values), horizon=horizon)
    rule = fit_from_slices(
        lambda t: values[:, t - 1], chances, problem, fitter, lengths=ends, schedule=schedule, progress=progress
    )
    return rule.with_confidence(confidence)


def fit_from_slices(
    evidence_at: Callable[[int], NDArray[Any]],
    prior: Floats,
    problem: DecisionProblem,
    fitter: SurfaceFitter,
    *,
    lengths: Ints | None = None,
    schedule: Schedule | None = None,
    steps: Steps | None = None,
    progress: Progress | None = None,
) -> StoppingRule:
    """As `fit_stopping_rule`, asking for evidence one time step at a time: it may lie on disk, larger than memory."""
    ends = None if lengths is None or lengths.min() == problem.horizon else lengths
    if ends is not None and ends.max() < problem.horizon:
        rule = f"reach the horizon, {problem.horizon}, once at least"
        raise InvalidInput("lengths", rule, f"at most {ends.max()}", "Cut the evidence to the longest sequence.")
    surfaces = induce(
        evidence_at, prior, problem, fitter, lengths=ends, schedule=schedule, steps=steps, progress=progress
    )
    return StoppingRule(problem, prior, fitter.statistic, surfaces)


def make_fitter(
    method: Method,
    problem: DecisionProblem,
    prior: Floats,
    options: Options | None = None,
    *,
    seed: int = 0,
    statistic: Statistic | None = None,
) -> SurfaceFitter:
    """The estimator of a method's name, for a decision problem and a class prior (K,).

    statistic: another than the options say.
    """
    kinds: Mapping[str, type[Options]] = {"cfl": ConvexOptions, "gp": ProcessOptions}
    if not isinstance(method, str) or method not in kinds:
        raise InvalidInput("method", f"be one of {tuple(kinds)}", repr(method))
    chosen = kinds[method]() if options is None else options
    if isinstance(chosen, Options):
        chosen = _with_statistic(chosen, problem, chosen.statistic if statistic is None else statistic)
    if isinstance(chosen, ConvexOptions) and method == "cfl":
        known = problem.stopping_risk(np.eye(problem.classes))
        plain = ConvexFitter(known[:1] if chosen.statistic == "ranked" else known, chosen, seed)
        return MemoryFitter(plain) if chosen.statistic == "memory" else plain
    if isinstance(chosen, ProcessOptions) and method == "gp":
        return ProcessFitter(chosen.frame(prior, problem.unit_penalty), chosen, seed)
    raise InvalidInput("options", f"be {kinds[method].__name__} for method {method!r}", type(options).__name__)


def _with_statistic(options: Options, problem: DecisionProblem, wanted: Statistic | None) -> Options:
    """Ranks for many classes, unless somebody asks for another or for what is made for all of their posteriors."""
    whole = isinstance(options, ConvexOptions) and (options.solver != "auto" or options.pieces is not None)
    if wanted is None and problem.even and problem.classes >= RANKED_FROM and not whole:
        wanted = "ranked"
    if wanted == "ranked" and not problem.even:
        advice = "Which class a belief is of matters here, and ranks forget it."
        raise InvalidInput("statistic", "be another than 'ranked' where penalties differ", repr(wanted), advice)
    return replace(options, statistic=wanted)  # type: ignore[arg-type]  # options refuse what is not theirs
