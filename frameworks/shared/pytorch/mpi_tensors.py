"""All-reduces of tensors in main memory over MPI, with mpi4py."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch._C._profiler import _RecordFunctionFast

from common.errors import UserError
from common.ranks.launcher_variables import Ranks
from common.ranks.meeting import joined

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

# The profiler's names of Gloo's collectives begin with gloo: in the same way.
ALL_REDUCE = "mpi:all_reduce"


def begin(ranks: Ranks, device: torch.device) -> Callable[[torch.Tensor], None]:
    """Initializes MPI and returns `all_reduce`. Raises UserError on a GPU, or if MPI has a different number of ranks."""
    if device.type != "cpu":
        raise UserError("gradients of GPUs are not averaged over MPI here; use --device cpu, or leave mpi out for NCCL")
    joined(ranks)
    return all_reduce


def world() -> Intracomm:
    """Returns MPI's communicator of all ranks."""
    # Not at the top, since the import initializes MPI.
    from mpi4py import MPI

    return MPI.COMM_WORLD


def all_reduce(tensor: torch.Tensor) -> None:
    """Sums a tensor over the ranks in place. The profiler sees it as it does Gloo's collectives."""
    from mpi4py import MPI

    # torch.profiler.record_function would not record the tensor's size.
    with _RecordFunctionFast(ALL_REDUCE, [tensor]):
        world().Allreduce(MPI.IN_PLACE, tensor.numpy())
