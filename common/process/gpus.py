"""The GPU of a rank: its PCI bus id, its model and driver, its memory, and whether ranks share it.

CUDA numbers the GPUs that a process sees, so ranks with different CUDA_VISIBLE_DEVICES may mean different GPUs by one number, or one
GPU by different numbers. The PCI bus id names the GPU itself. All MIG instances of a GPU have its PCI bus id.
"""

import ctypes
import math
import re

import pynvml

from common.errors import UserError
from common.process import nodes
from common.trainer import by_rank

NO_GPU = -1
# Of the GPUs with bfloat16 and TF32 (CUDA C++ Programming Guide, "Feature Support per Compute Capability").
AMPERE = (8, 0)
DUPLICATE_GPU = re.compile(r"Duplicate GPU detected : rank (\d+) and rank (\d+) both on CUDA device ([0-9a-f]+)")


def describe(device):
    """Returns `device`, `framework_has_cuda` and `gpu` of the record's environment, for a Device of common/trainer.py."""
    gpu = None
    if device.index is not None:
        bus_id = pci_bus_id(device.index)
        gpu = {"pci_bus_id": bus_id, **model_and_driver(bus_id), "cuda": device.cuda, "cudnn": device.cudnn, "nccl": device.nccl}
    return {"device": device.type, "framework_has_cuda": device.framework_has_cuda, "gpu": gpu}


def pci_bus_id(index):
    """Returns the PCI bus id of the GPU that CUDA numbers so, such as 0000:07:00.0; None where the driver does not tell.

    From the CUDA driver, which both frameworks load: TensorFlow does not tell it. No context is created.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    gpu, text = ctypes.c_int(), ctypes.create_string_buffer(32)
    failed = driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(gpu), index) or driver.cuDeviceGetPCIBusId(text, len(text), gpu)
    return None if failed else text.value.decode()


def model_and_driver(pci_bus_id):
    """Returns the `model` of a GPU and the version of its `driver`, from NVML; None where it does not tell."""
    unknown = {"model": None, "driver": None}
    if pci_bus_id is None:
        return unknown
    try:
        pynvml.nvmlInit()
        gpu = pynvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id)
        return {"model": pynvml.nvmlDeviceGetName(gpu), "driver": pynvml.nvmlSystemGetDriverVersion()}
    except pynvml.NVMLError:
        return unknown


def begin_memory(trainer):
    """Begins the peaks of a rank's GPU memory anew."""
    if memory := trainer.describe_device().memory:
        memory.reset()


def memory_by_rank(trainer):
    """Returns `gpu_memory_by_rank` of the record, since begin_memory; None on CPUs. All ranks call this."""
    device = trainer.describe_device()
    peaks = device.memory.peak() if device.memory else (None, None)
    used = None if device.index is None else used_bytes(pci_bus_id(device.index))
    sizes_by_name = {}
    for name, value in zip(("peak_allocated_bytes", "peak_reserved_bytes", "used_bytes"), (*peaks, used), strict=True):
        sizes = by_rank(trainer, math.nan if value is None else value).tolist()
        sizes_by_name[name] = [None if math.isnan(size) else int(size) for size in sizes]
    return {"gpu_memory_by_rank": None if device.index is None else sizes_by_name}


def used_bytes(pci_bus_id):
    """Returns the bytes in use on a GPU, by all processes, from NVML; None where it does not tell."""
    if pci_bus_id is None:
        return None
    try:
        pynvml.nvmlInit()
        return pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id)).used
    except pynvml.NVMLError:
        return None


def compute_capability(pci_bus_id):
    """Returns (major, minor) of a GPU's compute capability, from NVML; None where it does not tell."""
    if pci_bus_id is None:
        return None
    try:
        pynvml.nvmlInit()
        return tuple(pynvml.nvmlDeviceGetCudaComputeCapability(pynvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id)))
    except pynvml.NVMLError:
        return None


def precision_problem(precision, device, index=0):
    """Says why `cpu`, or the GPU that CUDA numbers so, does not compute in a precision; None if it does, or is not known."""
    if device == "cpu":
        return "TF32 is of GPUs, not of CPUs; use --precision fp32" if precision == "tf32" else None
    capability = compute_capability(pci_bus_id(index)) if precision in ("bf16", "tf32") else None
    if capability is None or capability >= AMPERE:
        return None
    return f"{precision} needs a GPU with compute capability 8.0, and this one has {'.'.join(map(str, capability))}; use --precision fp32"


def expect_precision(precision, device):
    """Raises UserError where a Device of common/trainer.py does not compute in a precision."""
    if reason := precision_problem(precision, device.type, device.index):
        raise UserError(f"--precision {precision}: {reason}")


def processes():
    """Returns [(NVML's handle of a GPU, {process ID: bytes that it has on the GPU})] of this node; empty without GPUs."""
    try:
        pynvml.nvmlInit()
        present = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        running = [(gpu, pynvml.nvmlDeviceGetComputeRunningProcesses(gpu)) for gpu in present]
        return [(gpu, {process.pid: process.usedGpuMemory or 0 for process in on_gpu}) for gpu, on_gpu in running]
    except pynvml.NVMLError:
        return []


def of_processes(pids):
    """NVML's handles of the GPUs on which one of these processes computes."""
    return [gpu for gpu, on_it in processes() if not on_it.keys().isdisjoint(pids)]


def expect_own(trainer):
    """Raises UserError, on every rank, if ranks of a node share a GPU. All ranks call this."""
    index = trainer.describe_device().index
    bus_id = None if index is None else pci_bus_id(index)
    places = by_rank(trainer, nodes.number())
    numbers = by_rank(trainer, NO_GPU if bus_id is None else pci_number(bus_id))
    if shared := sharing(places, numbers):
        raise UserError(describe_shared(*shared[0]))


def sharing(nodes, numbers):
    """Returns [(ranks, number)] of the GPUs that several ranks have; the node and the GPU's number, or NO_GPU, are given by rank."""
    ranks = {}
    for rank, place in enumerate(zip(nodes, numbers, strict=True)):
        ranks.setdefault(place, []).append(rank)
    return [(on_gpu, int(number)) for (_, number), on_gpu in ranks.items() if number != NO_GPU and len(on_gpu) > 1]


def describe_shared(ranks, number):
    """Describes in one line the ranks that share a GPU."""
    return (
        f"ranks {' and '.join(map(str, ranks))} share the GPU {pci_text(number)}; "
        "start at most one rank for each GPU, where CUDA_VISIBLE_DEVICES has one for each, or use --device cpu"
    )


def describe_nccl_error(text):
    """Describes in one line NCCL's error of ranks that share a GPU, from its first collective; None for other errors.

    Its number of a GPU is the PCI bus id: 20 bits of bus, device and function, with 8, 8 and 4 bits, below those of the domain.
    """
    match = DUPLICATE_GPU.search(text)
    if match is None:
        return None
    busid = int(match[3], 16)
    number = pci_number(f"{busid >> 20:x}:{busid >> 12 & 0xFF:x}:{busid >> 4 & 0xFF:x}.{busid & 0xF:x}")
    return describe_shared(sorted(int(rank) for rank in match.group(1, 2)), number)


def pci_number(text):
    """Returns a PCI bus id, domain:bus:device.function in hexadecimal, as a number that float64 holds."""
    domain, bus, rest = text.split(":")
    device, function = rest.split(".")
    return int(domain, 16) << 16 | int(bus, 16) << 8 | int(device, 16) << 3 | int(function, 16)


def pci_text(number):
    """Returns the PCI bus id whose number `pci_number` gave."""
    return f"{number >> 16:04x}:{number >> 8 & 0xFF:02x}:{number >> 3 & 0x1F:02x}.{number & 7}"


def version_text(code):
    """Returns the version in a number of NCCL or cuDNN, such as 22703 or 8902; None for 0 and None.

    1000 * major + 100 * minor + patch before NCCL 2.9 and cuDNN 9, since then 10000 * major + 100 * minor + patch.
    """
    if not code:
        return None
    major, rest = divmod(code, 10000 if code >= 10000 else 1000)
    return f"{major}.{rest // 100}.{rest % 100}"
