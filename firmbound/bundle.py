"""The model folder: header.json and arrays.safetensors with its checksum. Nothing in it can run code when loaded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from firmbound.errors import BundleError
from firmbound.publishing import publish
from firmbound.version import __version__

SCHEMA_VERSION = 2
HEADER, ARRAYS = "header.json", "arrays.safetensors"


def write_bundle(path: str | Path, *, kind: str, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Publish a bundle at `path`; the same content gives the same bytes. What is no bundle is not written over."""
    if Path(path).exists() and not (Path(path) / HEADER).is_file():
        raise BundleError(f"{path} is there already and no model of ours, so it is not replaced. Choose another path.")
    content = save({name: np.ascontiguousarray(array) for name, array in sorted(arrays.items())})
    full = {
        "schema_version": SCHEMA_VERSION,
        "firmbound_version": __version__,
        "kind": kind,
        "sha256": {ARRAYS: hashlib.sha256(content).hexdigest()},
        **header,
    }
    full["sha256"][HEADER] = header_sum(full)
    with publish(path) as folder:
        (folder / ARRAYS).write_bytes(content)
        (folder / HEADER).write_text(json.dumps(full, indent=2, sort_keys=True) + "\n")


def header_sum(header: Mapping[str, Any]) -> str:
    """Checksum of a header without its own."""
    sums = {name: value for name, value in header["sha256"].items() if name != HEADER}
    text = json.dumps({**header, "sha256": sums}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def read_bundle(path: str | Path, *, kind: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Header and arrays of a bundle of this kind; anything else is refused."""
    header = read_header(path)
    if header.get("kind") != kind:
        raise BundleError(f"{path} holds a {header.get('kind')!r}, not a {kind!r}.")
    try:
        content = (Path(path) / ARRAYS).read_bytes()
    except OSError as problem:
        raise BundleError(f"{path} has no readable {ARRAYS}: {problem}. Save the model again.") from None
    sums = header.get("sha256")
    found, expected = hashlib.sha256(content).hexdigest(), sums.get(ARRAYS) if isinstance(sums, dict) else None
    if found != expected:
        raise BundleError(
            f"{Path(path) / ARRAYS} was changed or cut short: its SHA-256 is {found[:12]}.., the header says "
            f"{str(expected)[:12]}... Fetch or save the model again."
        )
    try:
        return header, load(content)
    except (SafetensorError, KeyError, TypeError, ValueError) as problem:
        raise BundleError(f"{Path(path) / ARRAYS} cannot be read: {problem}.") from None


def read_header(path: str | Path) -> dict[str, Any]:
    """The JSON header, checked for the schema version."""
    file = Path(path) / HEADER
    try:
        header = json.loads(file.read_text())
    except OSError:
        raise BundleError(
            f"There is no model at {path}: {HEADER} is missing. Check the path or save the model."
        ) from None
    except (ValueError, RecursionError) as problem:
        raise BundleError(f"{file} is not JSON: {problem}.") from None
    if not isinstance(header, dict) or header.get("schema_version") != SCHEMA_VERSION:
        version = header.get("schema_version") if isinstance(header, dict) else None
        raise BundleError(f"{path} has schema version {version}, this firmbound reads {SCHEMA_VERSION}. Save it again.")
    sums = header.get("sha256")
    if not isinstance(sums, dict) or sums.get(HEADER) != header_sum(header):
        raise BundleError(f"{file} was changed since it was written: its checksum is another. Fetch or save it again.")
    return header
