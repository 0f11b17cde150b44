"""Clips found on disk: which class, which side of the official split, and what must stay together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from firmbound.errors import InvalidInput

Layout = Literal["ucf101", "hmdb51", "siw", "folders"]
Parts = dict[str, tuple["Clip", ...]]

VIDEO_SUFFIXES = frozenset({".avi", ".mp4", ".mov", ".mkv", ".webm", ".mpg", ".mpeg"})
PART_NAMES = ("train", "validation", "test")
SHOWN = 5

UCF101_NAME = re.compile(r"v_.+_g(?P<group>\d+)_c\d+")
# film_class_body_camera_np<people>_side_quality_<number>; the class is known from the folder.
HMDB51_END = r"_[a-z]_[a-z]+_np\d+_[a-z]+_[a-z]+_\d+"
SIW_NAME = re.compile(r"(?P<subject>\d+)[-_]\d+[-_](?P<type>\d+)[-_]\d+[-_]\d+")
HMDB51_PARTS = {"0": None, "1": "train", "2": "test"}


@dataclass(frozen=True)
class Clip:
    """One clip. Clips of one `group` (a film, a subject) must be on one side of any split."""

    path: Path
    label: str
    group: str


def find_clips(layout: Layout, path: str | Path, *, lists: str | Path | None = None, number: int = 1) -> Parts:
    """Parts by name, each sorted by path: train and test where the data set says which, else all.

    ucf101   Class/v_Class_gXX_cYY.avi, and the lists trainlist0N.txt and testlist0N.txt
    hmdb51   class/*.avi, and the lists class_test_splitN.txt
    siw      subject-sensor-type-medium-session.mov anywhere; below Train and Test where there are such folders
    folders  class/clip, or train/class/clip and test/class/clip, perhaps validation/class/clip

    Lists are those of split `number` in the folder `lists`, by default one in `path` or beside it. Clips that lists
    leave out are left out.
    """
    if layout not in get_args(Layout):
        raise InvalidInput("layout", f"be one of {', '.join(get_args(Layout))}", repr(layout))
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise InvalidInput("number", "be a whole number of at least 1", repr(number))
    root = Path(path)
    if not root.is_dir():
        raise InvalidInput("path", "be a folder of clips", f"{root}, which is {'a file' if root.exists() else 'none'}")
    files = sorted(_files(root), key=lambda file: file.relative_to(root).as_posix())
    if not files:
        raise InvalidInput("path", "hold clips", f"{root} without any", f"Clips end in {_words(VIDEO_SUFFIXES)}.")
    if layout in ("siw", "folders"):
        if lists is not None:
            raise InvalidInput("lists", f"be left out for {layout}", lists, "Its folders are the split.")
        parts = _siw(root, files) if layout == "siw" else _folders(root, files)
    else:
        parts = (_ucf101 if layout == "ucf101" else _hmdb51)(root, files, lists, number)
    _check_parts(root, parts, groups_apart=layout in ("ucf101", "siw"))
    return parts


def _files(root: Path) -> Iterable[Path]:
    """Clips at any depth; hidden ones are what systems leave beside, not clips."""
    for file in root.rglob("*"):
        hidden = any(part.startswith(".") for part in file.relative_to(root).parts)
        if file.suffix.lower() in VIDEO_SUFFIXES and not hidden and file.is_file():
            yield file


def _siw(root: Path, files: list[Path]) -> Parts:
    def clip(file: Path) -> Clip:
        name = SIW_NAME.fullmatch(file.stem)
        if name is None:
            raise InvalidInput("path", "hold clips named subject-sensor-type-medium-session", file)
        return Clip(file, "live" if int(name["type"]) == 1 else "spoof", f"{int(name['subject']):03d}")

    def part(file: Path) -> str | None:
        folders = [name.lower() for name in file.relative_to(root).parts[:-1]]
        return next((name for name in folders if name in PART_NAMES), None)

    return _by_part(root, files, part, clip)


def _folders(root: Path, files: list[Path]) -> Parts:
    def clip(file: Path) -> Clip:
        return Clip(file, file.parent.name, _group(file))

    def part(file: Path) -> str | None:
        folders = file.relative_to(root).parts[:-1]
        if len(folders) == 1:  # a class may be called train
            return None
        if len(folders) == 2 and folders[0].lower() in PART_NAMES:
            return folders[0].lower()
        raise InvalidInput("path", f"hold class/clip or {'|'.join(PART_NAMES)}/class/clip", file)

    return _by_part(root, files, part, clip)


def _by_part(root: Path, files: list[Path], part: Callable[[Path], str | None], clip: Callable[[Path], Clip]) -> Parts:
    """Clips by the part that their folders name; all of them name one, or none does."""
    found: dict[str | None, list[Clip]] = {}
    for file in files:
        found.setdefault(part(file), []).append(clip(file))
    if set(found) == {None}:
        return {"all": tuple(found[None])}
    if None in found:
        outside = found[None][0].path
        raise InvalidInput("path", "hold all clips below its parts, or none", f"{root} with {outside} outside of them")
    if not {"train", "test"} <= set(found):
        raise InvalidInput("path", "hold clips for train and for test", f"{root} with {_words(map(str, found))} only")
    return {name: tuple(found[name]) for name in PART_NAMES if name in found}


def _ucf101(root: Path, files: list[Path], lists: str | Path | None, number: int) -> Parts:
    names = {part: f"{part}list{number:02d}.txt" for part in ("train", "test")}
    folder = _list_folder(root, lists, names["train"])
    wanted: dict[str, str] = {}
    for part, name in names.items():
        for where, line in _lines(folder / name):
            words = line.rsplit(maxsplit=1)
            clip = words[0] if len(words) == 2 and words[1].isdigit() else line
            if clip.count("/") != 1 or Path(clip).suffix.lower() not in VIDEO_SUFFIXES:
                raise InvalidInput("lists", "hold lines such as `Class/clip.avi 1`", f"{where}: {line!r}")
            _want(wanted, clip, part, where)
    return _listed(root, files, wanted, folder)


def _hmdb51(root: Path, files: list[Path], lists: str | Path | None, number: int) -> Parts:
    end = f"_test_split{number}.txt"
    folder = _list_folder(root, lists, f"*{end}")
    listed = {file.name.removesuffix(end) for file in folder.glob(f"*{end}")}
    wanted: dict[str, str] = {}
    for label in sorted(listed | {file.parent.name for file in files if file.parent.parent == root}):
        for where, line in _lines(folder / f"{label}{end}"):
            words = line.rsplit(maxsplit=1)
            if len(words) != 2 or words[1] not in HMDB51_PARTS or Path(words[0]).suffix.lower() not in VIDEO_SUFFIXES:
                raise InvalidInput("lists", "hold lines such as `clip.avi 1`, with 0, 1 or 2", f"{where}: {line!r}")
            part = HMDB51_PARTS[words[1]]
            if part is not None:
                _want(wanted, f"{label}/{words[0]}", part, where)
    return _listed(root, files, wanted, folder)


def _list_folder(root: Path, given: str | Path | None, pattern: str) -> Path:
    """The folder with files that fit `pattern`: the one given, or the first in `root` and beside it."""
    if given is None:
        places = [root, *sorted(root.iterdir()), *sorted(root.absolute().parent.iterdir())]
    else:
        places = [Path(given)]
    for place in places:
        if next(place.glob(pattern), None) is not None:
            return place
    asked = given if given is not None else f"none in or beside {root}"
    raise InvalidInput("lists", f"be a folder with {pattern}", asked, "Name the folder of the official split.")


def _lines(file: Path) -> Iterable[tuple[str, str]]:
    """(where, text) of each line that is not empty."""
    if not file.is_file():
        raise InvalidInput("lists", "be whole", f"no file {file}")
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as problem:
        raise InvalidInput("lists", "be text", f"{file} ({problem})") from None
    for index, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            yield f"{file}, line {index}", line.strip()


def _want(wanted: dict[str, str], clip: str, part: str, where: str) -> None:
    if wanted.setdefault(clip, part) != part:
        raise InvalidInput("lists", "put each clip on one side", f"{where}: {clip}, also in {wanted[clip]}")


def _listed(root: Path, files: list[Path], wanted: Mapping[str, str], folder: Path) -> Parts:
    """The clips that lists name, all of which must be there."""
    there = {file.relative_to(root).as_posix(): file for file in files}
    missing = sorted(set(wanted) - set(there))
    if missing:
        got = f"{len(missing)} clips of {folder} that are not below {root}: {_words(missing)}"
        raise InvalidInput("lists", "name clips that are there", got, "Fetch them, or take their lines out.")
    parts: dict[str, list[Clip]] = {"train": [], "test": []}
    for name, file in there.items():
        if name in wanted:
            parts[wanted[name]].append(Clip(file, file.parent.name, _group(file)))
    return {part: tuple(clips) for part, clips in parts.items()}


def _group(file: Path) -> str:
    """What the clip was cut from, as far as its name tells."""
    label = file.parent.name
    if ucf101 := UCF101_NAME.fullmatch(file.stem):
        return f"{label}_g{ucf101['group']}"
    if hmdb51 := re.fullmatch(f"(?P<film>.+)_{re.escape(label)}{HMDB51_END}", file.stem):
        return hmdb51["film"]  # one film may give clips of several classes
    return f"{label}/{file.stem}"


def _check_parts(root: Path, parts: Mapping[str, tuple[Clip, ...]], *, groups_apart: bool) -> None:
    """At least two classes, the same in every part; where groups are promised, none in two parts."""
    labels = {part: {clip.label for clip in clips} for part, clips in parts.items()}
    first = next(iter(labels))
    if len(labels[first]) < 2:
        raise InvalidInput(
            "path", "hold two classes at least", f"{root} with {_words(labels[first]) or 'none'} in {first}"
        )
    for part, own in labels.items():
        if own != labels[first]:
            got = f"{root} with {_words(own ^ labels[first])} in one of {first} and {part} only"
            raise InvalidInput("path", f"hold the classes of {first} in {part} too, and no others", got)
    if groups_apart:
        sides: dict[str, str] = {}
        for part, clips in parts.items():
            for clip in clips:
                sides.setdefault(clip.group, part)
        shared = {clip.group for part, clips in parts.items() for clip in clips if sides[clip.group] != part}
        if shared:
            got = f"{root} with {_words(shared)} on two sides"
            raise InvalidInput("path", "have each subject or group on one side of the split", got)


def _words(names: Iterable[str]) -> str:
    """A few of them, and how many more."""
    ordered = sorted(names)
    more = len(ordered) - SHOWN
    return ", ".join(ordered[:SHOWN]) + (f" and {more} more" if more > 0 else "")
