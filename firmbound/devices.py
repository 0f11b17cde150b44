"""Where torch computes."""

from __future__ import annotations

import torch

from firmbound.errors import InvalidInput


def torch_device(name: str) -> torch.device:
    """cpu, cuda, or auto: cuda where there is one."""
    if name not in ("cpu", "cuda", "auto"):
        raise InvalidInput("device", "be cpu, cuda or auto", repr(name))
    if name == "cuda" and not torch.cuda.is_available():
        raise InvalidInput("device", "be one that is there", "cuda, which torch does not find", "Use auto or cpu.")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")
