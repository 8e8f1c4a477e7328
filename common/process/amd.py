"""AMD's GPUs, for common/process/gpus.py, from what Linux shows of them in sysfs (amdkfd and amdgpu). None has been used yet.

PyTorch for ROCm says which one a rank has. Energy and the reasons for a low clock are not in files of one number and stay unknown.
"""

import importlib.util
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, NoReturn

NODES, PROCESSES = Path("/sys/class/kfd/kfd/topology/nodes"), Path("/sys/class/kfd/kfd/proc")
PCI, DRIVER = Path("/sys/bus/pci/devices"), Path("/sys/module/amdgpu/version")
NEVER_RUN: str | None = "Tandem has never run on AMD GPUs: what it records of them is not tested"
REFUSED_PRECISIONS = {"tf32": "tf32 is of NVIDIA GPUs; use --precision fp32"}
HIP_VERSION = re.compile(r"^hip\b.*= *['\"]", re.MULTILINE)


class Unknown(Exception):
    """What Linux does not show of a GPU."""


class Handle(NamedTuple):
    """A GPU as Linux numbers it, with its PCI bus id and its architecture, such as 90010 for gfx90a."""

    number: int
    bus_id: str
    architecture: int


def is_pytorch_for_rocm(torch_version: Path | None = None) -> bool:
    """Tells whether the PyTorch of this environment is for AMD GPUs, without importing it: by its file version.py."""
    if torch_version is None:
        spec = importlib.util.find_spec("torch")
        if spec is None or not spec.origin:
            return False
        torch_version = Path(spec.origin).with_name("version.py")
    try:
        return HIP_VERSION.search(torch_version.read_text()) is not None
    except OSError:
        return False


def count() -> int | None:
    """Counts the GPUs that HIP shows a process with the variables of this one; None where Linux shows none."""
    num_gpus = len(all_gpus())
    return num_visible(num_gpus, os.environ) if num_gpus else None


def num_visible(num_gpus: int, environ: Mapping[str, str]) -> int:
    """Counts those of `num_gpus` GPUs that variables leave visible.

    ROCr reads ROCR_VISIBLE_DEVICES first. Among what that leaves, HIP reads HIP_VISIBLE_DEVICES, else CUDA_VISIBLE_DEVICES; to it an empty
    one is not set. Both leave out what follows an invalid number (rocm.docs.amd.com, "GPU isolation techniques"; ROCclr, rocdevice.cpp).
    """
    if "ROCR_VISIBLE_DEVICES" in environ:
        num_gpus = _num_valid(environ["ROCR_VISIBLE_DEVICES"], num_gpus)
    of_hip = environ.get("HIP_VISIBLE_DEVICES") or environ.get("CUDA_VISIBLE_DEVICES")
    return _num_valid(of_hip, num_gpus) if of_hip else num_gpus


def _num_valid(names: str, num_gpus: int) -> int:
    """Counts the GPUs in a list of numbers and UUIDs up to the first invalid number. No UUID is looked up."""
    valid: set[str] = set()
    for name in map(str.strip, names.split(",")):
        if not name.startswith("GPU-") and not (name.isdecimal() and int(name) < num_gpus):
            break
        valid.add(name)
    return min(len(valid), num_gpus)


def pci_bus_id(index: int) -> str | None:
    """Returns None: only PyTorch, which gives its Device the PCI bus id, knows the number of a GPU after all variables."""


def begin() -> None:
    pass


def all_gpus() -> list[Handle]:
    """Lists the GPUs of this node that the process may use, in the order of Linux."""
    return list(_gpus())


def _gpus() -> Iterator[Handle]:
    for folder in sorted(NODES.glob("[0-9]*"), key=lambda folder: int(folder.name)):
        try:
            # A control group may forbid to read it. It is 0 for processors.
            number = _number(folder / "gpu_id")
            properties = dict(line.split(maxsplit=1) for line in (folder / "properties").read_text().splitlines())
            domain, location, architecture = (int(properties[name]) for name in ("domain", "location_id", "gfx_target_version"))
        except (OSError, ValueError, KeyError, Unknown):
            continue
        if number:
            # The location has the number of a partition of a GPU too, in higher bits or in place of the function, which is 0.
            bus_id = f"{domain:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.0"
            yield Handle(number, bus_id, architecture)


def with_bus_id(bus_id: str) -> Handle:
    for gpu in _gpus():
        if gpu.bus_id == bus_id:
            return gpu
    raise Unknown(bus_id)


def bytes_by_pid(gpu: Handle) -> dict[int, int]:
    """Returns the bytes that processes of ROCm have on a GPU."""
    paths = PROCESSES.glob(f"[0-9]*/vram_{gpu.number}")
    sizes_bytes = {int(path.parent.name): _number_or_zero(path) for path in paths}
    return {pid: size_bytes for pid, size_bytes in sizes_bytes.items() if size_bytes}


def model(gpu: Handle) -> str:
    """Names the architecture of a GPU, as compilers do: the version, and minor version and stepping in hexadecimal."""
    major, minor, stepping = gpu.architecture // 10000, gpu.architecture // 100 % 100, gpu.architecture % 100
    return f"AMD gfx{major}{minor:x}{stepping:x}"


def driver_version() -> str:
    """Returns the version of AMD's own driver. Linux's has none."""
    try:
        return DRIVER.read_text().strip()
    except OSError as problem:
        raise Unknown(DRIVER) from problem


def capability(_: Handle) -> NoReturn:
    raise Unknown("compute capabilities are of NVIDIA's GPUs")


def used_bytes(gpu: Handle) -> int:
    return _number(PCI / gpu.bus_id / "mem_info_vram_used")


def free_bytes(gpu: Handle) -> int:
    return _number(PCI / gpu.bus_id / "mem_info_vram_total") - used_bytes(gpu)


def clock_hz(gpu: Handle) -> float:
    for path in sorted((PCI / gpu.bus_id / "hwmon").glob("hwmon*/freq1_input")):
        return _number(path)
    raise Unknown("freq1_input")


def throttle_mask(_: Handle) -> NoReturn:
    raise Unknown("reasons for a low clock")


def throttle_reasons(_: Iterable[int]) -> list[str]:
    return []


def millijoules(_: Handle) -> NoReturn:
    raise Unknown("energy")


def _number(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError) as problem:
        raise Unknown(path) from problem


def _number_or_zero(path: Path) -> int:
    """Reads the number in a file of a process, which may have ended."""
    try:
        return _number(path)
    except Unknown:
        return 0
