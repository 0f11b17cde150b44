"""Whether refinement pays: decided by what decisions cost on sequences whose labels nobody had used for them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firmbound.arrays import Floats, Ints
from firmbound.evaluation.estimates import mean_of
from firmbound.evaluation.risk import realised_risk
from firmbound.refinement.options import Refine, RefinementOptions
from firmbound.refinement.sureness import temperature_at_decisions
from firmbound.stopping_rule import StoppingRule

# Refinement is taken if it lowers what decisions cost by this many standard errors, and by this share: less is not
# worth a model more.
SURE, WORTH = 2.0, 0.01
# Sequences below which nothing is refined unless asked for.
FEWEST = 100


@dataclass(frozen=True)
class Choice:
    """Whether evidence is refined, and why in words. costs: at which rules were compared; without, with_refinement:
    what their decisions cost on average. change: of that, relative, over all costs, with its standard error.
    temperature: by which refined evidence is divided, for decisions to cost what they are believed to.
    """

    refined: bool
    why: str
    sequences: int = 0
    costs: tuple[float, ...] = ()
    without: tuple[float, ...] = ()
    with_refinement: tuple[float, ...] = ()
    change: float = 0.0
    change_error: float = 0.0
    temperature: float = 1.0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def too_few(labels: Ints, classes: int, options: RefinementOptions) -> str:
    """Why these labels are too few to be refined by, in words; none if they are not."""
    rarest = int(np.bincount(labels, minlength=classes).min())
    if len(labels) < FEWEST:
        return f"{len(labels)} sequences are too few to refine by"
    if rarest < (options.folds or 2):
        return f"too few to refine by: the rarest class is there {rarest} times in {len(labels):,} sequences"
    return ""


@dataclass(frozen=True)
class Contestant:
    """A rule, and the evidence (n, T, K) of the judging sequences that it decides on."""

    rule: StoppingRule
    evidence: NDArray[Any]

    def paid(self, labels: Ints, lengths: Ints) -> Floats:
        """(C, n): what the decisions at each cost of the front cost."""
        return np.stack(
            [
                realised_risk(self.rule.decide(self.evidence, cost=c, lengths=lengths), labels, self.rule.problem, c)
                for c in self.rule.costs.tolist()
            ]
        )


def compare(plain: Contestant, refined: Contestant, labels: Ints, lengths: Ints, refine: Refine = "auto") -> Choice:
    """Both on the same sequences, cost by cost; refinement is chosen if it is better beyond doubt, or asked for."""
    before, after = (one.paid(labels, lengths) for one in (plain, refined))
    relative = ((after - before) / before.mean(axis=1, keepdims=True)).mean(axis=0)
    change = mean_of(relative)
    better = change.value < -max(SURE * change.standard_error, WORTH)
    chosen = refine == "always" or (refine == "auto" and better)
    costs = plain.rule.costs
    most = int(np.argmax(np.abs(after.mean(axis=1) / before.mean(axis=1) - 1.0)))
    said = (
        f"on {len(labels):,} validation sequences realised risk changes by {100 * change.value:+.1f} "
        f"+- {100 * change.standard_error:.1f} % (at cost {costs[most]:g} from {before[most].mean():.3g} "
        f"to {after[most].mean():.3g})"
    )
    temperature = temperature_at_decisions(refined.rule, refined.evidence, labels, lengths) if chosen else 1.0
    if temperature > 1.0:
        said += f"; decisions cost more than believed, so refined evidence is divided by {temperature:.3g}"
    verdict = "asked for; " if refine == "always" else "it pays: " if better else "it does not pay: "
    return Choice(
        refined=chosen,
        why=verdict + said,
        sequences=len(labels),
        costs=tuple(costs.tolist()),
        without=tuple(before.mean(axis=1).tolist()),
        with_refinement=tuple(after.mean(axis=1).tolist()),
        change=change.value,
        change_error=change.standard_error,
        temperature=temperature,
    )
