"""Shared by the backends on torch.distributed: the process group, sums over ranks and communication measurements."""

import contextlib
import re
import time
from collections import Counter

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

from common.process.rendezvous import agree_on_master
from common.trainer import Communication, ProfiledCommunication
from frameworks.shared.replaced import replaced

# Names of functions, and those that they have in PyTorch 2.11 and 2.12.
OLDER_NAMES = {"all_gather_single": ("all_gather_into_tensor", "all_gather_tensor"), "reduce_scatter_single": ("reduce_scatter_tensor",)}
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
# As `counted` takes it.
ALL_REDUCE = {"all_reduce": "all_reduce"}


def transport_of(device, settings):
    """What the gradients of a device go over. NCCL refuses ranks that share a GPU."""
    return "nccl" if device.type == "cuda" and not settings.share_gpu else "gloo"


def begin(settings, ranks, device):
    """Begins the process group of all ranks and returns its transport."""
    agree_on_master(ranks, settings.host_suffix)
    transport = transport_of(device, settings)
    dist.init_process_group(transport, rank=ranks.rank, world_size=ranks.size)
    return transport


def summed(values, device):
    """Sum-all-reduce of a float64 NumPy array."""
    total = torch.tensor(values, dtype=torch.float64, device=device)
    dist.all_reduce(total)
    return total.cpu().numpy()


def united(part, group=None):
    """The union of the dicts that the ranks of a group have, on each of them."""
    parts = [None] * dist.get_world_size(group)
    dist.all_gather_object(parts, part, group=group)
    return {key: value for part in parts for key, value in part.items()}


def communication_by_hand(trainer, exchange, owner=dist):
    """How to measure the communication of a trainer that calls `owner.all_reduce` itself, in its method of the name `exchange` alone."""

    def without_communication():
        return replaced((trainer, exchange, lambda: None))

    return communication_of_functions(ALL_REDUCE, without_communication, trainer.device, owner, owner.all_reduce)


def communication_of_functions(names, without_communication, device, owner=dist, all_reduce=dist.all_reduce):
    """How to measure the communication that goes through functions of `owner`; `names` as in `counted`."""

    def profiled(train):
        with counted(names, owner) as operations:
            seconds, _, starts = collectives(train)
        return ProfiledCommunication(seconds, operations, {}, starts)

    return Communication(without_communication, profiled, lambda num_bytes: plain_all_reduce(num_bytes, device, all_reduce))


def size_of(tensors):
    """Bytes of tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def collectives(train):
    """(seconds in which a collective ran, Counter of the collectives, {collective: when each began, in seconds since the epoch}) during
    train(), from PyTorch's profiler."""
    # Imported here to keep the start of every run short.
    from common.tracing import profiling, sources

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    with profile(activities=activities) as profiler:
        train()
        time.sleep(profiling.LATE_SECONDS)
    events = [event for event in profiler.events() if sources.is_collective(event.name)]
    spans = [(event.time_range.start, event.time_range.end) for event in events]
    begun = profiler.profiler.kineto_results.trace_start_ns() / 1e9
    starts = {}
    for event in events:
        starts.setdefault(operation(event.name), []).append(begun + event.time_range.start / 1e6)
    return covered(spans) / 1e6, Counter(operation(event.name) for event in events), starts


@contextlib.contextmanager
def counted(names, owner=dist):
    """{collective: (calls, bytes that this rank contributed)} of the context, filled as the functions are called.

    `names`: {function of `owner`, a module or object, through which it is called: its collective}.
    """
    operations = {}

    def counting(function, collective):
        def call(*arguments, **settings):
            if tensors := contributed(arguments, settings):
                num_calls, size_bytes = operations.get(collective, (0, 0))
                operations[collective] = num_calls + len(tensors), size_bytes + size_of(tensors)
            return function(*arguments, **settings)

        return call

    names = named_in(owner, names)
    with replaced(*((owner, name, counting(getattr(owner, name), collective)) for name, collective in names.items())):
        yield operations


def contributed(arguments, settings):
    """The tensors that a rank contributes to a call: of a list of sends and receives those that it sends.

    Of a collective it is `input` or `tensor`, or the last one. One that receives comes before it.
    """
    if arguments and isinstance(arguments[0], list):
        return [operation.tensor for operation in arguments[0] if operation.op is dist.isend]
    by_name = [settings[name] for name in ("input", "tensor") if name in settings]
    return by_name or [value for value in arguments if torch.is_tensor(value)][-1:]


def named_in(owner, functions):
    """{name of a function: value} under the names that the functions have in a module of this PyTorch."""

    def present(name):
        return next((spelling for spelling in (name, *OLDER_NAMES.get(name, ())) if hasattr(owner, spelling)), name)

    return {present(name): value for name, value in functions.items()}


def operation(name):
    """The collective in a name of PyTorch's profiler, such as gloo:all_reduce or ncclDevKernel_AllReduce_Sum_f32_RING_LL."""
    letters = re.sub("[^a-z]", "", name.lower())
    return next((collective for collective in OPERATIONS if collective.replace("_", "") in letters), name)


def covered(spans):
    """The length of the union of (start, end) intervals."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def plain_all_reduce(num_bytes, device, all_reduce=dist.all_reduce):
    """A function that all-reduces a buffer of `num_bytes` and waits for completion."""
    buffer = torch.zeros(num_bytes // 4, device=device)

    def reduce():
        all_reduce(buffer)
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return reduce
