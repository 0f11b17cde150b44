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
from firmbound.posterior import posterior
from firmbound.readers.beliefs import BeliefReader
from firmbound.readers.refined import RefinedReader
from firmbound.store import TrajectoryStore
from firmbound.trajectories import Decisions


@dataclass(frozen=True)
class Verdict:
    promote: bool
    reason: str


Part = tuple[Any, Ints, Ints]  # what a classifier reads, true classes, lengths
Parts = Callable[[EarlyClassifier], Iterable[Part]]


def judge(challenger: EarlyClassifier, champion: EarlyClassifier, name: str, parts: Parts) -> Verdict:
    """Compare with the champion, called `name`. parts: test data as a classifier reads them, some at a time.

    The risk is realised, never believed: penalties of true labels and costs by the challenger's problem, mean over its
    costs. For each the champion decides by the rule of its nearest cost. The challenger's risk must be lower by more
    than the standard error of the difference, sequence by sequence; where nothing can be compared, nothing is promoted.
    """
    problem = challenger.rule_.problem
    if not np.array_equal(challenger.classes_, champion.classes_):
        return Verdict(False, f"{name} knows other classes, so the two cannot be compared")
    try:
        ours, theirs = (_paid(one, problem, parts(one)) for one in (challenger, champion))
    except FirmboundError as found:
        return Verdict(False, f"the test data cannot be read by both: {found}")
    gain = mean_of(theirs - ours)
    better = gain.value > gain.standard_error
    costs = ", ".join(f"{cost:g}" for cost in problem.costs)
    return Verdict(
        better,
        f"realised risk {ours.mean():.4g} against {theirs.mean():.4g} of {name} on the same {len(ours)} test "
        f"sequences, mean over costs {costs}: {'' if better else 'not '}lower beyond the standard error of the "
        f"difference, {gain.standard_error:.2g}",
    )


def of_store(test: TrajectoryStore) -> Parts:
    """The test split of the stage `features`, a shard at a time. Stores hold evidence where posteriors were brought."""

    def parts(classifier: EarlyClassifier) -> Iterator[Part]:
        name = "evidence" if classifier.evidence in ("given", "posteriors") else "features"
        labels, lengths = test.labels, test.lengths
        for shard in range(test.description.shards):
            rows = test.description.rows(shard)
            values = test.read(name, rows)
            reader = classifier.reader_.reader if isinstance(classifier.reader_, RefinedReader) else classifier.reader_
            if isinstance(reader, BeliefReader) and reader.form == "posteriors":
                values = posterior(values, reader.shares)
            yield values, labels[rows], lengths[rows]

    return parts


def of_arrays(challenger: EarlyClassifier, X: Any, y: Any, lengths: Any) -> Parts:
    """Series with labels, which both classifiers read."""
    series = challenger.series(X, lengths)
    truth = challenger.encode(y, len(series))
    return lambda _: [(X, truth, lengths)]


def _paid(classifier: EarlyClassifier, problem: DecisionProblem, parts: Iterable[Part]) -> Floats:
    """What its decisions cost under a problem, mean over the problem's costs.  -> (n,)."""
    own = classifier.rule_.costs
    nearest = [(cost, float(own[np.abs(np.log(own / cost)).argmin()])) for cost in problem.costs.tolist()]
    paid = []
    for values, truth, lengths in parts:
        series = classifier.series(values, lengths)
        evidence = classifier.read(series)
        each = []
        for cost, rule_cost in nearest:
            chosen = classifier.rule_.decide(evidence, cost=rule_cost, lengths=series.lengths)
            # A classifier of a longer horizon may take longer than the problem knows of; its clock stops there.
            time = np.minimum(chosen.time, problem.horizon)
            each.append(realised_risk(Decisions(time, chosen.label, problem.horizon), truth, problem, cost))
        paid.append(np.mean(each, axis=0))
    return np.concatenate(paid)
