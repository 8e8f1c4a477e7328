"""The C library's allocator, told to keep the memory of large buffers instead of giving it back after every step."""

import ctypes
import platform

# malloc.h: parameter numbers of mallopt(3).
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3

KEEP = {M_MMAP_THRESHOLD: 1 << 30, M_TRIM_THRESHOLD: (1 << 31) - 1, M_TOP_PAD: 64 << 20}


def keep_large_buffers():
    """Makes glibc serve buffers up to 1 GiB from memory it keeps. Returns whether it does; other C libraries go on as they were.

    Left alone, glibc maps every activation of some MiB anew, and the kernel clears its pages, at every step.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    library = ctypes.CDLL(None)
    return all(library.mallopt(ctypes.c_int(name), ctypes.c_int(value)) == 1 for name, value in KEEP.items())
