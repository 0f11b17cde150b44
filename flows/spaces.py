"""Files of params/search: what is searched when options are tuned, ours or rivals'."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml

from firmbound.errors import InvalidInput, ParameterError

S = TypeVar("S")


def read_space(file: Path, of: Callable[[Any], S]) -> S:
    """What `of` makes of the file's content; one clear error where it cannot."""
    try:
        return of(yaml.safe_load(file.read_text()))
    except (yaml.YAMLError, InvalidInput) as problem:
        raise ParameterError(str(file), "be a search space", str(problem).replace("\n", " ")) from None
