"""The GPU of a rank: its PCI bus id, its model and driver, its memory, and whether ranks share it.

CUDA numbers the GPUs that a process sees, so ranks with different CUDA_VISIBLE_DEVICES may mean different GPUs by one number, or one
GPU by different numbers. The PCI bus id names the GPU itself. All MIG instances of a GPU have its PCI bus id.
"""

import ctypes
import math
import re

import pynvml

from common.errors import UserError
from common.process.ranks import node_number
from common.trainer import by_rank

NO_GPU = -1
# Of the GPUs with bfloat16 and TF32 (CUDA C++ Programming Guide, "Feature Support per Compute Capability").
AMPERE = (8, 0)
DUPLICATE_GPU = re.compile(r"Duplicate GPU detected : rank (\d+) and rank (\d+) both on CUDA device ([0-9a-f]+)")


def describe(device):
    """Returns `device`, `framework_has_cuda` and `gpu` of the record's environment, for a Device of common/trainer.py."""
    gpu = None
    if device.gpu is not None:
        gpu = {
            "pci_bus_id": pci_bus_id(device.gpu),
            "model": read_of_gpu(device.gpu, pynvml.nvmlDeviceGetName),
            "driver": read_of_gpu(device.gpu, lambda _: pynvml.nvmlSystemGetDriverVersion()),
            "cuda": device.cuda,
            "cudnn": device.cudnn,
            "nccl": device.nccl,
        }
    return {"device": device.type, "framework_has_cuda": device.framework_has_cuda, "gpu": gpu}


def pci_bus_id(index):
    """Returns the PCI bus id of the GPU that CUDA numbers so, such as 0000:07:00.0; None for None, and where the driver does not tell.

    From the CUDA driver, which both frameworks load: TensorFlow does not tell it. No context is created.
    """
    gpu, text = ctypes.c_int(), ctypes.create_string_buffer(32)
    cuda = None if index is None else driver()
    failed = cuda is None or cuda.cuDeviceGet(ctypes.byref(gpu), index) or cuda.cuDeviceGetPCIBusId(text, len(text), gpu)
    return None if failed else text.value.decode()


def count():
    """Returns the number of GPUs that CUDA shows this process; None where the driver does not tell."""
    num_gpus = ctypes.c_int()
    cuda = driver()
    return None if cuda is None or cuda.cuDeviceGetCount(ctypes.byref(num_gpus)) else num_gpus.value


def driver():
    """Returns the CUDA driver, initialized; None where there is none."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    return None if cuda.cuInit(0) else cuda


def read_nvml(read, unknown=None):
    """Returns what `read()` reads from NVML; `unknown` where NVML does not tell."""
    try:
        pynvml.nvmlInit()
        return read()
    except pynvml.NVMLError:
        return unknown


def read_of_gpu(index, read):
    """Returns what `read` reads of NVML's handle of the GPU that CUDA numbers so; None for None, and where NVML does not tell."""
    bus_id = pci_bus_id(index)
    return None if bus_id is None else read_nvml(lambda: read(pynvml.nvmlDeviceGetHandleByPciBusId(bus_id)))


def begin_memory(trainer):
    """Begins the peaks of a rank's GPU memory anew."""
    if memory := trainer.describe_device().memory:
        memory.reset()


def memory_by_rank(trainer):
    """Returns `gpu_memory_by_rank` of the record, since begin_memory; None on CPUs. All ranks call this."""
    device = trainer.describe_device()
    used = read_of_gpu(device.gpu, lambda gpu: pynvml.nvmlDeviceGetMemoryInfo(gpu).used)
    peaks = device.memory.peak() if device.memory else (None, None)
    sizes_by_name = {}
    for name, value in zip(("peak_allocated_bytes", "peak_reserved_bytes", "used_bytes"), (*peaks, used), strict=True):
        sizes = by_rank(trainer, math.nan if value is None else value).tolist()
        sizes_by_name[name] = [None if math.isnan(size) else int(size) for size in sizes]
    return {"gpu_memory_by_rank": None if device.gpu is None else sizes_by_name}


def precision_problem(precision, device, index=0):
    """Says why `cpu`, or the GPU that CUDA numbers so, does not compute in a precision; None if it does, or is not known."""
    if device == "cpu":
        return "TF32 is of GPUs, not of CPUs; use --precision fp32" if precision == "tf32" else None
    if precision not in ("bf16", "tf32"):
        return None
    capability = read_of_gpu(index, pynvml.nvmlDeviceGetCudaComputeCapability)
    if capability is None or tuple(capability) >= AMPERE:
        return None
    return f"{precision} needs a GPU with compute capability 8.0, and this one has {'.'.join(map(str, capability))}; use --precision fp32"


def expect_precision(precision, device):
    """Raises UserError where a Device of common/trainer.py does not compute in a precision."""
    if reason := precision_problem(precision, device.type, device.gpu):
        raise UserError(f"--precision {precision}: {reason}")


def processes():
    """Returns [(NVML's handle of a GPU, {process ID: bytes that it has on the GPU})] of this node; empty without GPUs."""

    def read():
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        return [(gpu, pynvml.nvmlDeviceGetComputeRunningProcesses(gpu)) for gpu in handles]

    return [(gpu, {process.pid: process.usedGpuMemory or 0 for process in on_gpu}) for gpu, on_gpu in read_nvml(read, [])]


def of_processes(pids):
    """NVML's handles of the GPUs on which one of these processes computes."""
    return [gpu for gpu, bytes_by_pid in processes() if not bytes_by_pid.keys().isdisjoint(pids)]


def expect_own(trainer):
    """Raises UserError, on every rank, if ranks of a node share a GPU. All ranks call this."""
    bus_id = pci_bus_id(trainer.describe_device().gpu)
    places = by_rank(trainer, node_number())
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
    """Describes in one line NCCL's error of ranks that share a GPU, from its first collective; None for other errors."""
    match = DUPLICATE_GPU.search(text)
    return match and describe_shared(sorted(int(rank) for rank in match.group(1, 2)), int(match[3], 16))


def pci_number(text):
    """Returns a PCI bus id as a number that float64 holds: its hexadecimal digits, as NCCL numbers GPUs."""
    return int(text.replace(":", "").replace(".", ""), 16)


def pci_text(number):
    """Returns the PCI bus id, domain:bus:device.function, whose number `pci_number` gave."""
    digits = f"{number:09x}"
    return f"{digits[:-5]}:{digits[-5:-3]}:{digits[-3:-1]}.{digits[-1]}"


def version_text(code):
    """Returns the version in a number of NCCL or cuDNN, such as 22703 or 8902; None for 0 and None.

    1000 * major + 100 * minor + patch before NCCL 2.9 and cuDNN 9, since then 10000 * major + 100 * minor + patch.
    """
    if not code:
        return None
    major, minor = divmod(code, 10000 if code >= 10000 else 1000)
    return f"{major}.{minor // 100}.{minor % 100}"
