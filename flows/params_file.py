"""Writing into params.yaml: comments stay, and a file that could not be read back never takes its place."""

from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from flows.params import read_params


def replace_section(file: Path, place: tuple[str, ...], values: Mapping[str, Any]) -> None:
    """Set the section at `place` to `values`; keys that stay keep their comments."""
    text = YAML()
    text.preserve_quotes = True
    text.width = 120
    text.indent(mapping=2, sequence=4, offset=2)
    tree = text.load(file.read_text())
    node = tree
    for key in place:
        node = node[key]
    _update(node, values)
    written = StringIO()
    text.dump(tree, written)
    draft = file.with_name(f".{file.name}.new")
    try:
        draft.write_text(written.getvalue())
        read_params(draft)
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)


def _update(node: Any, values: Mapping[str, Any]) -> None:
    for key in [key for key in node if key not in values]:
        del node[key]
    for key, value in values.items():
        if isinstance(value, Mapping) and isinstance(node.get(key), Mapping):
            _update(node[key], value)
        else:
            node[key] = dict(value) if isinstance(value, Mapping) else value
