"""How a saved surface comes back: its kind names what makes it of its arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from firmbound.continuation.affine import MinAffineSurface
from firmbound.continuation.kernel_surface import KernelSurface
from firmbound.continuation.memory_cells import MemoryCellsSurface
from firmbound.continuation.surface import RiskSurface

SURFACES: Mapping[str, Callable[..., RiskSurface]] = {
    MinAffineSurface.kind: MinAffineSurface,
    KernelSurface.kind: KernelSurface.from_arrays,
    MemoryCellsSurface.kind: MemoryCellsSurface.from_arrays,
}
