"""Finished steps of backward induction as files: other processes read them, and one that was killed goes on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firmbound.arrays import Floats
from firmbound.bundle import read_bundle, write_bundle
from firmbound.continuation.kinds import SURFACES
from firmbound.continuation.surface import RiskSurface
from firmbound.errors import BundleError
from firmbound.publishing import whole_array
from firmbound.steps import Place, Step

KIND = "surface"


@dataclass(frozen=True)
class OnDisk:
    """Steps in a folder of their own, which whoever made it removes. Its name must say what is fitted, and on what."""

    folder: Path

    def lay(self, name: str, array: NDArray[Any]) -> Place:
        place = File(self.folder / f"{name}.npy")
        whole_array(place.path, array)
        return place

    def keep(self, t: int, surface: RiskSurface, minimum: Floats) -> Step:
        """The surface last: a step that has one is whole."""
        place = self.lay(f"minimum-{t}", minimum)
        write_bundle(self._surface(t), kind=KIND, header={"surface": surface.kind}, arrays=surface.arrays())
        return Step(surface, place)

    def find(self, t: int) -> Step | None:
        """None where the step is not there, or damaged."""
        try:
            header, arrays = read_bundle(self._surface(t), kind=KIND)
            return Step(SURFACES[header["surface"]](**arrays), File(self.folder / f"minimum-{t}.npy"))
        except (BundleError, KeyError, TypeError, ValueError):
            return None

    def finished(self) -> list[int]:
        """Steps that were kept, whole or damaged since."""
        return [int(found.name.partition("-")[2]) for found in self.folder.glob("surface-*")]

    def forget_minimum(self, t: int) -> None:
        (self.folder / f"minimum-{t}.npy").unlink(missing_ok=True)

    def _surface(self, t: int) -> Path:
        return self.folder / f"surface-{t}"


@dataclass(frozen=True)
class File:
    path: Path

    def read(self) -> NDArray[Any]:
        found: NDArray[Any] = np.load(self.path, allow_pickle=False)
        return found

    def is_there(self) -> bool:
        return self.path.is_file()
