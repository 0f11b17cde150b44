"""Training sequences as they might also have been: shifted in time, noisy, off by a constant, with steps missing.

What does not change the class teaches a network what not to look at. Speakers, sensors and lighting differ between
those who train and those who use; few of the former are no sample of them.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor


class Augmentation(Protocol):
    """How far training sequences are changed, as TrainingOptions has it."""

    @property
    def shift(self) -> int: ...

    @property
    def noise(self) -> float: ...

    @property
    def offset(self) -> float: ...

    @property
    def mask(self) -> int: ...


def augmented(features: Tensor, ends: Tensor | None, options: Augmentation) -> Tensor:
    """(n, T, d) -> (n, T, d), drawn by torch's generator; nothing is drawn for what is switched off."""
    if options.shift:
        features = _shifted(features, ends, options.shift)
    if options.offset:
        features = features + options.offset * torch.randn_like(features[:, :1])
    if options.noise:
        features = features + options.noise * torch.randn_like(features)
    if options.mask:
        features = _masked(features, options.mask)
    return features


def _shifted(features: Tensor, ends: Tensor | None, most: int) -> Tensor:
    """Each sequence up to `most` steps earlier or later; its first or last observation is repeated to fill up."""
    n, horizon, _ = features.shape
    by = torch.randint(-most, most + 1, (n, 1), device=features.device)
    last = torch.full_like(by, horizon - 1) if ends is None else ends[:, None] - 1
    step = torch.arange(horizon, device=features.device)[None] - by
    source = torch.minimum(step.clamp(min=0), last)
    return features.gather(1, source[:, :, None].expand(-1, -1, features.shape[2]))


def _masked(features: Tensor, most: int) -> Tensor:
    """Up to `most` neighbouring steps of each sequence at 0, which is the mean of standardised features."""
    n, horizon, _ = features.shape
    count = torch.randint(0, most + 1, (n, 1), device=features.device)
    first = (torch.rand(n, 1, device=features.device) * (horizon - count + 1)).long()
    step = torch.arange(horizon, device=features.device)[None]
    return features.masked_fill(((step >= first) & (step < first + count))[:, :, None], 0.0)
