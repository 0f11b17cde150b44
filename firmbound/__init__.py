"""firmbound decides when to stop looking: early classification by finite-horizon optimal stopping.

Names are imported when first used, so `import firmbound` is quick and pulls in no solver, plotting or network library.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from firmbound.version import __version__

_HOME = {
    "datasets": "firmbound.datasets",
    "fit_stopping_rule": "firmbound.fitting",
    "StoppingRule": "firmbound.stopping_rule",
    "Outlook": "firmbound.stopping_rule",
    "Step": "firmbound.stopping_rule",
    "ConvexOptions": "firmbound.continuation.convex",
    "ProcessOptions": "firmbound.continuation.gaussian_process",
    "EarlyClassifier": "firmbound.early_classifier",
    "NoRuleQualifies": "firmbound.early_classifier",
    "fit_tandem": "firmbound.tandem.model",
    "TandemModel": "firmbound.tandem.model",
    "NetworkOptions": "firmbound.tandem.options",
    "TrainingOptions": "firmbound.tandem.options",
    "fit_refiner": "firmbound.refinement.cross_fitting",
    "Refiner": "firmbound.refinement.refiner",
    "RefinementOptions": "firmbound.refinement.options",
    "DecisionProblem": "firmbound.costs",
    "Decisions": "firmbound.trajectories",
    "Oracle": "firmbound.oracle",
    "solve_gaussian": "firmbound.oracle",
    "evidence_from_posteriors": "firmbound.posterior",
    "prefix_posteriors": "firmbound.readers.prefixes",
    "PrefixClassifiers": "firmbound.readers.prefixes",
    "FirmboundError": "firmbound.errors",
    "InvalidInput": "firmbound.errors",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'firmbound' has no attribute {name!r}")
    home = import_module(_HOME[name])
    return home if _HOME[name] == f"firmbound.{name}" else getattr(home, name)


def __dir__() -> list[str]:
    return sorted(__all__)
