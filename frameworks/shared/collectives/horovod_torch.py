"""Horovod's collectives on PyTorch's tensors in main memory: its negotiation and cycles, and MPI below them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from common.config import Settings
from common.process.ranks import Ranks
from frameworks.shared.collectives.library import Library, Prepare, Prepared
from frameworks.shared.horovod import horovod


def begin(name: str, ranks: Ranks, host_suffix: str) -> Library:
    """Initializes Horovod over MPI. Raises UserError if it has a different number of ranks."""
    import horovod.torch as hvd

    horovod.begin(hvd, Settings(host_suffix=host_suffix), ranks, on_gpu=False)

    def on_tensors(collective: str, is_in_place: bool, function: Callable, **settings: Any) -> Prepare:
        # A name for each, by which Horovod finds the ranks' tensors that belong together.
        settings |= {"name": f"{collective}-{is_in_place}"}

        def prepare(sent: np.ndarray, _: np.ndarray) -> Prepared:
            tensor = torch.from_numpy(sent)
            return Prepared(lambda: function(tensor, **settings))

        return prepare

    functions = {
        ("all_reduce", False): (hvd.allreduce, {"op": hvd.Sum}),
        ("all_reduce", True): (hvd.allreduce_, {"op": hvd.Sum}),
        ("all_gather", False): (hvd.allgather, {}),
        ("reduce_scatter", False): (hvd.reducescatter, {"op": hvd.Sum}),
        ("broadcast", False): (hvd.broadcast, {"root_rank": 0}),
        ("broadcast", True): (hvd.broadcast_, {"root_rank": 0}),
        ("all_to_all", False): (hvd.alltoall, {}),
    }
    collectives = {place: on_tensors(*place, function, **settings) for place, (function, settings) in functions.items()}
    collectives["barrier", False] = lambda _, received: Prepared(hvd.barrier, torch.from_numpy(received))
    return Library(
        ranks,
        lambda values: hvd.allreduce(torch.tensor(values, dtype=torch.float64), op=hvd.Sum, name="sum").numpy(),
        collectives,
        lambda: horovod.end(hvd, ranks),
        as_array=lambda tensor: tensor.numpy(),
        missing={"send_recv": "it has no point to point"},
    )
