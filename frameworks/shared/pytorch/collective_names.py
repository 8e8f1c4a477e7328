"""What PyTorch's profiler calls collectives, without an import of PyTorch."""

import re

# In Gloo's threads, in the communication hook over MPI, and on the GPU.
LIBRARIES = {"gloo:": "Gloo", "mpi:": "MPI"}
NCCL_KERNEL = re.compile(r"nccl(Dev)?Kernel", re.IGNORECASE)


def library_of(name: str) -> str | None:
    """Returns the library of a collective on the CPU; None for any other event."""
    return next((library for start, library in LIBRARIES.items() if name.startswith(start)), None)


def is_collective(name: str) -> bool:
    """Returns whether an event is a collective itself, not a call that starts one."""
    return library_of(name) is not None or NCCL_KERNEL.search(name) is not None
