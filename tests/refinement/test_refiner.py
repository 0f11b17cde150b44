"""Saved is loaded, what is damaged or foreign is refused, and so is, by name, whatever cannot be refined."""

import hashlib
import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import firmbound
from firmbound.bundle import ARRAYS, HEADER, header_sum
from firmbound.errors import BundleError, InvalidInput
from firmbound.refinement.options import MANY, RefinementOptions
from firmbound.refinement.refiner import Refiner
from firmbound.scaling import Scaling

QUICK = {"units": 8, "folds": 3, "ridge": 10.0}


@pytest.fixture(scope="module")
def problem():
    return firmbound.datasets.gaussian(3, 90, 5, 1, dimension=4)


@pytest.fixture(scope="module", params=["evidence", "features"])
def refiner(request, problem):
    features = problem.features if request.param == "features" else None
    options = RefinementOptions(**QUICK, inputs=request.param)
    return firmbound.fit_refiner(problem.evidence, problem.labels, features=features, options=options)[0]


def heard(refiner, problem):
    return problem.features if refiner.hears_features else None


def test_saved_is_loaded(refiner, problem, tmp_path):
    refiner.save(tmp_path / "refiner")
    again = Refiner.load(tmp_path / "refiner")
    features = heard(refiner, problem)
    assert np.array_equal(again.refine(problem.evidence, features), refiner.refine(problem.evidence, features))
    assert (again.ridge, again.horizon, again.classes) == (refiner.ridge, 5, 3)
    assert again.hears_features == refiner.hears_features
    again.save(tmp_path / "again")
    for name in (HEADER, ARRAYS):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "refiner" / name).read_bytes()


def test_what_is_damaged_is_refused(refiner, tmp_path):
    refiner.save(tmp_path / "refiner")
    arrays, header = (tmp_path / "refiner" / name for name in (ARRAYS, HEADER))
    content = arrays.read_bytes()
    arrays.write_bytes(content[:-3])
    with pytest.raises(BundleError, match="changed or cut short"):
        Refiner.load(tmp_path / "refiner")
    arrays.write_bytes(content)
    header.write_text(header.read_text().replace('"classes": 3', '"classes": 4'))
    with pytest.raises(BundleError, match="changed since"):
        Refiner.load(tmp_path / "refiner")
    with pytest.raises(BundleError, match="no model"):
        Refiner.load(tmp_path / "nothing")
    Scaling(np.zeros(2), np.ones(2)).save(tmp_path / "other")
    with pytest.raises(BundleError, match="not a 'refiner'"):
        Refiner.load(tmp_path / "other")


def forge(folder, name, made, **changes):
    """Other contents with sums that are right."""
    arrays, header = load_file(folder / ARRAYS), json.loads((folder / HEADER).read_text()) | changes
    if name is not None:
        found = made(arrays.pop(name))
        if found is not None:
            arrays[name] = np.ascontiguousarray(found)
    save_file(arrays, folder / ARRAYS)
    header["sha256"][ARRAYS] = hashlib.sha256((folder / ARRAYS).read_bytes()).hexdigest()
    header["sha256"][HEADER] = header_sum(header)
    (folder / HEADER).write_text(json.dumps(header))


FORGERIES = {
    "gone": lambda part: None,
    "no number": lambda part: np.full_like(part, np.nan),
    "huge": lambda part: np.full_like(part, np.finfo(part.dtype).max),
    "cut": lambda part: part[:-1],
    "flat": lambda part: part.ravel()[None],
    "empty": lambda part: part[:0],
    "whole": lambda part: part.astype(np.int16),
}
NAMES = ["scales", "weights", "sizes", "echo/back", "echo/taken", "echo/bias", "echo/news", "features/mean"]


@pytest.mark.parametrize("kind", FORGERIES)
@pytest.mark.parametrize("name", [*NAMES, "features/scale"])
def test_what_does_not_belong_together_is_refused_or_refines_to_numbers(refiner, problem, name, kind, tmp_path):
    if name.startswith("features") and not refiner.hears_features:
        return
    refiner.save(tmp_path / "refiner")
    forge(tmp_path / "refiner", name, FORGERIES[kind])
    features = heard(refiner, problem)
    try:
        loaded = Refiner.load(tmp_path / "refiner")
    except BundleError:
        return
    assert kind in ("huge", "whole", "cut"), "other forgeries are found when loading"
    try:
        found = loaded.refine(problem.evidence[:, : loaded.horizon], features)
    except InvalidInput:
        assert name.startswith("features")
        return
    assert np.isfinite(found).all()


@pytest.mark.parametrize("changes", [{"classes": 4}, {"classes": 1}, {"classes": "three"}, {"ridge": None}])
def test_headers_that_say_something_else_are_refused(refiner, changes, tmp_path):
    refiner.save(tmp_path / "refiner")
    forge(tmp_path / "refiner", None, None, **changes)
    with pytest.raises(BundleError, match="no refiner"):
        Refiner.load(tmp_path / "refiner")


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda p: {"evidence": p.evidence[0]}, "`evidence` must have shape"),
        (lambda p: {"evidence": np.where(p.evidence == 0, np.nan, p.evidence)}, "`evidence` must be finite"),
        (lambda p: {"evidence": p.evidence[:, :1]}, "`evidence` must span at least 2"),
        (lambda p: {"labels": p.labels[:-1]}, "`labels` must have shape"),
        (lambda p: {"labels": p.labels + 1}, "`labels` must lie in 0..2"),
        (lambda p: {"labels": np.minimum(p.labels, 1)}, "`labels` must hold every one of 3 classes"),
        (lambda p: {"labels": np.array([0, 1, 2, 2] + [0, 1] * 43)}, "`labels` must hold 3 sequences of every class"),
        (lambda p: {"lengths": np.zeros(90, dtype=int)}, "`lengths` must lie in 1..5"),
        (lambda p: {"features": p.features}, "`features` must be left out"),
        (lambda p: {"inputs": "features"}, "`features` must be given"),
        (lambda p: {"inputs": "features", "features": p.features[:, :4]}, "`features` must have shape"),
        (lambda p: {"inputs": "features", "features": p.features[0]}, "`features` must have shape"),
        (lambda p: {"inputs": "features", "features": p.features * np.nan}, "`features` must be finite"),
        (lambda p: {"inputs": "features", "features": np.full(p.features.shape, "a")}, "`features` must be a numeric"),
    ],
)
def test_what_cannot_be_learned_from_is_refused_by_name(ask, message, problem):
    asked = {"evidence": problem.evidence, "labels": problem.labels} | ask(problem)
    options = RefinementOptions(**QUICK, inputs=asked.pop("inputs", "evidence"))
    with pytest.raises(InvalidInput, match=message):
        firmbound.fit_refiner(**asked, options=options)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda p: (p.evidence[..., :2], p.features), "`evidence` must have 3 classes and 5 steps"),
        (lambda p: (np.repeat(p.evidence, 2, axis=1), p.features), "`evidence` must have 3 classes and 5 steps"),
        (lambda p: (p.evidence[0], p.features), "`evidence` must have shape"),
        (lambda p: (p.evidence - np.inf, p.features), "`evidence` must be finite"),
        (lambda p: (p.evidence, None), "`features` must be given"),
        (lambda p: (p.evidence, p.features[:, :3]), "`features` must have shape"),
        (lambda p: (p.evidence, p.features[..., :1]), "`features` must have shape"),  # would be spread over all
        (lambda p: (p.evidence, p.features[..., :2]), "`features` must have shape"),
        (lambda p: (p.evidence, p.features * np.nan), "`features` must be finite"),
        (lambda p: (p.evidence, "none"), "`features` must be a numeric"),
    ],
)
def test_what_cannot_be_refined_is_refused_by_name(refiner, ask, message, problem):
    evidence, features = ask(problem)
    if refiner.hears_features:
        with pytest.raises(InvalidInput, match=message):
            refiner.refine(evidence, features)
    elif "`evidence`" in message:
        with pytest.raises(InvalidInput, match=message):
            refiner.refine(evidence)
    elif features is not None:
        with pytest.raises(InvalidInput, match="`features` must be left out"):
            refiner.refine(evidence, features)


@pytest.mark.parametrize(
    "bad",
    [
        {"inputs": "all"},
        {"units": 0},
        {"units": 2.5},
        {"folds": 1},
        {"folds": True},
        {"ridge": 0.0},
        {"ridge": -1.0},
        {"ridge": np.nan},
        {"ridge": "strong"},
        {"seed": -1},
        {"seed": None},
    ],
)
def test_options_that_make_no_sense_are_refused_by_name(bad):
    with pytest.raises(InvalidInput, match=f"`{next(iter(bad))}`"):
        RefinementOptions(**bad)


def test_folds_are_as_many_as_the_rarest_class_allows():
    plain = RefinementOptions()
    assert plain.folds_for(np.repeat([0, 1], [50, 20])) == 5
    assert plain.folds_for(np.repeat([0, 1], [50, 3])) == 3
    assert plain.folds_for(np.arange(MANY) % 2) == 2
    assert RefinementOptions(folds=4).folds_for(np.arange(MANY) % 2) == 4
    for options, labels in ((plain, [0, 0, 0, 1]), (RefinementOptions(folds=4), [0, 0, 0, 0, 1, 1, 1])):
        with pytest.raises(InvalidInput, match="of every class at least"):
            options.folds_for(np.array(labels))
