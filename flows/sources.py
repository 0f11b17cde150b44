"""Stage `sources`: which files each data set is read from, by checksum. DVC runs it always: what it writes tells what
is stale. Light on purpose, for it runs before every other stage; a file is read again only if its size or time changed.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from firmbound.errors import FirmboundError, InvalidInput

FOLDER = Path("data/sources")
KNOWN = Path("data/.checksums.json")
# Data sets are folders, parts of names in registries, and words of the commands that DVC gives to a shell.
PLAIN_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
# Official lists of clips, which may lie beside the clips' folder.
LISTS = re.compile(r"(train|test)list\d+\.txt|.+_test_split\d+\.txt")


def main() -> None:
    """Write data/sources/<dataset>.json for every data set of params.yaml.

    A data set whose files cannot be found stands in nobody's way: its own stage `features` says what is wrong.
    """
    import yaml

    try:
        params = yaml.safe_load(Path("params.yaml").read_text())
        names, sections = [str(name) for name in params["datasets"]], dict(params["features"])
    except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError, AttributeError) as problem:
        sys.exit(f"firmbound: `params.yaml` must name `datasets` and `features`; got {problem!r}.")
    odd = [name for name in names if not re.fullmatch(PLAIN_NAME, name)]
    if odd:
        sys.exit(
            f"firmbound: `datasets` must hold names of letters, digits, dots, dashes and underscores; got {odd!r}."
        )
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in names:
        section = sections.get(name)
        try:
            found = source_of(name, section if isinstance(section, dict) else {})
        except (FirmboundError, OSError) as problem:
            found = {"problem": str(problem)}
        (FOLDER / f"{name}.json").write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    for file in FOLDER.glob("*.json"):
        if file.stem not in names:
            file.unlink()


def source_of(dataset: str, section: Mapping[str, Any]) -> dict[str, Any]:
    """The files of a data set with their checksums; none for what is generated or comes with a library or a network."""
    path = section.get("path")
    if not isinstance(path, str):
        return {"files": {}}
    if section.get("download"):
        return {"download": section.get("name")}
    files = sorted(set(_files(section, Path(path))))
    if not files:
        raise InvalidInput(f"features.{dataset}.path", "hold the data set's files", f"{path}, which has none")
    return {"files": checksums(files)}


def _files(section: Mapping[str, Any], path: Path) -> Iterator[Path]:
    if section.get("kind") == "archive":
        for part in ("TRAIN", "TEST"):
            yield from path.glob(f"{section.get('name')}_{part}.*")
            yield from path.glob(f"{section.get('name')}/{section.get('name')}_{part}.*")
        return
    places = [path, *(Path(section[key]) for key in ("lists", "weights", "backbone") if section.get(key))]
    for place in places:
        if place.is_file():
            yield place
        yield from (file for file in place.rglob("*") if file.is_file())
    if section.get("kind") == "video" and not section.get("lists"):
        yield from (file for file in path.parent.glob("*/*.txt") if LISTS.fullmatch(file.name))


def checksums(files: Iterable[Path]) -> dict[str, str]:
    """Of the files' bytes. What is known of a file of the same size and time is believed."""
    known = _known()
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
    if {**known, **stands} != known:
        KNOWN.parent.mkdir(parents=True, exist_ok=True)
        partial = KNOWN.with_suffix(".partial")
        partial.write_text(json.dumps({**known, **stands}))
        partial.replace(KNOWN)
    return found


def _known() -> dict[str, Any]:
    try:
        known = json.loads(KNOWN.read_text())
        return known if isinstance(known, dict) else {}
    except (OSError, ValueError):
        return {}


if __name__ == "__main__":
    main()
