"""Clips decoded to frames: so many, each of one size, the same on every machine and run."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from firmbound.errors import FirmboundError, InvalidInput

if TYPE_CHECKING:  # options are named without waiting for FFmpeg
    from collections.abc import Iterator

    from av import VideoFrame, VideoStream
    from av.container import InputContainer

# Headers may promise a frame that never comes (packed B frames of old AVI files) or that an editor cut away.
FORGIVEN_FRAMES, FORGIVEN_SHARE = 2, 0.05


class BrokenClip(FirmboundError):
    """A clip that cannot be read as promised; `path` and `reason` say which and why."""

    def __init__(self, path: str | Path, reason: str) -> None:
        self.path, self.reason = str(path), reason
        super().__init__(f"The clip {path} cannot be read: {reason}. Fetch it again, or leave it out.")


@dataclass(frozen=True)
class FrameOptions:
    """Which frames of a clip, and how large.

    A clip that ends before `frames` begins again; `every` 2 leaves out each second frame. The shorter side becomes
    `resize`, then a square of `crop` is cut from the middle; None leaves either out.
    """

    frames: int
    every: int = 1
    resize: int | None = 256
    crop: int | None = 224

    def __post_init__(self) -> None:
        for name in ("frames", "every", "resize", "crop"):
            value = getattr(self, name)
            if value is None and name in ("resize", "crop"):
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InvalidInput(name, "be a whole number of at least 1", repr(value))
        if self.resize is not None and self.crop is not None and self.crop > self.resize:
            raise InvalidInput("crop", f"be at most `resize`, {self.resize}", self.crop)


def read_frames(path: str | Path, options: FrameOptions) -> NDArray[np.uint8]:
    """Frames 0, e, 2e, ... of a clip as RGB, from the beginning again where it ends.  -> (T, H, W, 3).

    No more is decoded than is used. Sizes follow from the first frame; marks of rotation and of pixels that are not
    square are not followed. A clip of which less than its header promises can be read, or with damage in what is read,
    is a `BrokenClip`.
    """
    path = Path(path)
    layout = _Layout(options, path)
    frames: NDArray[np.uint8] | None = None
    count = 0
    for frame in islice(_decoded(path, (options.frames - 1) * options.every + 1), 0, None, options.every):
        picture = layout(frame)
        if frames is None:
            frames = np.empty((options.frames, *picture.shape), dtype=np.uint8)
        frames[count] = picture
        count += 1
    if frames is None:
        raise BrokenClip(path, "it has no frame")
    for later in range(count, options.frames, count):
        frames[later : later + count] = frames[: min(count, options.frames - later)]
    return frames


def _decoded(path: Path, needed: int) -> Iterator[VideoFrame]:
    """The first `needed` frames in the order they are shown, or all; damage is an error where it comes."""
    import av

    if not path.is_file():
        raise BrokenClip(path, "there is no such file")
    try:
        # An absolute path cannot be taken for a protocol, and a playlist in disguise opens nothing on the network.
        with av.open(
            str(path.absolute()), metadata_errors="ignore", options={"protocol_whitelist": "file"}
        ) as container:
            if not container.streams.video:
                raise BrokenClip(path, "it has no video stream")
            stream = container.streams.video[0]
            # Clips, not frames, are what runs in parallel.
            stream.thread_type = "NONE"
            stream.codec_context.thread_count = 1
            count, seen = 0, 0.0
            for frame in container.decode(stream):
                if frame.is_corrupt:
                    raise BrokenClip(path, f"frame {count} is damaged or cut off")
                yield frame
                count, seen = count + 1, max(seen, frame.time or 0.0)
                if count == needed:
                    return
            if count:
                _check_end(path, container, stream, count, seen)
    except (av.FFmpegError, OSError) as problem:
        raise BrokenClip(path, " ".join(str(problem).split()).rstrip(".")) from None


def _check_end(path: Path, container: InputContainer, stream: VideoStream, count: int, seen: float) -> None:
    """A clip that ended after `count` frames, the last shown at `seen` seconds, against what its header says."""
    if stream.frames:
        if count < stream.frames - max(FORGIVEN_FRAMES, FORGIVEN_SHARE * stream.frames):
            raise BrokenClip(path, f"it ends after {count} frames, its header promises {stream.frames}")
    elif container.duration and len(container.streams) == 1:  # sound may outlast the pictures
        promised = container.duration / 1e6  # Matroska counts time, not frames
        frame_time = float(1 / stream.average_rate) if stream.average_rate else 0.0
        if seen + frame_time < (1 - FORGIVEN_SHARE) * promised - FORGIVEN_FRAMES * frame_time:
            raise BrokenClip(path, f"it ends after {seen:.2f} seconds, its header promises {promised:.2f}")


class _Layout:
    """Scales and cuts frames as the first one of the clip needs it."""

    def __init__(self, options: FrameOptions, path: Path) -> None:
        from av.video.reformatter import Interpolation, VideoReformatter

        self._options, self._path = options, path
        self._reformatter = VideoReformatter()
        # The last two keep the processor's own shortcuts out: the same bytes everywhere.
        self._how = int(Interpolation.BILINEAR | Interpolation.ACCURATE_RND | Interpolation.BITEXACT)
        self._size: tuple[int, int] | None = None

    def __call__(self, frame: VideoFrame) -> NDArray[np.uint8]:
        if self._size is None:
            self._size = self._scaled(frame.width, frame.height)
        width, height = self._size
        scaled = self._reformatter.reformat(
            frame, width=width, height=height, format="rgb24", interpolation=self._how, threads=1
        )
        picture = np.asarray(scaled.to_ndarray(), dtype=np.uint8)
        crop = self._options.crop
        if crop is None:
            return picture
        top, left = (height - crop) // 2, (width - crop) // 2
        return picture[top : top + crop, left : left + crop]

    def _scaled(self, width: int, height: int) -> tuple[int, int]:
        """Width and height after `resize`; what is too small for the crop is refused."""
        shorter, resize, crop = min(width, height), self._options.resize, self._options.crop
        if resize is not None:
            width, height = (max(resize, round(side * resize / shorter)) for side in (width, height))
        if crop is not None and crop > min(width, height):
            raise InvalidInput(
                "crop",
                "be at most the shorter side of the frames",
                f"{crop} for {self._path} of {width} x {height}",
                "Set `resize` too, or a smaller crop.",
            )
        return width, height
