"""Whether a challenger takes the champion's place: judged on the same test sequences, by what decisions really cost."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from firmbound.arrays import Floats, Ints
from firmbound.costs import DecisionProblem
from firmbound.early_classifier import EarlyClassifier
from firmbound.errors import FirmboundError
from firmbound.evaluation.estimates import mean_of
from firmbound.evaluation.risk import realised_risk
from firmbound.store import TrajectoryStore


@dataclass(frozen=True)
class Verdict:
    promote: bool
    reason: str


Part = tuple[Any, Ints, Ints]  # what a classifier reads, true classes, lengths
Parts = Callable[[EarlyClassifier], Iterable[Part]]


def judge(challenger: EarlyClassifier, champion: EarlyClassifier, name: str, parts: Parts) -> Verdict:
    """Compare with the champion, called `name`. parts: test data as a classifier reads them, some at a time.

    The risk is penalty and costs with the challenger's penalty, mean over the costs that both know. It must be lower by
    more than the standard error of the difference, sequence by sequence. A champion that has no rule for some cost
    which is asked for now cannot stay for being as good elsewhere: then the risk must not be higher, by as much.
    """
    problem, other = challenger.rule_.problem, champion.rule_.problem
    if (other.classes, other.horizon) != (problem.classes, problem.horizon):
        return Verdict(True, f"{name} was made for other classes or another horizon")
    known = np.array([bool(np.isclose(other.costs, cost, rtol=1e-9).any()) for cost in problem.costs])
    shared, lacking = problem.costs[known].tolist(), problem.costs[~known].tolist()
    if not shared:
        return Verdict(True, f"{name} has no rule for any of its costs")
    try:
        theirs = _paid(champion, problem, parts(champion), shared)
    except FirmboundError as found:
        return Verdict(True, f"{name} cannot read the test data: {found}")
    ours = _paid(challenger, problem, parts(challenger), shared)
    gain = mean_of(theirs - ours)
    facts = (
        f"risk {ours.mean():.4g} against {theirs.mean():.4g} of {name} on the same {len(ours)} test sequences, mean "
        f"over costs {_listed(shared)}"
    )
    error = f"the standard error of the difference, {gain.standard_error:.2g}"
    if lacking and gain.value >= -gain.standard_error:
        return Verdict(True, f"{name} has no rule for costs {_listed(lacking)}; {facts}: not higher beyond {error}")
    better = gain.value > gain.standard_error
    return Verdict(better, f"{facts}: {'' if better else 'not '}lower beyond {error}")


def of_store(test: TrajectoryStore) -> Parts:
    """The test split of the stage `features`, a shard at a time."""

    def parts(classifier: EarlyClassifier) -> Iterator[Part]:
        name = "evidence" if classifier.evidence == "given" else "features"
        labels, lengths = test.labels, test.lengths
        for shard in range(test.description.shards):
            rows = test.description.rows(shard)
            yield test.read(name, rows), labels[rows], lengths[rows]

    return parts


def of_arrays(challenger: EarlyClassifier, X: Any, y: Any, lengths: Any) -> Parts:
    """Series with labels, which both classifiers read."""
    series = challenger.series(X, lengths)
    truth = challenger.encode(y, len(series))
    return lambda _: [(X, truth, lengths)]


def _paid(classifier: EarlyClassifier, problem: DecisionProblem, parts: Iterable[Part], costs: list[float]) -> Floats:
    """What its decisions cost under a problem, mean over costs.  -> (n,)."""
    paid = []
    for values, truth, lengths in parts:
        series = classifier.series(values, lengths)
        evidence = classifier.read(series)
        chosen = [(cost, classifier.rule_.decide(evidence, cost=cost, lengths=series.lengths)) for cost in costs]
        paid.append(np.mean([realised_risk(made, truth, problem, cost) for cost, made in chosen], axis=0))
    return np.concatenate(paid)


def _listed(costs: list[float]) -> str:
    return ", ".join(f"{cost:g}" for cost in costs)
