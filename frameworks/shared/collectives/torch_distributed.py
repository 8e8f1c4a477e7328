"""torch.distributed's collectives: over Gloo on tensors in main memory, over NCCL on GPUs."""

import os
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.cuda import nccl

from common.config import Settings
from common.errors import UserError
from common.process import binding
from common.process.ranks import Ranks
from common.process.rendezvous import MASTER
from frameworks.shared.collectives.library import Library, Prepare, Prepared
from frameworks.shared.pytorch import devices, process_group


def gpu_problem(ranks: Ranks) -> str | None:
    """Returns why this rank has no GPU of its own; None if it has."""
    if problem := devices.device_problem("cuda"):
        return problem
    try:
        binding.gpu_for(torch.cuda.device_count(), ranks)
    except UserError as mistake:
        return str(mistake)
    return None


def begin(name: str, ranks: Ranks, host_suffix: str) -> Library:
    """Initializes the process group over gloo or nccl. Raises UserError if ranks would share a GPU, which NCCL refuses."""
    device = torch.device("cpu") if name == "gloo" else torch.device("cuda", binding.gpu_for(torch.cuda.device_count(), ranks))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    before = {variable: os.environ.get(variable) for variable in MASTER}
    process_group.begin(Settings(host_suffix=host_suffix), ranks, device)
    following, previous = (ranks.rank + 1) % ranks.size, (ranks.rank - 1) % ranks.size
    functions = process_group.named_in(dist, {"all_gather_single": "all_gather", "reduce_scatter_single": "reduce_scatter"})
    by_collective = {collective: getattr(dist, function) for function, collective in functions.items()}

    def on_tensors(prepare: Callable[[torch.Tensor, torch.Tensor], Prepared]) -> Prepare:
        return lambda sent, received: prepare(torch.from_numpy(sent).to(device), torch.from_numpy(received).to(device))

    def send_recv(sent: torch.Tensor, received: torch.Tensor) -> Prepared:
        def call() -> None:
            operations = [dist.P2POp(dist.isend, sent, following), dist.P2POp(dist.irecv, received, previous)]
            for work in dist.batch_isend_irecv(operations):
                work.wait()

        return Prepared(call, received)

    collectives: dict[tuple[str, bool], Callable[[torch.Tensor, torch.Tensor], Prepared]] = {
        ("all_reduce", True): lambda sent, _: Prepared(lambda: dist.all_reduce(sent), sent),
        ("all_gather", False): lambda sent, received: Prepared(lambda: by_collective["all_gather"](received, sent), received),
        ("reduce_scatter", False): lambda sent, received: Prepared(lambda: by_collective["reduce_scatter"](received, sent), received),
        ("broadcast", True): lambda sent, _: Prepared(lambda: dist.broadcast(sent, 0), sent),
        ("all_to_all", False): lambda sent, received: Prepared(lambda: dist.all_to_all_single(received, sent), received),
        ("send_recv", False): send_recv,
        ("barrier", False): lambda _, received: Prepared(dist.barrier, received),
    }

    def end() -> None:
        dist.destroy_process_group()
        # The next process group has a store of its own.
        for variable, value in before.items():
            if value is None:
                del os.environ[variable]

    return Library(
        ranks,
        lambda values: process_group.summed(values, device),
        {place: on_tensors(prepare) for place, prepare in collectives.items()},
        end,
        torch.cuda.synchronize if device.type == "cuda" else lambda: None,
        lambda tensor: tensor.cpu().numpy(),
        versions={"nccl": ".".join(map(str, nccl.version()))} if name == "nccl" else {},
    )
