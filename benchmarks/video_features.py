"""Nine real clips (HMDB51, UCF101, Kinetics) to features of the pretrained EfficientNet-Lite0, twice, to the bit.

One thread. The clips are not part of the repository: their folder is `videos` in FIRMBOUND_BENCHMARK_DATA, by default
../shared/data.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.record import record
from firmbound.datasets.backbones import Backbone, load_backbone
from firmbound.datasets.clips import FrameOptions, read_frames
from firmbound.datasets.video import VIDEO_SUFFIXES

CLIPS, DIMENSION = 9, 1280
OPTIONS = FrameOptions(frames=50)
LONGEST = 400
BATCHES = (8, 32)


class Clock:
    """Frames, seconds and CPU seconds of each kind of work."""

    def __init__(self) -> None:
        self._spent: dict[str, tuple[int, float, float]] = {}

    def __call__(self, kind: str, frames: int, work: Callable[..., NDArray[Any]], *arguments: Any) -> NDArray[Any]:
        wall, cpu = time.perf_counter(), time.process_time()
        done = work(*arguments)
        taken = (frames, time.perf_counter() - wall, time.process_time() - cpu)
        before = self._spent.get(kind, (0, 0.0, 0.0))
        self._spent[kind] = (before[0] + taken[0], before[1] + taken[1], before[2] + taken[2])
        return done

    def results(self) -> dict[str, dict[str, float]]:
        return {
            kind: {
                "frames": frames,
                "seconds": seconds,
                "cpu_seconds": cpu,
                "frames_per_second": frames / seconds,
                "frames_per_cpu_second": frames / cpu,
            }
            for kind, (frames, seconds, cpu) in self._spent.items()
        }


def main() -> None:
    clips = find()
    torch.set_num_threads(1)
    backbones = {batch: load_backbone("efficientnet_lite0", device="cpu", batch=batch) for batch in BATCHES}
    clock = Clock()
    lengths = {clip.name: frames_of(clip) for clip in clips}
    difference = 0.0
    for clip in clips:
        clock("decode whole clips", lengths[clip.name], read_frames, clip, FrameOptions(lengths[clip.name]))
        frames, features = extract(clip, lengths[clip.name], backbones, clock)
        frames_again, features_again = extract(clip, lengths[clip.name], backbones, clock)
        check(np.array_equal(frames, frames_again), f"{clip.name}: frames differ on the second run")
        for first, second in zip(features, features_again, strict=True):
            check(np.array_equal(first, second), f"{clip.name}: features differ on the second run")
            check(first.shape == (OPTIONS.frames, DIMENSION), f"{clip.name}: features of shape {first.shape}")
            check(bool(np.isfinite(first).all()), f"{clip.name}: features are not finite")
        difference = max(difference, float(np.abs(features[0] - features[-1]).max()))
    speeds = clock.results()
    for kind, speed in speeds.items():
        print(f"{kind}: {speed['frames_per_second']:.1f} frames/s, {speed['frames_per_cpu_second']:.1f} a CPU second")
    facts = {"clips": lengths, "features": [OPTIONS.frames, DIMENSION], "equal_on_the_second_run": True}
    record("video_features", facts | {"largest_difference_between_batches": difference} | speeds)


def find() -> list[Path]:
    folder = Path(os.environ.get("FIRMBOUND_BENCHMARK_DATA", "../shared/data")) / "videos"
    clips = sorted(file for file in folder.glob("*") if file.suffix in VIDEO_SUFFIXES)
    if len(clips) != CLIPS:
        sys.exit(f"{folder} must hold the {CLIPS} clips; it holds {len(clips)}. Set FIRMBOUND_BENCHMARK_DATA.")
    return clips


def extract(
    clip: Path, length: int, backbones: dict[int, Backbone], clock: Clock
) -> tuple[NDArray[Any], list[NDArray[Any]]]:
    """Frames and the features of each batch size."""
    decoded = min(OPTIONS.frames, length)  # a shorter clip is decoded once and begins again
    frames = clock(f"decode {OPTIONS.frames} frames", decoded, read_frames, clip, OPTIONS)
    features = [clock(f"backbone, batches of {b}", len(frames), backbones[b], frames) for b in backbones]
    return frames, features


def frames_of(clip: Path) -> int:
    """How many frames a clip has: where it begins again when read for longer."""
    read = read_frames(clip, FrameOptions(2 * LONGEST, resize=16, crop=16))
    return next(n for n in range(1, 2 * LONGEST) if np.array_equal(read[n:], read[: 2 * LONGEST - n]))


def check(holds: bool, message: str) -> None:
    if not holds:
        sys.exit(message)


if __name__ == "__main__":
    main()
