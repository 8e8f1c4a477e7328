"""A run that is out of memory, in words: errors of the frameworks, and processes that the kernel killed."""

import errno
import re
from pathlib import Path

import numpy as np

from common import units

SIGNS = re.compile(r"can(?:'t|not) allocate memory|out of memory|OOM when allocating|bad_alloc|ALLOC_FAILED", re.IGNORECASE)
# PyTorch on CPUs reports bytes; on GPUs, like NumPy, a rounded number of larger units. TensorFlow reports the shape.
ASKED_SIZE = re.compile(r"(?:tried to allocate|Unable to allocate) (\d+(?:\.\d+)?)(?: bytes|( [KMGT]iB))", re.IGNORECASE)
ASKED_SHAPE = re.compile(r"OOM when allocating tensor with shape\[([\d,]*)\] and type (\w+)")
BITS_OF_TYPE = {"float": 32, "double": 64, "half": 16, "bool": 8}
HELP = "--recompute, a smaller --batch-size, or fsdp on several ranks would need less"
VMSTAT = Path("/proc/vmstat")


def describe(problem: BaseException) -> str | None:
    """Describes in one line an exception that means that memory is exhausted, with the bytes requested; None for any other exception."""
    text = str(problem)
    exhausted = isinstance(problem, MemoryError) or getattr(problem, "errno", None) == errno.ENOMEM
    if not exhausted and not SIGNS.search(text):
        return None
    size_bytes = asked_bytes(text)
    size = "" if size_bytes is None else f", {size_bytes:,} bytes ({size_bytes / 2**30:.2f} GiB) more were asked for"
    return f"out of {'GPU memory' if re.search('CUDA|GPU', text, re.IGNORECASE) else 'memory'}{size}; {HELP}"


def asked_bytes(text: str) -> int | None:
    """Finds the requested bytes in the message of an allocator, as exactly as they stand there; None where there are none."""
    if (match := ASKED_SIZE.search(text)) and (size_bytes := units.size_bytes(match[1] + (match[2] or ""))) is not None:
        return round(size_bytes)
    if not (match := ASKED_SHAPE.search(text)):
        return None
    bits = BITS_OF_TYPE.get(match[2]) or int(re.sub(r"\D", "", match[2]) or 0)
    return int(np.prod([int(size) for size in match[1].split(",") if size], dtype=object)) * bits // 8 or None


def num_kills(path: Path = VMSTAT) -> int | None:
    """Counts the processes that the kernel's OOM killer has ended on this node since boot, also within cgroups; None if not known."""
    try:
        match = re.search(r"^oom_kill (\d+)$", path.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(match[1]) if match else None
