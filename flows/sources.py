"""Stage `sources`: which files each data set is read from, by checksum. DVC runs it always: what it writes tells what
is stale. Light on purpose, for it runs before every other stage; a file is read again only if its size or time changed.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

FOLDER = Path("data/sources")
KNOWN = Path("data/.checksums.json")


def main() -> None:
    """Write data/sources/<dataset>.json for every data set of params.yaml."""
    import yaml

    try:
        params = yaml.safe_load(Path("params.yaml").read_text())
        sections = {str(name): params["features"][name] for name in params["datasets"]}
        found = {name: source_of(name, section) for name, section in sections.items()}
    except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError) as problem:
        if isinstance(problem, FileNotFoundError):
            sys.exit(f"firmbound: {problem.args[0]}")
        found = {}  # the stages after this one read params.yaml with all checks and say what is wrong
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, source in found.items():
        (FOLDER / f"{name}.json").write_text(json.dumps(source, indent=1, sort_keys=True) + "\n")
    for file in FOLDER.glob("*.json"):
        if found and file.stem not in found:
            file.unlink()


def source_of(dataset: str, section: Mapping[str, Any]) -> dict[str, Any]:
    """The files of a data set with their checksums; none for what is generated or comes with a library."""
    path = section.get("path")
    if path is None:
        return {"files": {}}
    files = sorted(_files(section, Path(path)))
    if not files and not section.get("download"):
        raise FileNotFoundError(
            f"`features.{dataset}.path` must hold the data set's files; got {path}, which has none."
        )
    return {"files": checksums(files)}


def _files(section: Mapping[str, Any], path: Path) -> Iterable[Path]:
    others = [Path(section[key]) for key in ("lists", "weights") if section.get(key)]
    for place in (path, *others):
        if place.is_file():
            yield place
    if section.get("kind") == "archive":
        for part in ("TRAIN", "TEST"):
            yield from path.glob(f"{section['name']}_{part}.*")
            yield from path.glob(f"{section['name']}/{section['name']}_{part}.*")
        return
    for place in (path, *others):
        yield from (file for file in place.rglob("*") if file.is_file())


def checksums(files: Iterable[Path]) -> dict[str, str]:
    """Of the files' bytes. What is known of a file of the same size and time is believed."""
    known = json.loads(KNOWN.read_text()) if KNOWN.is_file() else {}
    found, stands = {}, {}
    for file in files:
        about = file.stat()
        stamp = [about.st_size, about.st_mtime_ns]
        name = str(file)
        before = known.get(name)
        if before is None or before[:2] != stamp:
            with file.open("rb") as opened:
                before = [*stamp, hashlib.file_digest(opened, "blake2b").hexdigest()[:32]]
        stands[name], found[name] = before, before[2]
    if stands and {**known, **stands} != known:
        KNOWN.parent.mkdir(parents=True, exist_ok=True)
        partial = KNOWN.with_suffix(".partial")
        partial.write_text(json.dumps({**known, **stands}))
        partial.replace(KNOWN)
    return found


if __name__ == "__main__":
    main()
