"""Where torch computes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, get_args

from firmbound.errors import InvalidInput

if TYPE_CHECKING:  # options name a device without waiting for torch
    import torch

Device = Literal["cpu", "cuda", "auto"]


def torch_device(name: str) -> torch.device:
    """cpu, cuda, or auto: cuda where there is one."""
    import torch

    if name not in get_args(Device):
        raise InvalidInput("device", "be cpu, cuda or auto", repr(name))
    if name == "cuda" and not torch.cuda.is_available():
        raise InvalidInput("device", "be one that is there", "cuda, which torch does not find", "Use auto or cpu.")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


@contextmanager
def one_thread() -> Iterator[None]:
    """For small matrices: handing them to several threads costs more than it gains, many times more beside other work.

    It also makes results independent of the number of cores. torch counts threads for the whole process; others that
    use it meanwhile are slower, not wrong.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
