"""Shared by the backends on torch.distributed: the process group, sums over ranks and communication measurements."""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import default_pg_timeout

from common.config import Settings
from common.ranks import meeting, watchdog
from common.ranks.launcher_variables import Ranks
from common.ranks.meeting import agree_on_master
from common.record.parts import Transport
from common.trainer import Communication, ProfiledCommunication
from frameworks.shared.pytorch import profiler
from frameworks.shared.replaced import replaced

T = TypeVar("T")
# Names of functions, and those that they have in PyTorch 2.11 and 2.12.
OLDER_NAMES = {"all_gather_single": ("all_gather_into_tensor", "all_gather_tensor"), "reduce_scatter_single": ("reduce_scatter_tensor",)}
POLL_SECONDS, MAX_NAMED = 0.02, 8
STORE_TIMEOUT = timedelta(days=1)
# As `counted` takes it.
ALL_REDUCE = {"all_reduce": "all_reduce"}


def transport_of(device: torch.device, settings: Settings) -> Transport:
    """Returns what the gradients of a device go over. NCCL refuses ranks that share a GPU."""
    return "nccl" if device.type == "cuda" and not settings.share_gpu else "gloo"


def begin(settings: Settings, ranks: Ranks, device: torch.device) -> Transport:
    """Begins the process group of all ranks and returns its transport."""
    agree_on_master(ranks)
    transport = transport_of(device, settings)
    join(transport, ranks)
    return transport


def join(transport: str, ranks: Ranks) -> None:
    """Begins the process group when all ranks have come to its store, at MASTER_ADDR and MASTER_PORT."""
    if dist.get_debug_level() == dist.DebugLevel.DETAIL:
        dist.set_debug_level(dist.DebugLevel.INFO)
        if ranks.rank == 0:
            print("TORCH_DISTRIBUTED_DEBUG=DETAIL is taken as INFO: with it PyTorch's DistributedDataParallel crashes", file=sys.stderr)
    # Until the store answers.
    missing = [0]

    def where() -> str:
        names = f"rank {missing[0]}" if len(missing) == 1 else f"ranks {', '.join(map(str, missing[:MAX_NAMED]))}"
        return f"at {os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}, where {names} did not come,"

    with watchdog.joining(ranks.rank, where):
        store = store_of(ranks)
        # torchrun's store is that of all its attempts.
        joined = dist.PrefixStore(f"joining/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
        joined.set(str(ranks.rank), "")
        missing[:] = range(ranks.size)
        while missing:
            missing[:] = [rank for rank in missing if not joined.check([str(rank)])]
            time.sleep(POLL_SECONDS if missing else 0.0)
    store.set_timeout(default_pg_timeout)
    dist.init_process_group(transport, store=store, rank=ranks.rank, world_size=ranks.size)


def store_of(ranks: Ranks) -> dist.TCPStore:
    """Returns the store at MASTER_ADDR and MASTER_PORT, of torchrun's agent or of rank 0."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    # The watchdog ends the rank earlier.
    common = {"world_size": ranks.size, "timeout": STORE_TIMEOUT, "wait_for_workers": False}
    if ranks.rank or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True):
        return dist.TCPStore(address, port, is_master=False, **common)
    listener = meeting.listener(ranks.local_size == ranks.size)
    return dist.TCPStore(address, port, is_master=True, master_listen_fd=listener.detach(), **common)


def summed(values: np.ndarray | Sequence[float], device: torch.device) -> np.ndarray:
    """Sum-all-reduces float64 values."""
    total = torch.tensor(values, dtype=torch.float64, device=device)
    dist.all_reduce(total)
    return total.cpu().numpy()


def united(mapping: dict[str, T], group: dist.ProcessGroup | None = None) -> dict[str, T]:
    """Returns the union of the dicts that the ranks of a group have, on each of them."""
    mappings: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(mappings, mapping, group=group)
    return {key: value for mapping in mappings for key, value in mapping.items()}


def communication_by_hand(trainer: object, exchange: str, owner: Any = dist) -> Communication:
    """Returns how to measure the communication of a trainer that calls `owner.all_reduce` in its method of the name `exchange` alone."""
    return communication_of_functions(ALL_REDUCE, lambda: replaced((trainer, exchange, lambda: None)), owner)


def communication_of_functions(
    names: Mapping[str, str], without_communication: Callable[[], AbstractContextManager[None]], owner: object = dist
) -> Communication:
    """Returns how to measure the communication that goes through functions of `owner`; `names` as in `counted`."""

    def profiled(train: Callable[[], None]) -> ProfiledCommunication:
        with counted(names, owner) as operations:
            seconds, _ = profiler.collectives(train)
        return ProfiledCommunication(seconds, operations)

    return Communication(without_communication, profiled)


def size_of(tensors: Iterable[torch.Tensor]) -> int:
    """Returns the bytes of tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@contextlib.contextmanager
def counted(names: Mapping[str, str], owner: object = dist) -> Iterator[dict[str, tuple[int, int]]]:
    """Counts the calls of each collective, and the bytes that this rank contributed, while functions are called in a context.

    `names`: {function of `owner`, a module or object, through which it is called: its collective}.
    """
    operations: dict[str, tuple[int, int]] = {}

    def counting(function: Callable[..., T], collective: str) -> Callable[..., T]:
        def call(*arguments: Any, **settings: Any) -> T:
            if tensors := contributed(arguments, settings):
                num_calls, size_bytes = operations.get(collective, (0, 0))
                operations[collective] = num_calls + len(tensors), size_bytes + size_of(tensors)
            return function(*arguments, **settings)

        return call

    names = named_in(owner, names)
    with replaced(*((owner, name, counting(getattr(owner, name), collective)) for name, collective in names.items())):
        yield operations


def contributed(arguments: Sequence[Any], settings: Mapping[str, Any]) -> list[torch.Tensor]:
    """Returns the tensors that a rank contributes to a call: of a list of sends and receives those that it sends.

    A collective contributes `input` or `tensor`, or the last tensor. A tensor that receives comes before it.
    """
    if arguments and isinstance(arguments[0], list) and not any(map(torch.is_tensor, arguments[0])):
        return [operation.tensor for operation in arguments[0] if operation.op is dist.isend]
    by_name = [settings[name] for name in ("input", "tensor") if name in settings]
    return by_name or [value for value in arguments if torch.is_tensor(value)][-1:]


def named_in(owner: object, functions: Mapping[str, T]) -> dict[str, T]:
    """Returns values by function, under the names that the functions have in a module of this PyTorch."""

    def present(name: str) -> str:
        return next((spelling for spelling in (name, *OLDER_NAMES.get(name, ())) if hasattr(owner, spelling)), name)

    return {present(name): value for name, value in functions.items()}
