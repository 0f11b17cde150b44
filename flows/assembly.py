"""What the stages fitted, as the one object that users and the registry hold."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from firmbound.arrays import Floats, Ints
from firmbound.early.front import Record
from firmbound.early.remaining_time import RemainingTime
from firmbound.early_classifier import EarlyClassifier
from firmbound.readers.beliefs import BeliefReader
from firmbound.readers.protocol import EvidenceReader
from firmbound.readers.refined import RefinedReader
from firmbound.stopping_rule import StoppingRule
from firmbound.store import TrajectoryStore
from flows.evidence import choice_of, refiner_of
from flows.params import LearnedEvidence, Params
from flows.stage import stage_folder

# Sequences from which expected remaining times are learned.
REMAINING_SEQUENCES = 5_000


def assemble(
    dataset: str,
    params: Params,
    rule: StoppingRule,
    train: NDArray[Any],
    test: NDArray[Any],
    labels: Ints,
    lengths: tuple[Ints, Ints],
    names: tuple[str | int, ...] = (),
) -> EarlyClassifier:
    """From evidence of training and test sequences, (n, T, K) each, and their lengths. Test sequences are those that
    played no part in fitting: promises of error rates and checks for drift go by what the rules did on them.

    names: of the classes; none: their indices."""
    section, fitted = params.tandem[dataset], params.boundary[dataset]
    some = slice(REMAINING_SEQUENCES)
    # Posteriors that were brought along hold the shares of the classes, as those that will be read do.
    brought = getattr(params.features[dataset], "content", "evidence") == "posteriors"
    form: Literal["given", "posteriors"] = "posteriors" if brought else "given"
    learned: dict[str, Any] = {"evidence": form}
    shares = class_shares(dataset) if brought else np.full(rule.problem.classes, 1 / rule.problem.classes)
    reader: EvidenceReader = BeliefReader(form, shares)
    if isinstance(section, LearnedEvidence):
        from firmbound.tandem.model import TandemModel  # torch, which given evidence does not wait for

        reader = TandemModel.load(stage_folder(dataset, "tandem") / "network")
        network, training = section.options()
        learned = {"evidence": "network", "network": network, "training": training}
    refiner, choice = refiner_of(dataset), choice_of(dataset)
    if refiner is not None:
        reader = RefinedReader(reader, refiner)
    return EarlyClassifier.of_parts(
        reader,
        rule,
        classes=np.array(names) if names else np.arange(rule.problem.classes),
        remaining=RemainingTime.of(rule, train[some], lengths[0][some]),
        record=Record.of(rule, test, truth=labels, lengths=lengths[1]),
        about={
            "name": dataset,
            "sequences": len(train),
            "held_out": len(test),
            "refined": choice["refined"],
            "refinement": choice["why"],
        },
        cost=float(rule.costs[len(rule.costs) // 2]),
        penalty=fitted.penalty,
        costs=rule.costs.tolist(),
        prior=rule.prior.tolist(),
        method=fitted.method,
        options=fitted.options(),
        refine=params.refinement[dataset].refine,
        refinement=params.refinement[dataset].options(),
        seed=fitted.seed,
        **learned,
    )


def class_shares(dataset: str) -> Floats:
    """Of the classes among training sequences."""
    store = TrajectoryStore(stage_folder(dataset, "features") / "train.zarr")
    return np.asarray(np.bincount(store.labels, minlength=store.description.classes) / store.description.sequences)
