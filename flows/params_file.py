"""Writing into params.yaml: only the section that changes is written, and never a file that cannot be read back."""

import re
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from firmbound.errors import ParameterError
from flows.params import read_params


def replace_section(file: Path, section: str, dataset: str, values: Mapping[str, Any]) -> None:
    """Set `section.dataset` to `values`; keys that stay keep their comments, all other lines stay as they are."""
    lines = file.read_text().splitlines(keepends=True)
    start, end = _find(lines, section, dataset)
    block = "".join(lines[start:end])
    margin = block[: len(block) - len(block.lstrip())]
    try:
        lines[start:end] = [indent(_updated(dedent(block), dataset, values), margin)]
    except YAMLError as problem:
        said = str(problem).replace("\n", " ")
        raise ParameterError(
            f"{section}.{dataset}", "be written out, without references to other parts", said
        ) from None
    draft = file.with_name(f".{file.name}.new")
    try:
        draft.write_text("".join(lines))
        if getattr(read_params(draft), section)[dataset].model_dump() != values:
            raise ParameterError(f"{section}.{dataset}", "be written so that it reads back", "something else")
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)


def _find(lines: list[str], section: str, dataset: str) -> tuple[int, int]:
    """The lines of one data set's part of a section: to the next line that is indented no deeper."""
    inside = False
    for start, line in enumerate(lines):
        if re.match(r"\S", line) and not line.startswith("#"):
            inside = line.startswith(f"{section}:")
        found = re.match(rf"(\s+){re.escape(dataset)}:", line)
        if inside and found:
            deeper = re.compile(rf"{found[1]}\s+[^\s#]")
            inside_it = [n for n in range(start + 1, _next_key(lines, start, found[1])) if deeper.match(lines[n])]
            return start, max([start, *inside_it]) + 1  # comments and blank lines after the last key stay as they are
    raise ParameterError(f"{section}.{dataset}", "stand on a line of its own in params.yaml", "no such line")


def _next_key(lines: list[str], start: int, margin: str) -> int:
    """The first line after `start` that holds a key and is indented no deeper."""
    ends = re.compile(rf"(?!{margin}\s)\s*[^\s#]")
    return next((n for n in range(start + 1, len(lines)) if ends.match(lines[n])), len(lines))


def _updated(block: str, dataset: str, values: Mapping[str, Any]) -> str:
    text = YAML()
    text.width = 120
    text.representer.add_representer(
        type(None), lambda writer, _: writer.represent_scalar("tag:yaml.org,2002:null", "null")
    )
    tree = text.load(block)
    _update(tree[dataset], values)
    written = StringIO()
    text.dump(tree, written)
    return written.getvalue()


def _update(node: Any, values: Mapping[str, Any]) -> None:
    for key in [key for key in node if key not in values]:
        del node[key]
    for key, value in values.items():
        if isinstance(value, Mapping) and isinstance(node.get(key), Mapping):
            _update(node[key], value)
        else:
            node[key] = dict(value) if isinstance(value, Mapping) else value
