"""A saved EarlyClassifier: one folder with its own bundle, its reader's and its rules'. Nothing in it can run code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from firmbound.bundle import HEADER, read_bundle, read_header, write_bundle
from firmbound.continuation.convex import ConvexOptions
from firmbound.continuation.gaussian_process import ProcessOptions
from firmbound.early.front import Record
from firmbound.early.remaining_time import RemainingTime
from firmbound.errors import BundleError, InvalidInput
from firmbound.publishing import publish
from firmbound.readers.beliefs import BeliefReader
from firmbound.readers.prefixes import Classify, PrefixClassifiers, PrefixFunction
from firmbound.readers.protocol import EvidenceReader
from firmbound.readers.refined import ABOUT, INNER, REFINER, RefinedReader
from firmbound.readers.refined import KIND as REFINED
from firmbound.refinement.options import RefinementOptions
from firmbound.refinement.refiner import Refiner
from firmbound.stopping_rule import StoppingRule
from firmbound.tandem.options import NetworkOptions, TrainingOptions

if TYPE_CHECKING:
    from firmbound.early_classifier import EarlyClassifier

KIND = "early-classifier"
OPTION_TYPES = {
    kind.__name__: kind for kind in (NetworkOptions, TrainingOptions, ConvexOptions, ProcessOptions, RefinementOptions)
}


def _load_network(path: Path) -> EvidenceReader:
    from firmbound.tandem.model import TandemModel  # torch, which other readers do not wait for

    return TandemModel.load(path)


READERS: Mapping[str, Callable[[Path], EvidenceReader]] = {"tandem": _load_network, "beliefs": BeliefReader.load}


def write(classifier: EarlyClassifier, path: str | Path) -> None:
    """The header says what it is, of which data, with which params, and how its rules did on held-out sequences."""
    rule, record, classes = classifier.rule_, classifier.record_, classifier.classes_
    if classes.dtype.kind not in "iufUb":
        raise InvalidInput("y", "be numbers or text to be saved", f"labels of dtype {classes.dtype}")
    arrays = {"remaining/edges": classifier.remaining_.edges, "remaining/means": classifier.remaining_.means}
    if record is not None:
        arrays |= {f"held_out/{name}": part for name, part in record.arrays().items()}
    judged = record is not None and record.truth is not None
    header = {
        "classes": classes.tolist(),
        "params": {name: _plain(value) for name, value in classifier.get_params(deep=False).items()},
        "dataset": {
            **classifier.about_,
            "horizon": rule.problem.horizon,
            "dimension": classifier.reader_.dimension,
            "classes": rule.problem.classes,
        },
        "metrics": [asdict(point) for point in record.points(rule)] if judged and record is not None else [],
    }
    if Path(path).exists() and not (Path(path) / "classifier" / HEADER).is_file():
        raise BundleError(f"{path} is there already and no classifier, so it is not replaced. Choose another path.")
    with publish(path) as folder:
        write_bundle(folder / "classifier", kind=KIND, header=header, arrays=arrays)
        classifier.reader_.save(folder / "reader")
        rule.save(folder / "rule")


def read(
    cls: type[EarlyClassifier], path: str | Path, classify: Classify | None, trusted: Sequence[str]
) -> EarlyClassifier:
    folder = Path(path)
    header, arrays = read_bundle(folder / "classifier", kind=KIND)
    reader, rule = _read_reader(folder / "reader", classify, trusted), StoppingRule.load(folder / "rule")
    try:
        params = {name: _from_plain(value) for name, value in header["params"].items()}
        if not isinstance(params["evidence"], str):
            inner = reader.reader if isinstance(reader, RefinedReader) else reader
            params["evidence"] = getattr(inner, "estimator", classify)
        if isinstance(reader, RefinedReader):
            _check_refiner(reader.refiner, rule)
        held_out = {name.removeprefix("held_out/"): part for name, part in arrays.items() if name[:8] == "held_out"}
        return cls.of_parts(
            reader,
            rule,
            classes=np.array(header["classes"]),
            remaining=RemainingTime(arrays["remaining/edges"], arrays["remaining/means"]),
            record=Record.from_arrays(held_out) if held_out else None,
            about=header["dataset"],
            **params,
        )
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as problem:
        raise BundleError(f"{path} is no early classifier that this version can read: {problem}") from None


def _check_refiner(refiner: Refiner, rule: StoppingRule) -> None:
    if (refiner.classes, refiner.horizon) != (rule.problem.classes, rule.problem.horizon):
        raise ValueError(f"its refiner is of {refiner.classes} classes and {refiner.horizon} steps, its rule is not")


def _read_reader(path: Path, classify: Classify | None, trusted: Sequence[str]) -> EvidenceReader:
    if (path / ABOUT).is_dir():
        read_bundle(path / ABOUT, kind=REFINED)
        inner, refiner = _read_reader(path / INNER, classify, trusted), Refiner.load(path / REFINER)
        try:
            return RefinedReader(inner, refiner)
        except InvalidInput as problem:
            raise BundleError(f"{path} holds a refiner of another reader: {problem}") from None
    kind = str(read_header(path).get("kind"))
    if kind == "prefix-function":
        return PrefixFunction.load(path, classify)
    if kind == "prefix-classifiers":
        return PrefixClassifiers.load(path, trusted)
    if kind not in READERS:
        raise BundleError(f"{path} holds a {kind!r}, which reads no evidence.")
    return READERS[kind](path)


def _plain(value: Any) -> Any:
    """Constructor arguments as JSON knows them."""
    if type(value).__name__ in OPTION_TYPES:
        return {"kind": type(value).__name__, **asdict(value)}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    known = value is None or isinstance(value, str | int | float)
    return value if known else {"kind": "object", "name": type(value).__name__}


def _from_plain(value: Any) -> Any:
    if not isinstance(value, dict) or value["kind"] == "object":
        return value
    return OPTION_TYPES[value["kind"]](**{name: part for name, part in value.items() if name != "kind"})
