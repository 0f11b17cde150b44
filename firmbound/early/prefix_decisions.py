"""How things stand for prefixes of t observations: decided or not, and with what risks. What servers answer with."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from firmbound.memory import Memory
from firmbound.stopping_rule import Outlook

if TYPE_CHECKING:
    from firmbound.early_classifier import EarlyClassifier


def decide_prefixes(
    classifier: EarlyClassifier, X: Any, lengths: ArrayLike | None = None, *, ended: bool = False
) -> dict[str, NDArray[Any]]:
    """(n, t, d), or `lengths` observations of each -> decided, label, time, posterior and risks, a row a sequence.

    time is when the decision fell, or how many observations there are where none has; all else is as it stood then.
    ended: there will be no more, so everything is decided.
    """
    series = classifier.prefixes(X, lengths)
    evidence, rule = classifier.read(series), classifier.rule_
    time = series.lengths.copy()
    found: list[Outlook] = []
    places: list[NDArray[np.int64]] = []
    waiting = np.arange(len(series))
    memory = Memory.start(len(series), rule.problem.classes) if rule.remembers else None
    for t in range(1, series.horizon + 1):
        now = evidence[waiting, t - 1]
        memory = memory.advance(now) if memory else None
        outlook = rule.outlook(now, t=t, cost=classifier.cost, memory=memory.summaries() if memory else None)
        settled = outlook.decided | (series.lengths[waiting] == t)
        found.append(Outlook(**{f.name: getattr(outlook, f.name)[settled] for f in fields(Outlook)}))
        time[waiting[settled]] = t
        places.append(waiting[settled])
        waiting, memory = waiting[~settled], memory.take(~settled) if memory else None
    order = np.argsort(np.concatenate(places))
    columns = {f.name: np.concatenate([getattr(part, f.name) for part in found])[order] for f in fields(Outlook)}
    columns["label"] = classifier.classes_[columns["label"]]
    columns["decided"] |= ended
    return {"decided": columns.pop("decided"), "label": columns.pop("label"), "time": time, **columns}
