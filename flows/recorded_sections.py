"""Sections of params.yaml for recorded data: files of archives, arrays, clips, and how sequences are made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt

from firmbound.datasets.recorded import Content, SequenceOptions
from firmbound.datasets.splits import SplitOptions
from firmbound.datasets.windows import WindowOptions
from firmbound.devices import Device

if TYPE_CHECKING:
    from collections.abc import Mapping

    from firmbound.datasets.recordings import Recordings


# A number of series, or a share of them.
Size = Annotated[int, Field(strict=True, gt=0)] | Annotated[float, Field(gt=0, lt=1)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)


class Windows(Section):
    """The keys of WindowOptions, all of them."""

    segment: PositiveInt | None
    window: PositiveInt
    stride: PositiveInt
    hop: PositiveInt | None


class Split(Section):
    """The keys of SplitOptions, all of them."""

    test: Size | None
    validation: Size | None
    taken_from: Literal["train", "test"]
    by: Literal["class", "group"]
    swap: bool
    seed: NonNegativeInt


class RecordedFeatures(Section):
    """What every recorded data set has."""

    windows: Windows | None
    horizon: Annotated[int, Field(ge=2)] | None
    missing: Literal["refuse", "hold"]
    scaling: Literal["none", "standard"]
    prior: tuple[float, ...] | None
    split: Split

    def sequence_options(self) -> SequenceOptions:
        return SequenceOptions(
            windows=WindowOptions() if self.windows is None else WindowOptions(**self.windows.model_dump()),
            horizon=self.horizon,
            missing=self.missing,
            prior=self.prior,
            split=SplitOptions(**self.split.model_dump()),
            content=self.held,
        )

    @property
    def held(self) -> Content:
        return "features"

    def split_seed(self, split: str) -> tuple[int, ...]:
        return (self.split.seed,)


class DigitsFeatures(RecordedFeatures):
    kind: Literal["digits"]

    def parts(self) -> Mapping[str, Recordings]:
        from firmbound.datasets.digits import digits

        return digits()


class ArchiveFeatures(RecordedFeatures):
    """Files <name>_TRAIN and <name>_TEST in a folder."""

    kind: Literal["archive"]
    path: str
    name: str
    download: bool

    def parts(self) -> Mapping[str, Recordings]:
        from firmbound.datasets.archive import archive_recordings

        return archive_recordings(self.path, self.name, download=self.download)


class Names(Section):
    """The keys of ArrayNames, all of them."""

    features: str
    labels: str
    lengths: str
    groups: str


class ArrayFeatures(RecordedFeatures):
    """Arrays of features, or of what a classifier believes, at a path."""

    kind: Literal["arrays"]
    path: str
    arrays: Names
    content: Content

    @property
    def held(self) -> Content:
        return self.content

    def parts(self) -> Mapping[str, Recordings]:
        from firmbound.datasets.array_files import ArrayNames, array_recordings

        return array_recordings(self.path, ArrayNames(**self.arrays.model_dump()))


class VideoFeatures(RecordedFeatures):
    """Clips in a folder, and the backbone that makes features of their frames. See flows/clip_features.py."""

    kind: Literal["video"]
    path: str
    layout: Literal["ucf101", "hmdb51", "siw", "folders"]
    lists: str | None
    number: PositiveInt
    frames: Annotated[int, Field(ge=2)]
    every: PositiveInt
    resize: PositiveInt | None
    crop: PositiveInt | None
    backbone: str
    weights: str | None
    pixels: Literal["paper", "imagenet"]
    batch: PositiveInt
    device: Device
    broken: Literal["skip", "fail"]
