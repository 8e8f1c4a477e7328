"""The GPU of a rank: its PCI bus id, its model and driver, its memory, and whether ranks share it.

CUDA numbers the GPUs that a process sees, so ranks with different CUDA_VISIBLE_DEVICES may mean different GPUs by one number, or one
GPU by different numbers. The PCI bus id names the GPU itself. All MIG instances of a GPU have its PCI bus id.
"""

import functools
import math
import re
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

from common.errors import UserError
from common.process import amd, nvidia
from common.process.ranks import node_number
from common.record.parts import Gpu, GpuMemoryByRank
from common.trainer import Device, Trainer, by_rank

# That of a vendor for a GPU, which is only given back to it.
Handle = Any
Value = TypeVar("Value")
Unknown = TypeVar("Unknown")
NO_GPU = -1
# Of the GPUs with bfloat16 and TF32 (CUDA C++ Programming Guide, "Feature Support per Compute Capability").
AMPERE = (8, 0)
DUPLICATE_GPU = re.compile(r"Duplicate GPU detected : rank (\d+) and rank (\d+) both on CUDA device ([0-9a-f]+)")


class Vendor(Protocol):
    """A module that reads the GPUs of one vendor. Functions of a handle raise its Unknown where they do not know."""

    # That Tandem has never used these GPUs; None where it has.
    NEVER_RUN: str | None
    # Why these GPUs do not compute in a precision.
    REFUSED_PRECISIONS: dict[str, str]

    @property
    def Unknown(self) -> type[Exception]: ...
    def count(self) -> int | None: ...
    def pci_bus_id(self, index: int, /) -> str | None: ...
    def begin(self) -> None: ...
    def all_gpus(self) -> list[Any]: ...
    def with_bus_id(self, bus_id: str, /) -> Any: ...
    def bytes_by_pid(self, gpu: Any, /) -> dict[int, int]: ...
    def model(self, gpu: Any, /) -> str: ...
    def driver_version(self) -> str: ...
    def capability(self, gpu: Any, /) -> tuple[int, int]: ...
    def used_bytes(self, gpu: Any, /) -> int: ...
    def free_bytes(self, gpu: Any, /) -> int: ...
    def clock_hz(self, gpu: Any, /) -> float: ...
    def throttle_mask(self, gpu: Any, /) -> int: ...
    def throttle_reasons(self, masks: Iterable[int], /) -> list[str]: ...
    def millijoules(self, gpu: Any, /) -> int: ...


@functools.cache
def vendor() -> Vendor:
    """Returns the vendor for whose GPUs the PyTorch of this environment is built."""
    return amd if amd.is_pytorch_for_rocm() else nvidia


def describe(device: Device) -> Gpu | None:
    """Describes the GPU of a device and its software; None on a CPU."""
    if device.gpu is None:
        return None
    return Gpu(
        model=device.model or read_of_gpu(bus_id_of(device), vendor().model),
        pci_bus_id=bus_id_of(device),
        driver=read_of_gpu(bus_id_of(device), lambda _: vendor().driver_version()),
        cuda=device.cuda,
        cudnn=device.cudnn,
        nccl=device.nccl,
        rocm=device.rocm,
    )


def bus_id_of(device: Device) -> str | None:
    """Returns the PCI bus id of the GPU of a device; None on a CPU, and where it is not known."""
    return device.pci_bus_id or pci_bus_id(device.gpu)


def pci_bus_id(index: int | None) -> str | None:
    """Finds the PCI bus id of the GPU with this number, such as 0000:07:00.0; None for None, and where it is not known."""
    return None if index is None else vendor().pci_bus_id(index)


def count() -> int | None:
    """Counts the GPUs that this process sees; None where that is not known."""
    return vendor().count()


def read(ask: Callable[[Vendor], Value], unknown: Unknown) -> Value | Unknown:
    """Calls `ask`, which reads a value from the vendor of the GPUs; gives `unknown` where that does not know it."""
    try:
        vendor().begin()
        return ask(vendor())
    except vendor().Unknown:
        return unknown


def read_of_gpu(bus_id: str | None, ask: Callable[[Handle], Value]) -> Value | None:
    """Calls `ask` with the handle of the GPU with this PCI bus id; gives None for None, and where the value is not known."""
    return None if bus_id is None else read(lambda vendor: ask(vendor.with_bus_id(bus_id)), None)


def all_models() -> list[str]:
    """Lists the model of each GPU of this node and, last, the version of the driver where that is known."""
    models = read(lambda vendor: [vendor.model(gpu) for gpu in vendor.all_gpus()], [])
    driver = read(lambda vendor: f"driver {vendor.driver_version()}", None)
    return [*models, *filter(None, [driver])]


def free_bytes() -> list[int]:
    """Lists the bytes that are free on each GPU of this node; empty where they are not known."""
    return read(lambda vendor: [vendor.free_bytes(gpu) for gpu in vendor.all_gpus()], [])


def begin_memory(trainer: Trainer) -> None:
    """Begins the peaks of a rank's GPU memory anew."""
    if memory := trainer.describe_device().memory:
        memory.reset()


def memory_by_rank(trainer: Trainer) -> GpuMemoryByRank | None:
    """Returns the memory that the ranks have used of their GPUs since begin_memory; None on CPUs. All ranks call this."""
    device = trainer.describe_device()
    used = read_of_gpu(bus_id_of(device), vendor().used_bytes)
    peaks = device.memory.peak() if device.memory else (None, None)
    sizes_by_name: dict[str, list[int | None]] = {}
    for name, value in zip(("peak_allocated_bytes", "peak_reserved_bytes", "used_bytes"), (*peaks, used), strict=True):
        sizes = by_rank(trainer, math.nan if value is None else value).tolist()
        sizes_by_name[name] = [None if math.isnan(size) else int(size) for size in sizes]
    return None if device.gpu is None else GpuMemoryByRank(**sizes_by_name)


def precision_problem(precision: str, device: str, bus_id: str | None = None) -> str | None:
    """Says why `cpu`, or the GPU with this PCI bus id (by default the first), does not compute in a precision.

    Returns None if it does, and where that is not known.
    """
    if device == "cpu":
        return "TF32 is of GPUs, not of CPUs; use --precision fp32" if precision == "tf32" else None
    if precision not in ("bf16", "tf32"):
        return None
    if refusal := vendor().REFUSED_PRECISIONS.get(precision):
        return refusal
    capability = read_of_gpu(bus_id or pci_bus_id(0), vendor().capability)
    if capability is None or capability >= AMPERE:
        return None
    return f"{precision} needs a GPU with compute capability 8.0, and this one has {'.'.join(map(str, capability))}; use --precision fp32"


def expect_precision(precision: str, device: Device) -> None:
    """Raises UserError where a device does not compute in a precision."""
    if reason := precision_problem(precision, device.type, bus_id_of(device)):
        raise UserError(f"--precision {precision}: {reason}")


def processes() -> list[tuple[Handle, dict[int, int]]]:
    """Lists the GPUs of this node, each with the bytes that processes have on it, by process ID."""
    return read(lambda vendor: [(gpu, vendor.bytes_by_pid(gpu)) for gpu in vendor.all_gpus()], [])


def of_processes(pids: Iterable[int]) -> list[Handle]:
    """Lists the GPUs on which one of these processes computes."""
    return [gpu for gpu, bytes_by_pid in processes() if not bytes_by_pid.keys().isdisjoint(pids)]


def expect_own(trainer: Trainer) -> None:
    """Raises UserError, on every rank, if ranks of a node share a GPU. All ranks call this."""
    bus_id = bus_id_of(trainer.describe_device())
    places = by_rank(trainer, node_number())
    numbers = by_rank(trainer, NO_GPU if bus_id is None else pci_number(bus_id))
    if shared := sharing(places, numbers):
        raise UserError(describe_shared(*shared[0]))


def sharing(nodes: Iterable[float], numbers: Iterable[float]) -> list[tuple[list[int], int]]:
    """Finds the GPUs that several ranks have: these ranks and the number of the GPU.

    `nodes` and `numbers` have the node and the GPU of each rank; a rank without a GPU has NO_GPU.
    """
    ranks: dict[tuple[float, float], list[int]] = {}
    for rank, place in enumerate(zip(nodes, numbers, strict=True)):
        ranks.setdefault(place, []).append(rank)
    return [(on_gpu, int(number)) for (_, number), on_gpu in ranks.items() if number != NO_GPU and len(on_gpu) > 1]


def describe_shared(ranks: Iterable[int], number: int) -> str:
    """Describes in one line the ranks that share a GPU."""
    return (
        f"ranks {' and '.join(map(str, ranks))} share the GPU {pci_text(number)}; "
        "start at most one rank for each GPU, where CUDA_VISIBLE_DEVICES has one for each, or use --device cpu"
    )


def describe_nccl_error(text: str) -> str | None:
    """Describes in one line NCCL's error of ranks that share a GPU, from its first collective; None for other errors."""
    match = DUPLICATE_GPU.search(text)
    return match and describe_shared(sorted(int(rank) for rank in match.group(1, 2)), int(match[3], 16))


def pci_number(text: str) -> int:
    """Converts a PCI bus id to a number that float64 holds: its hexadecimal digits, as NCCL numbers GPUs."""
    return int(text.replace(":", "").replace(".", ""), 16)


def pci_text(number: int) -> str:
    """Converts a number of `pci_number` back to the PCI bus id, domain:bus:device.function."""
    digits = f"{number:09x}"
    return f"{digits[:-5]}:{digits[-5:-3]}:{digits[-3:-1]}.{digits[-1]}"


def version_text(code: int | None) -> str | None:
    """Formats the version number of NCCL or cuDNN, such as 22703 or 8902; None for 0 and None.

    It is 1000 * major + 100 * minor + patch before NCCL 2.9 and cuDNN 9, and 10000 * major + 100 * minor + patch since.
    """
    if not code:
        return None
    major, minor = divmod(code, 10000 if code >= 10000 else 1000)
    return f"{major}.{minor // 100}.{minor % 100}"
