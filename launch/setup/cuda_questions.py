"""Answers a question about the libraries for GPUs, as a line of JSON: python -m launch.setup.cuda_questions QUESTION ARGUMENT…"""

import ctypes
import importlib
import json
import sys
from pathlib import Path


def horovod(framework: str, nccl: str) -> tuple[bool, int, int, int]:
    """Returns whether Horovod for a framework has CUDA, the NCCL that it is built with, the loaded one, and how many copies are loaded.

    `nccl` is the name of NCCL's file.
    """
    hvd = importlib.import_module(f"horovod.{framework}")
    version = ctypes.c_int()
    if hvd.nccl_built():
        ctypes.CDLL(nccl).ncclGetVersion(ctypes.byref(version))
    loaded = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if f"/{nccl}" in line}
    return hvd.cuda_built(), hvd.nccl_built(), version.value, len(loaded)


def nccl_of_pytorch() -> tuple[object, ...]:
    """Returns the version of the NCCL that PyTorch loads."""
    from torch.cuda import nccl

    return nccl.version()


def load(library: str) -> None:
    """Loads a library. Raises OSError where it is not found."""
    ctypes.CDLL(library)


if __name__ == "__main__":
    print(json.dumps({"horovod": horovod, "nccl_of_pytorch": nccl_of_pytorch, "load": load}[sys.argv[1]](*sys.argv[2:])))
