"""Checks of the project's folder: params, DVC, results, places to write. Nothing is written."""

from __future__ import annotations

import configparser
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path

from flows.doctor_reading import DVC, cache_folder, datasets, dvc_config, existing, graph
from flows.finding import Finding, bad, good, note

WRITTEN = (Path(), Path("data"), DVC, Path(".prefect"), Path(".logs"), Path("mlartifacts"))
SHARING = ("btrfs", "xfs", "apfs", "bcachefs")  # file systems on which copies may share their bytes


def params() -> Finding:
    from firmbound.errors import FirmboundError
    from flows.params import read_params

    try:
        read = read_params()
    except FirmboundError as problem:
        return bad(f"params.yaml: {problem}", "Correct it; `git diff params.yaml` shows what was changed.")
    return good(f"params.yaml is valid: {', '.join(read.datasets)}")


def repository() -> Finding:
    if not (DVC / "config").is_file():
        return note(
            "no DVC repository here yet", "`make run` makes one; if you expected one, go to the project's root."
        )
    try:
        dvc_config()
    except (configparser.Error, UnicodeDecodeError) as problem:
        reason = " ".join(str(problem).split())
        return bad(f".dvc/config cannot be read: {reason}", "Restore it: `git checkout .dvc/config`.")
    if not graph():
        return bad("dvc.yaml is missing or names no stages", "Restore it: `git checkout dvc.yaml`.")
    return good(f"a DVC repository with {len(graph())} stages")


def lock() -> Finding:
    """DVC's two locks: one it holds while it works, and a list of what its processes read and write."""
    holders = sorted(set(_holders()))
    if holders:
        return bad(f"DVC is at work here: {'; '.join(holders)}", "Wait for it to end, or end it.")
    file = DVC / "tmp" / "lock"
    if file.is_file() and _held(file):
        return bad("DVC's lock is held by another process", "Wait for it to end; `fuser .dvc/tmp/lock` names it.")
    return good("no other process holds DVC's lock")


def cache() -> Finding:
    """Whether results lie once on the disk, linked, or twice."""
    kinds = _cache_types()
    place, results = existing(cache_folder()), existing(Path("data"))
    same = place.stat().st_dev == results.stat().st_dev
    for kind in kinds:
        if kind == "symlink" or (kind == "hardlink" and same) or (kind == "reflink" and same and _file_system_shares()):
            return good(f"results are linked from DVC's cache ({kind})")
        if kind == "copy":
            break
    advice = "`dvc config cache.type hardlink,symlink,copy`, with the cache on the disk of data/."
    return note("results are copied from DVC's cache: twice the disk", advice)


def results() -> Finding:
    """Each data set: nothing missing before what is there, and every store whole."""
    from firmbound.errors import FirmboundError
    from firmbound.store import TrajectoryStore

    broken, open_stages = [], 0
    for dataset in datasets():
        outs = list(_outs(dataset))
        there = [place.exists() for place in outs]
        until = max((number for number, found in enumerate(there, start=1) if found), default=0)
        broken += [f"{place} is missing" for place, found in zip(outs[:until], there, strict=False) if not found]
        open_stages += len(outs) - until
        for place in sorted(Path("data", dataset).glob("*/*.zarr")):
            try:
                TrajectoryStore(place)
            except FirmboundError as problem:
                broken.append(str(problem))
    if broken:
        return bad("; ".join(broken[:3]) + (f"; and {len(broken) - 3} more" if len(broken) > 3 else ""), "`make run`.")
    if open_stages:
        return note(f"{open_stages} results are still to be made", "`make run` makes them.")
    return good("results of all data sets are whole")


def folders() -> Finding:
    wrong = []
    for place in WRITTEN:
        if place.exists() and not place.is_dir():
            wrong.append(f"{place} is a file")
        elif not os.access(existing(place), os.W_OK | os.X_OK):
            wrong.append(f"{place} cannot be written")
    if wrong:
        return bad("; ".join(wrong), "Move the file away, or give yourself the right to write there.")
    return good("all folders that are written to can be")


def _cache_types() -> list[str]:
    try:
        named = dvc_config().get("cache", "type", fallback="reflink,copy")
    except (configparser.Error, UnicodeDecodeError):
        return ["copy"]
    return [kind.strip() for kind in named.strip("\"'").split(",")]


def _file_system_shares() -> bool:
    import psutil

    here = str(Path.cwd())
    above = [part for part in psutil.disk_partitions(all=True) if here.startswith(part.mountpoint.rstrip("/"))]
    return bool(above) and max(above, key=lambda part: len(part.mountpoint)).fstype in SHARING


def _holders() -> Iterator[str]:
    """Living processes in DVC's list."""
    try:
        listed = json.loads((DVC / "tmp" / "rwlock").read_text())
    except (OSError, ValueError):
        return
    for entry in (
        *listed.get("write", {}).values(),
        *(one for many in listed.get("read", {}).values() for one in many),
    ):
        if _lives(entry["pid"]):
            yield f"process {entry['pid']} ({entry['cmd']})"


def _lives(number: int) -> bool:
    import psutil

    return bool(psutil.pid_exists(number))


def _held(file: Path) -> bool:
    """Whether somebody holds the file's lock. Ours is shared, and let go at once."""
    with file.open() as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(handle, fcntl.LOCK_UN)
    return False


def _outs(dataset: str) -> Iterator[Path]:
    """What the stages of a data set write, in their order."""
    for stage in graph().values():
        body = stage.get("do", {})
        for kind in ("outs", "metrics", "plots"):
            for out in body.get(kind, []):
                named = out if isinstance(out, str) else next(iter(out))
                yield Path(named.replace("${item}", dataset))
