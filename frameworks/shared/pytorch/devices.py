"""The device of a rank in PyTorch."""

import functools
import os
from collections.abc import Callable

import torch
from torch.cuda import nccl

from common.config import Settings
from common.errors import UserError
from common.ranks import mkl_kernels
from common.ranks.binding import gpu_for
from common.ranks.gpus import Device, GpuMemory, version_text
from common.ranks.launcher_variables import Ranks

# Silences the messages of PyTorch's profiler.
os.environ.setdefault("KINETO_LOG_LEVEL", "6")


def device_problem(device: str) -> str | None:
    """Returns why PyTorch cannot compute on `cpu` or `cuda` here; None if it can."""
    # PyTorch for ROCm has AMD GPUs as cuda.
    if device == "cuda" and not (torch.backends.cuda.is_built() or torch.version.hip):
        return "this PyTorch has no CUDA"
    return "PyTorch finds no GPU" if device == "cuda" and not torch.cuda.device_count() else None


def mkl_kernels_problem() -> str | None:
    """Returns why a run cannot have --mkl-kernels fast here; None if it can."""
    return mkl_kernels.problem() if torch.backends.mkl.is_available() else "this PyTorch has no MKL"


def describe_device(device: torch.device) -> Device:
    """Describes a device for the record."""
    multiply, num_threads = functools.partial(product, device), torch.get_num_threads()
    if device.type == "cpu":
        onednn = onednn_product if torch.backends.mkldnn.is_available() else None
        return Device("cpu", None, torch.version.cuda, None, None, multiply, onednn, None, num_threads)
    versions = torch.version.cuda, version_text(torch.backends.cudnn.version()), ".".join(map(str, nccl.version()))
    memory = GpuMemory(
        lambda: torch.cuda.reset_peak_memory_stats(device),
        lambda: (torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device)),
    )
    return Device("cuda", device.index, *versions, multiply, None, memory, num_threads)


def product(device: torch.device, precision: str, size: int) -> Callable[[], None]:
    """Returns the `product` of a Device."""
    dtype = {"fp64": torch.float64, "bf16": torch.bfloat16}.get(precision, torch.float32)
    # A GPU multiplies constants faster than other numbers.
    matrix = torch.randn(size, size, device=device, dtype=dtype)
    out = torch.empty_like(matrix)

    def multiply() -> None:
        torch.mm(matrix, matrix, out=out)
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return multiply


def onednn_product(size: int) -> Callable[[], object]:
    """Returns the `onednn_product` of a Device. PyTorch multiplies float32 numbers on cores by its library of linear algebra."""
    matrix = torch.randn(size, size).to_mkldnn()
    # Stage 3 of DeepSpeed replaces torch.nn.functional.linear.
    return functools.partial(torch.ops.aten.linear, matrix, matrix)


def pick_device(settings: Settings, ranks: Ranks) -> torch.device:
    """Returns the device of this rank; also sets PyTorch's number of threads and precision.

    Raises UserError if CUDA is requested but not available, if a node has more ranks than GPUs, or if MKL cannot have the kernels that are
    requested.
    """
    if settings.mkl_kernels == "fast":
        if reason := mkl_kernels_problem():
            raise UserError(f"--mkl-kernels fast: {reason}")
        mkl_kernels.expect_loaded()
    torch.set_num_threads(settings.threads)
    # With TF32, fp32 on a GPU would have a lower precision than on a CPU.
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = settings.precision == "tf32"
    problem = device_problem("cuda")
    if settings.device == "cpu" or (settings.device == "auto" and problem):
        return torch.device("cpu")
    if problem:
        raise UserError(f"--device cuda, but {problem}; use --device cpu, or set up with TANDEM_DEVICE=cuda on a node with GPUs")
    device = torch.device("cuda", gpu_for(torch.cuda.device_count(), ranks, settings.share_gpu))
    torch.cuda.set_device(device)
    return device
