"""The memory of this node: bytes that are free, also on its GPUs, and how the C library keeps them for this process."""

import ctypes
import platform

import psutil

from common.process import control_groups, gpus

# malloc.h: parameter numbers of mallopt(3).
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
KEEP = {M_MMAP_THRESHOLD: 1 << 30, M_TRIM_THRESHOLD: (1 << 31) - 1, M_TOP_PAD: 64 << 20}


def available() -> float:
    """Computes the bytes that processes of this node can still have, by its memory and the limits of all control groups of this process."""
    return min([psutil.virtual_memory().available, *(memory.room_bytes for memory in control_groups.memories())])


def total() -> int:
    """Computes the bytes of this node, or the smallest limit of this process's control groups where that is less."""
    return min([psutil.virtual_memory().total, *(memory.limit_bytes for memory in control_groups.memories())])


def available_on_gpu() -> float:
    """Reads the bytes that are free on the GPU of this node with most free memory; infinite where that is not known."""
    return max(gpus.free_bytes(), default=float("inf"))


def keep_large_buffers() -> bool:
    """Makes glibc serve buffers up to 1 GiB from memory that it keeps. Returns whether it does so; other C libraries are not configured.

    By default glibc maps each activation of some MiB with mmap at every step, and the kernel clears its pages.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    library = ctypes.CDLL(None)
    return all(library.mallopt(ctypes.c_int(name), ctypes.c_int(value)) == 1 for name, value in KEEP.items())
