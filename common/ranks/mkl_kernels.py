"""The kernels of Intel's MKL, which computes the matrix products of PyTorch on CPUs.

MKL takes its kernels for AVX2 on a processor that is not Intel's, also where that has AVX-512: its function `mkl_serv_intel_cpu_true` asks
for the vendor. Where a library that is loaded before PyTorch has a function of this name, which says yes, MKL takes the kernels for the
instruction sets that the processor has.

PyTorch documents another way, `torch.backends.mkldnn.matmul.fp32_precision = "bf16"`. oneDNN then computes the products, in float32 on a
processor without AMX. It is not used, since the small products of `scaled_dot_product_attention` take ten times as long by it, and those of
a processor with AMX would be rounded to bfloat16.
"""

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from common.declarations import SHELL_PYTHON
from common.errors import UserError

LIBRARY = Path(sys.prefix) / "lib" / "libtandemmkl.so"
FUNCTION = "mkl_serv_intel_cpu_true"


def load(arguments: Iterable[str]) -> None:
    """Loads the library where a command line has --mkl-kernels fast.

    `frameworks` calls this before it imports PyTorch, which is before the command line is parsed.
    """
    if "--mkl-kernels fast" in " ".join(arguments).replace("=", " ").replace("_", "-") and LIBRARY.exists():
        # The loader searches the global scope before the libraries of PyTorch, which are not in it.
        ctypes.CDLL(str(LIBRARY), mode=ctypes.RTLD_GLOBAL)


def problem() -> str | None:
    """Returns why no run of this environment can have --mkl-kernels fast; None if it can."""
    build = f"{SHELL_PYTHON} -m common.ranks.mkl_kernels"
    return None if LIBRARY.exists() else f"{LIBRARY} is not built; run {build} on a node with a compiler"


def expect_loaded() -> None:
    """Raises UserError where the library is not loaded in this process."""
    if not hasattr(ctypes.CDLL(None), FUNCTION):
        raise UserError("--mkl-kernels fast takes effect before PyTorch is imported; give it to python -m frameworks.BACKEND")


def build() -> int:
    """Compiles the library, which needs no other one, and returns the exit status of the compiler."""
    command = [os.environ.get("CXX", "g++"), "-x", "c", "-O2", "-fPIC", "-shared", "-nostdlib", "-o", LIBRARY, "-"]
    return subprocess.run(command, input=f"int {FUNCTION}(void) {{ return 1; }}\n", text=True, check=False).returncode


if __name__ == "__main__":
    sys.exit(build())
