"""The processor of this node, by which libraries choose their kernels, as Linux shows it."""

import contextlib
import os
import re
import subprocess
from pathlib import Path

from common.process.binding import TOPOLOGY
from common.record.parts import Processor

CPUINFO = Path("/proc/cpuinfo")
KIB = 1024


def describe(cpu: int, hypervisor: str | None) -> Processor:
    """Describes the processor, with the cache and the governor of a hardware thread; None for what Linux does not show."""
    cache = _level_3(TOPOLOGY / f"cpu{cpu}" / "cache")
    size = cache and _text(cache / "size")
    return Processor(
        vendor=cpuinfo("vendor_id|CPU implementer"),
        family=_number(cpuinfo("cpu family|CPU architecture")),
        model=_number(cpuinfo("model|CPU part")),
        stepping=_number(cpuinfo("stepping|CPU revision")),
        l3_bytes=KIB * int(size.removesuffix("K")) if size and re.fullmatch(r"\d+K", size) else None,
        l3_shared_by=cache and _text(cache / "shared_cpu_list"),
        hypervisor=hypervisor,
        governor=_text(TOPOLOGY / f"cpu{cpu}" / "cpufreq" / "scaling_governor"),
    )


def cpuinfo(keys: str) -> str | None:
    """Reads a value of the first processor from /proc/cpuinfo; None where it is not there. `keys`: a regular expression."""
    match = re.search(rf"^(?:{keys})\s*: (.*)", _text(CPUINFO) or "", re.MULTILINE)
    return match[1] if match else None


def hypervisor() -> str | None:
    """Asks lscpu for the hypervisor under which this node runs, such as KVM; None on none, and without lscpu."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        output = subprocess.run(["lscpu"], env=os.environ | {"LC_ALL": "C"}, capture_output=True, text=True, check=True, timeout=10).stdout
        match = re.search(r"^Hypervisor vendor: *(.*)", output, re.MULTILINE)
        return match[1] if match else None
    return None


def _level_3(folder: Path) -> Path | None:
    return next((path for path in sorted(folder.glob("index[0-9]*")) if _text(path / "level") == "3"), None)


def _number(text: str | None) -> int | None:
    """Reads a number, decimal or, on Arm, as 0x41."""
    with contextlib.suppress(ValueError, TypeError):
        return int(text or "", 0)
    return None


def _text(path: Path) -> str | None:
    with contextlib.suppress(OSError):
        return path.read_text().strip() or None
    return None
