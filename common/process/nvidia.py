"""NVIDIA's GPUs, for common/process/gpus.py: CUDA's driver numbers them, and NVML reads them."""

import ctypes
from collections.abc import Iterable

import pynvml

# NVML's handle of a GPU: a pointer that is only given back to NVML.
Handle = object
Unknown = pynvml.NVMLError
NEVER_RUN: str | None = None
REFUSED_PRECISIONS: dict[str, str] = {}
# Reasons of NVML for which a GPU runs below its highest clock, but for those of an idle GPU and of a user's own limit.
THROTTLE_REASONS = {
    "power cap": "nvmlClocksThrottleReasonSwPowerCap", "hardware slow-down": "nvmlClocksThrottleReasonHwSlowdown",
    "synchronized boost": "nvmlClocksThrottleReasonSyncBoost", "temperature": "nvmlClocksThrottleReasonSwThermalSlowdown",
    "hardware temperature": "nvmlClocksThrottleReasonHwThermalSlowdown", "power brake": "nvmlClocksThrottleReasonHwPowerBrakeSlowdown",
}  # fmt: skip


def count() -> int | None:
    """Counts the GPUs that CUDA shows this process; None where there is no driver, or it fails."""
    num_gpus = ctypes.c_int()
    cuda = driver()
    return None if cuda is None or cuda.cuDeviceGetCount(ctypes.byref(num_gpus)) else num_gpus.value


def pci_bus_id(index: int) -> str | None:
    """Finds the PCI bus id of the GPU with this number of CUDA, such as 0000:07:00.0; None where the driver does not know.

    It comes from the CUDA driver, which both frameworks load, since TensorFlow does not give it. No context is created.
    """
    gpu, text = ctypes.c_int(), ctypes.create_string_buffer(32)
    cuda = driver()
    failed = cuda is None or cuda.cuDeviceGet(ctypes.byref(gpu), index) or cuda.cuDeviceGetPCIBusId(text, len(text), gpu)
    return None if failed else text.value.decode()


def driver() -> ctypes.CDLL | None:
    """Loads and initializes the CUDA driver; None where there is none."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    return None if cuda.cuInit(0) else cuda


def begin() -> None:
    pynvml.nvmlInit()


def all_gpus() -> list[Handle]:
    return [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]


def with_bus_id(bus_id: str) -> Handle:
    return pynvml.nvmlDeviceGetHandleByPciBusId(bus_id)


def bytes_by_pid(gpu: Handle) -> dict[int, int]:
    return {process.pid: process.usedGpuMemory or 0 for process in pynvml.nvmlDeviceGetComputeRunningProcesses(gpu)}


def model(gpu: Handle) -> str:
    return pynvml.nvmlDeviceGetName(gpu)


def driver_version() -> str:
    return pynvml.nvmlSystemGetDriverVersion()


def capability(gpu: Handle) -> tuple[int, int]:
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(gpu)
    return major, minor


def used_bytes(gpu: Handle) -> int:
    return int(pynvml.nvmlDeviceGetMemoryInfo(gpu).used)


def free_bytes(gpu: Handle) -> int:
    return int(pynvml.nvmlDeviceGetMemoryInfo(gpu).free)


def clock_hz(gpu: Handle) -> float:
    return 1e6 * pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM)


def throttle_mask(gpu: Handle) -> int:
    return pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)


def throttle_reasons(masks: Iterable[int]) -> list[str]:
    """Lists the reasons in what `throttle_mask` has returned of GPUs."""
    masks = list(masks)
    return [name for name, constant in THROTTLE_REASONS.items() if any(mask & getattr(pynvml, constant) for mask in masks)]


def millijoules(gpu: Handle) -> int:
    """Reads the energy of a GPU since the driver was loaded. GPUs before Volta do not support it."""
    return pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu)
