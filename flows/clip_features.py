"""Clips to features, a few clips a task. A clip that is done is a file of its own, so that a kill loses one at most.

The files lie in data/<dataset>/.clips/<work> until the stage has written its stores.
"""

import hashlib
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from prefect import get_run_logger

from firmbound.arrays import Ints
from firmbound.datasets.recordings import SourceError
from firmbound.publishing import whole_array
from flows.held import held
from flows.params import VideoFeatures
from flows.processes import share_of_cores
from flows.progress import progress
from flows.runners import work_task
from flows.stage import forget_others, stage_folder

if TYPE_CHECKING:
    from firmbound.datasets.backbones import Backbone
    from firmbound.datasets.video import Parts

# Clips a task: few enough that all workers have some to do, enough that a task costs nothing.
TOGETHER = 8


@dataclass(frozen=True)
class ClipRecordings:
    """Features of clips, one file (T, d) each."""

    origin: str
    labels: NDArray[Any]
    groups: NDArray[Any]
    files: tuple[Path, ...]
    lengths: Ints
    dimension: int

    def read(self, rows: Ints) -> NDArray[Any]:
        return np.stack([np.load(self.files[row]) for row in rows.tolist()])


def extract_clips(dataset: str, section: VideoFeatures, work: str, workers: int) -> None:
    """Find the clips, and make features of those that have none yet. workers: tasks at a time."""
    folder = _folder(dataset, work)
    forget_others(folder)
    folder.mkdir(parents=True, exist_ok=True)
    every = sorted({clip.path for clips in _clips(section).values() for clip in clips})
    extract(dataset, section, every, folder, share_of_cores(workers))


def clip_recordings(dataset: str, section: VideoFeatures, work: str) -> dict[str, ClipRecordings]:
    """The parts, of clips that have features; those that could not be read have none."""
    folder, found = _folder(dataset, work), {}
    for name, clips in _clips(section).items():
        kept = [clip for clip in clips if (folder / file_name(clip.path)).is_file()]
        if not kept:
            raise SourceError(f"{section.path}: part {name!r} must hold a clip that can be read; got none.")
        files = tuple(folder / file_name(clip.path) for clip in kept)
        frames, dimension = np.load(files[0], mmap_mode="r").shape
        found[name] = ClipRecordings(
            f"{section.path}, {name}",
            np.array([clip.label for clip in kept]),
            np.array([clip.group for clip in kept]),
            files,
            np.full(len(kept), frames),
            dimension,
        )
    return found


def _clips(section: VideoFeatures) -> "Parts":
    from firmbound.datasets.video import find_clips

    return find_clips(section.layout, section.path, lists=section.lists, number=section.number)


def forget_clips(dataset: str) -> None:
    """What the stores hold now is not kept twice."""
    shutil.rmtree(stage_folder(dataset, ".clips"), ignore_errors=True)


def extract(dataset: str, section: VideoFeatures, clips: list[Path], folder: Path, threads: int) -> None:
    """Make the files that are missing; clips that cannot be read stay without, if those may be skipped.

    threads: for a task's arithmetic; tasks that run side by side would be in each other's way with more.
    """
    missing = [clip for clip in clips if not (folder / file_name(clip)).is_file()]
    broken: set[Path] = set()
    with progress(f"{dataset}: features of {len(clips):,} clips") as advance:
        advance(len(clips) - len(missing), len(clips))
        futures = [
            work_task(extract_some, f"{dataset} clips {start}", heavy=True).submit(
                section, missing[start : start + TOGETHER], folder, threads
            )
            for start in range(0, len(missing), TOGETHER)
        ]
        done = len(clips) - len(missing)
        for index, future in enumerate(futures):
            broken |= future.result()
            done += len(missing[index * TOGETHER : (index + 1) * TOGETHER])
            advance(done, len(clips))
    if broken:
        get_run_logger().warning("%s: %d of %d clips were skipped", dataset, len(broken), len(clips))


def extract_some(section: VideoFeatures, clips: Iterable[Path], folder: Path, threads: int) -> set[Path]:
    """Features of each clip, published whole; a clip that cannot be read is reported, and skipped or fatal."""
    from firmbound.datasets.backbones import BackboneError
    from firmbound.datasets.clips import BrokenClip, FrameOptions, read_frames

    options = FrameOptions(frames=section.frames, every=section.every, resize=section.resize, crop=section.crop)
    backbone = _backbone(section, threads, folder.name)
    broken = set()
    for clip in clips:
        try:
            features = backbone(read_frames(clip, options))
        except BrokenClip as problem:
            if section.broken == "fail":
                raise
            get_run_logger().warning("skipped: %s", problem)
            broken.add(clip)
            continue
        except BackboneError as problem:
            raise SourceError(f"{clip}: {problem}") from None
        whole_array(folder / file_name(clip), features)
    return broken


@held
def _backbone(section: VideoFeatures, threads: int, work: str) -> "Backbone":
    """One for all tasks of a process. work: tells files of weights apart."""
    import torch

    from firmbound.datasets.backbones import load_backbone

    torch.set_num_threads(threads)
    return load_backbone(
        section.backbone,
        weights=section.weights,
        device=section.device,
        batch=section.batch,
        pixels=section.pixels,
        size=section.crop or section.resize or 224,
    )


def file_name(clip: Path) -> str:
    return hashlib.sha256(str(clip).encode()).hexdigest()[:24] + ".npy"


def _folder(dataset: str, work: str) -> Path:
    return stage_folder(dataset, ".clips") / work[:16]
