"""Configures the C library's allocator to keep the memory of large buffers between steps."""

import ctypes
import platform

# malloc.h: parameter numbers of mallopt(3).
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3

KEEP = {M_MMAP_THRESHOLD: 1 << 30, M_TRIM_THRESHOLD: (1 << 31) - 1, M_TOP_PAD: 64 << 20}


def keep_large_buffers():
    """Makes glibc serve buffers up to 1 GiB from memory that it keeps. Returns whether it does; other C libraries are not configured.

    By default glibc maps each activation of some MiB with mmap at every step, and the kernel clears its pages.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    library = ctypes.CDLL(None)
    return all(library.mallopt(ctypes.c_int(name), ctypes.c_int(value)) == 1 for name, value in KEEP.items())
