"""The software and the hardware of this process, for the record of its run."""

import contextlib
import os
import platform
import re
import socket
import subprocess
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pynvml

from common.declarations import ROOT
from common.ranks import binding, gpus, machine, mpi
from common.ranks.gpus import Device
from common.record.parts import Environment, Gpu, Processor

PACKAGES = ("torch", "tensorflow-cpu", "tensorflow", "tf-keras", "horovod", "deepspeed", "mpi4py", "mpich", "numpy", "h5py")
# Variables that affect a run. Names of people, projects and keys are not recorded.
ENVIRONMENT = re.compile(
    r"(OMP|GOMP|KMP|MKL|ONEDNN|DNNL|ATEN|OPENBLAS|HOROVOD|NCCL|GLOO|MPICH|MPIR_CVAR|I_MPI|FI|UCX|MALLOC|TORCH|TORCHINDUCTOR|CUDA|DS|HDF5"
    r"|HIP|HSA|MIOPEN|RCCL|ROCR|TF_(CPP|DETERMINISTIC|ENABLE|FORCE|GPU|NUM|USE|XLA))_[A-Z0-9_]+|LD_PRELOAD"
)
CPUINFO = Path("/proc/cpuinfo")
VECTOR_FLAGS = re.compile(r"sse4_[12]|f16c|fma|avx\w*|amx_\w+|asimd\w*|sve\w*|sme\w*|bf16|i8mm|altivec|vsx")


def instruction_sets() -> list[str] | None:
    """Lists the instruction sets of the processor, by which libraries choose their kernels; None where they are not known."""
    flags = cpuinfo("flags|Features")
    return sorted(filter(VECTOR_FLAGS.fullmatch, flags.split())) if flags else None


def describe(of_record: bool = True) -> Environment:
    """Collects versions, machine, commit and whitelisted variables. Only a rank that writes a record starts programs: git and lscpu."""
    return Environment(
        python=platform.python_version(),
        packages=dict(_versions()),
        mpi=None,
        host=socket.gethostname(),
        os=platform.platform(),
        cpu=cpuinfo("model name") or platform.processor() or platform.machine(),
        processor=describe_processor(hypervisor() if of_record else None),
        instruction_sets=instruction_sets(),
        num_cores=binding.num_cores(range(os.cpu_count() or 1), binding.core_of_threads()),
        quota_cores=machine.quota_cores(),
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        git_commit=_git("rev-parse", "HEAD") if of_record else None,
        git_changed=of_record and bool(_git("status", "--porcelain", "--untracked-files=no")),
        variables=recorded(os.environ),
    )


def describe_gpu(device: Device) -> Gpu | None:
    """Describes the GPU of a device and its software; None on a CPU."""
    if device.gpu is None:
        return None
    bus_id = gpus.pci_bus_id(device.gpu)
    return Gpu(
        model=gpus.read_of_gpu(bus_id, pynvml.nvmlDeviceGetName),
        pci_bus_id=bus_id,
        driver=gpus.driver_version(),
        cuda=device.cuda,
        cudnn=device.cudnn,
        nccl=device.nccl,
    )


def recorded(variables: Mapping[str, str]) -> dict[str, str]:
    """Returns those of the variables that affect a run."""
    return {name: variables[name] for name in sorted(variables) if ENVIRONMENT.fullmatch(name)}


def mpi_library() -> str | None:
    """Names the MPI library of this process with its version; None without MPI."""
    try:
        return mpi.loaded().Get_library_version().split("\n")[0].strip("\0 ")
    except (ImportError, RuntimeError):
        return None


def _versions() -> Iterator[tuple[str, str]]:
    """Yields the name and the version of those PACKAGES that are installed."""
    for name in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            yield name, version(name)


def _git(*arguments: str) -> str | None:
    """Runs git in this checkout and gives its output; None where it fails or prints nothing."""
    command = ["git", "--no-optional-locks", "-C", ROOT, *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() or None
    except (OSError, subprocess.CalledProcessError):
        return None


def describe_processor(hypervisor: str | None) -> Processor:
    """Describes the processor; None for what Linux does not show."""
    return Processor(
        vendor=cpuinfo("vendor_id|CPU implementer"),
        family=_number(cpuinfo("cpu family|CPU architecture")),
        model=_number(cpuinfo("model|CPU part")),
        hypervisor=hypervisor,
    )


def cpuinfo(keys: str) -> str | None:
    """Reads a value of the first processor from /proc/cpuinfo; None where it is not there. `keys`: a regular expression."""
    with contextlib.suppress(OSError):
        match = re.search(rf"^(?:{keys})\s*: (.*)", CPUINFO.read_text(), re.MULTILINE)
        return match[1] if match else None
    return None


def hypervisor() -> str | None:
    """Asks lscpu for the hypervisor under which this node runs, such as KVM; None on none, and without lscpu."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        output = subprocess.run(["lscpu"], env=os.environ | {"LC_ALL": "C"}, capture_output=True, text=True, check=True, timeout=10).stdout
        match = re.search(r"^Hypervisor vendor: *(.*)", output, re.MULTILINE)
        return match[1] if match else None
    return None


def _number(text: str | None) -> int | None:
    """Reads a number, decimal or, on Arm, as 0x41."""
    with contextlib.suppress(ValueError, TypeError):
        return int(text or "", 0)
    return None
