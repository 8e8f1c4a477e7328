"""The GPUs of a node: which one a rank has, its memory and energy, and whether ranks share it.

NVML reads them, as it does for nvidia-smi. Frameworks number the GPUs that a process sees, so ranks with different CUDA_VISIBLE_DEVICES may
mean different GPUs by one number, or one GPU by different numbers. The PCI bus id names the GPU itself; all MIG instances of a GPU have its
PCI bus id. PyTorch for ROCm has AMD's GPUs as cuda too; of these, NVML reads nothing.
"""

import ctypes
import math
from collections.abc import Callable, Collection
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import pynvml

from common.errors import UserError
from common.ranks.launcher_variables import Ranks, Summing, node_name, values_by_rank

# NVML's handle of a GPU, which is only given back to it.
Handle = Any
Value = TypeVar("Value")
Unknown = TypeVar("Unknown")
# Of the GPUs with bfloat16 and TF32 (CUDA C++ Programming Guide, "Feature Support per Compute Capability").
AMPERE = (8, 0)


class GpuMemory(NamedTuple):
    """A framework's counters of the memory of a process on its GPU.

    `reset()` begins the peaks anew. `peak()` returns the most bytes since then of the tensors, and of the framework's allocator, None where
    those are not known.
    """

    reset: Callable[[], object]
    peak: Callable[[], tuple[int, int | None]]


class Device(NamedTuple):
    """The device that a rank computes on, and the software with which its framework was built.

    `gpu` is CUDA's number of the GPU, among those that the process sees. Versions are None where the framework has none, and so is
    `memory` on a CPU. `product(precision, size)` returns a function that multiplies two square matrices there, as a model in that precision
    does, and waits for the end; it is None where the rank has several devices. `onednn_product(size)`
    does so in float32 by oneDNN, where the framework has it and uses another library. The framework computes with `num_threads` on cores.
    """

    type: Literal["cpu", "cuda"]
    gpu: int | None
    cuda: str | None
    cudnn: str | None
    nccl: str | None
    product: Callable[[str, int], Callable[[], object]] | None = None
    onednn_product: Callable[[int], Callable[[], object]] | None = None
    memory: GpuMemory | None = None
    num_threads: int | None = None


def driver_version() -> str | None:
    """Returns the version of the driver; None where it is not known."""
    return read(pynvml.nvmlSystemGetDriverVersion, None)


def pci_bus_id(index: int | None) -> str | None:
    """Finds the PCI bus id of the GPU with this number, such as 0000:07:00.0; None for None, and where it is not known.

    It comes from the CUDA driver, since TensorFlow does not give it. No context is created.
    """
    gpu, text = ctypes.c_int(), ctypes.create_string_buffer(32)
    cuda = None if index is None else driver()
    failed = cuda is None or cuda.cuDeviceGet(ctypes.byref(gpu), index) or cuda.cuDeviceGetPCIBusId(text, len(text), gpu)
    return None if failed else text.value.decode()


def count() -> int | None:
    """Counts the GPUs that CUDA shows this process; None where there is no driver, or it fails."""
    num_gpus = ctypes.c_int()
    cuda = driver()
    return None if cuda is None or cuda.cuDeviceGetCount(ctypes.byref(num_gpus)) else num_gpus.value


def driver() -> ctypes.CDLL | None:
    """Loads and initializes the CUDA driver; None where there is none."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    return None if cuda.cuInit(0) else cuda


def read(ask: Callable[[], Value], unknown: Unknown) -> Value | Unknown:
    """Calls `ask`, which reads a value from NVML; gives `unknown` where that does not know it."""
    try:
        pynvml.nvmlInit()
        return ask()
    except pynvml.NVMLError:
        return unknown


def read_of_gpu(bus_id: str | None, ask: Callable[[Handle], Value]) -> Value | None:
    """Calls `ask` with NVML's handle of the GPU with this PCI bus id; gives None for None, and where the value is not known."""
    return None if bus_id is None else read(lambda: ask(pynvml.nvmlDeviceGetHandleByPciBusId(bus_id)), None)


def _all() -> list[Handle]:
    return [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]


def all_models() -> list[str]:
    """Lists the model of each GPU of this node and, last, the version of the driver where that is known."""
    models = read(lambda: [pynvml.nvmlDeviceGetName(gpu) for gpu in _all()], [])
    version = driver_version()
    return [*models, *([f"driver {version}"] if version else [])]


def free_bytes() -> list[int]:
    """Lists the bytes that are free on each GPU of this node; empty where they are not known."""
    return read(lambda: [int(pynvml.nvmlDeviceGetMemoryInfo(gpu).free) for gpu in _all()], [])


def most_free_bytes() -> float:
    """Reads the bytes that are free on the GPU of this node with most free memory; infinite where that is not known."""
    return max(free_bytes(), default=math.inf)


def used_bytes(device: Device) -> int | None:
    """Reads the bytes in use on the whole GPU of a device; None on a CPU, and where they are not known."""
    return read_of_gpu(pci_bus_id(device.gpu), lambda gpu: int(pynvml.nvmlDeviceGetMemoryInfo(gpu).used))


def count_joules(ranks: Ranks, pids: Collection[int]) -> Callable[[], float]:
    """Returns a function for the joules used since now by the GPUs of this rank's node on which processes `pids` compute.

    They are NaN where there are none, or that of one is not known, as before Volta. The first rank of a node reads for the node, and the
    function of its other ranks gives 0, so that GPUs count once.
    """
    if ranks.local_rank:
        return lambda: 0.0
    gpus = [gpu for gpu, bytes_by_pid in processes() if not bytes_by_pid.keys().isdisjoint(pids)]

    def joules() -> float:
        return read(lambda: sum(map(pynvml.nvmlDeviceGetTotalEnergyConsumption, gpus)) / 1000, math.nan) if gpus else math.nan

    begun = joules()
    return lambda: joules() - begun


def total_joules(run: Summing, joules: float) -> float | None:
    """Returns the energy of all nodes from what each rank has counted; None where a node does not know it. All ranks call this."""
    total = float(run.sum(np.array([joules]))[0])
    return total if total > 0 else None


def precision_problem(precision: str, device: str, bus_id: str | None = None) -> str | None:
    """Says why `cpu`, or the GPU with this PCI bus id (by default the first), does not compute in a precision.

    Returns None if it does, and where that is not known.
    """
    if device == "cpu":
        return "TF32 is of GPUs, not of CPUs; use --precision fp32" if precision == "tf32" else None
    if precision not in ("bf16", "tf32"):
        return None
    capability = read_of_gpu(bus_id or pci_bus_id(0), pynvml.nvmlDeviceGetCudaComputeCapability)
    if capability is None or tuple(capability) >= AMPERE:
        return None
    return f"{precision} needs a GPU with compute capability 8.0, and this one has {'.'.join(map(str, capability))}; use --precision fp32"


def expect_precision(precision: str, device: Device) -> None:
    """Raises UserError where a device does not compute in a precision."""
    if reason := precision_problem(precision, device.type, pci_bus_id(device.gpu)):
        raise UserError(f"--precision {precision}: {reason}")


def processes() -> list[tuple[Handle, dict[int, int]]]:
    """Lists the GPUs of this node, each with the bytes that processes have on it, by process ID."""
    of_gpu = pynvml.nvmlDeviceGetComputeRunningProcesses
    return read(lambda: [(gpu, {process.pid: process.usedGpuMemory or 0 for process in of_gpu(gpu)}) for gpu in _all()], [])


def expect_own(run: Summing, device: Device) -> None:
    """Raises UserError, on every rank, if ranks of a node share a GPU. All ranks call this."""
    ranks_of: dict[tuple[str, str], list[int]] = {}
    for rank, (node, bus_id) in enumerate(values_by_rank(run, [node_name(), pci_bus_id(device.gpu)])):
        # It is None on a CPU, and where the driver does not tell.
        if bus_id:
            ranks_of.setdefault((node, bus_id), []).append(rank)
    for (_, bus_id), ranks in ranks_of.items():
        if len(ranks) > 1:
            raise UserError(
                f"ranks {' and '.join(map(str, ranks))} share the GPU {bus_id}; "
                "start at most one rank for each GPU, where CUDA_VISIBLE_DEVICES has one for each, or use --device cpu"
            )


def version_text(code: int | None) -> str | None:
    """Formats the version number of NCCL or cuDNN, such as 22703 or 8902; None for 0 and None.

    It is 1000 * major + 100 * minor + patch before NCCL 2.9 and cuDNN 9, and 10000 * major + 100 * minor + patch since.
    """
    if not code:
        return None
    major, minor = divmod(code, 10000 if code >= 10000 else 1000)
    return f"{major}.{minor // 100}.{minor % 100}"
