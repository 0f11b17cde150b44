"""Array types and the checks that every entrance to the library shares."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from firmbound.errors import InvalidInput

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def is_real(value: object) -> bool:
    """A number of Python or NumPy, and no truth value."""
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_)


def is_count(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def any_array(name: str, values: Any, words: str) -> NDArray[Any]:
    """`values` as an array of any kind; what is none, such as rows of different lengths, is refused."""
    try:
        return np.asarray(values)
    except (TypeError, ValueError, OverflowError, RuntimeError) as problem:  # the last: torch
        raise InvalidInput(name, f"be {words}", f"{values!r:.60} ({problem})") from None


def all_finite(array: NDArray[Any]) -> bool:
    """Whether nothing is NaN or infinite. A finite sum proves it at once, without an array of truth values."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(array.sum())) or bool(np.isfinite(array).all())


def finite_array(name: str, values: ArrayLike, *, ndim: int | None, shape_words: str) -> NDArray[Any]:
    """`values` as a real floating array of rank `ndim` (None: any) without NaN or infinity; its precision is kept."""
    try:
        array = np.asarray(values)
        if array.dtype.kind != "f":
            if array.dtype.kind not in "iub":
                raise TypeError(f"dtype {array.dtype}")
            array = array.astype(np.float64)
    except (TypeError, ValueError) as problem:
        raise InvalidInput(name, f"be a numeric array {shape_words}", f"{values!r:.80} ({problem})") from None
    if ndim is not None and array.ndim != ndim:
        raise InvalidInput(name, f"have shape {shape_words}", f"shape {array.shape}")
    if not all_finite(array):
        bad = array.size - int(np.count_nonzero(np.isfinite(array)))
        first = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise InvalidInput(
            name,
            "be finite",
            f"{bad} NaN or infinite of {array.size} values, the first at index {first}",
            "Leave out or repair what those belong to.",
        )
    return array


def check_lengths(lengths: ArrayLike | None, *, count: int, horizon: int) -> Ints:
    """(n,) numbers of observations, each in 1..T; None: all T."""
    if lengths is None:
        return np.full(count, horizon)
    array = any_array("lengths", lengths, f"{count} whole numbers, one a sequence")
    if array.dtype.kind not in "iu" or array.shape != (count,):
        raise InvalidInput("lengths", f"be {count} whole numbers, one a sequence", f"{array.dtype} of {array.shape}")
    if count and (array.min() < 1 or array.max() > horizon):
        raise InvalidInput("lengths", f"lie in 1..{horizon}", f"values from {array.min()} to {array.max()}")
    return array.astype(np.int64)


def mean_over_time(values: Floats, lengths: Ints | None) -> Floats:
    """Mean of (n, T) values over the observations that each sequence has.  -> (n,)."""
    if lengths is None:
        return np.asarray(values.mean(axis=1))
    seen = np.arange(values.shape[1]) < lengths[:, None]
    return np.asarray(np.where(seen, values, 0.0).sum(axis=1) / lengths)


def class_labels(name: str, labels: ArrayLike, *, count: int, classes: int) -> Ints:
    """(n,) labels as integers within 0..K-1."""
    array = any_array(name, labels, "integers 0..K-1")
    if array.dtype.kind not in "iu" and not (array.dtype.kind == "f" and bool(np.all(array == np.floor(array)))):
        raise InvalidInput(name, "be integers 0..K-1", f"dtype {array.dtype}", "Encode labels as class indices first.")
    if array.shape != (count,):
        raise InvalidInput(name, f"have shape ({count},), one label a sequence", f"shape {array.shape}")
    if count and (array.min() < 0 or array.max() >= classes):
        raise InvalidInput(name, f"lie in 0..{classes - 1}", f"values from {array.min()} to {array.max()}")
    return array.astype(np.int64)
