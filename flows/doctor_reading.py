"""What the doctor reads of a project before he judges: params, graph and DVC's settings, as they stand, unchecked."""

from __future__ import annotations

import configparser
from pathlib import Path
from typing import Any

DVC = Path(".dvc")


def raw_params() -> dict[str, Any]:
    """As they stand, unchecked; empty where they cannot be read, which the check of params tells."""
    import yaml

    try:
        found = yaml.safe_load(Path("params.yaml").read_text())
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return found if isinstance(found, dict) else {}


def datasets() -> list[str]:
    named = raw_params().get("datasets")
    return [name for name in named if isinstance(name, str)] if isinstance(named, list) else []


def graph() -> dict[str, Any]:
    import yaml

    try:
        found = yaml.safe_load(Path("dvc.yaml").read_text())
        return dict(found["stages"])
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError):
        return {}


def bytes_to_come() -> int:
    """Of generated stores that are not there yet: features and, three times on its way to a rule, evidence.

    What recorded data will take is known only when they are read.
    """
    total = 0
    for dataset in datasets():
        section = (raw_params().get("features") or {}).get(dataset) or {}
        if Path("data", dataset, "features").exists() or not isinstance(section.get("sequences"), dict):
            continue
        try:
            classes = section.get("classes") or len(section.get("coefficients") or (0, 0))
            each = 4 * section["horizon"] * (section.get("dimension", 0) + 3 * classes)
            total += each * sum(section["sequences"].values())
        except (KeyError, TypeError):  # the check of params says what is wrong with them
            continue
    return total


def cache_folder() -> Path:
    try:
        return DVC / dvc_config().get("cache", "dir", fallback="cache")
    except (configparser.Error, UnicodeDecodeError):
        return DVC / "cache"


def dvc_config() -> configparser.ConfigParser:
    """The repository's settings, those of this machine over them."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read([DVC / "config", DVC / "config.local"])
    return parser


def existing(place: Path) -> Path:
    """The place itself, or the nearest folder above it that is there."""
    place = place.absolute()
    while not place.exists():
        place = place.parent
    return place
