"""Builds the library with which MKL chooses its kernels by the processor's instruction sets, and prints its path.

python -m launch.setup.build_mkl_kernels
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from common.ranks import mkl_kernels

SOURCE = f"int {mkl_kernels.FUNCTION}(void) {{ return 1; }}\n"
# The library needs no other one.
FLAGS = ("-x", "c", "-O2", "-fPIC", "-shared", "-nostdlib")


def build(library: Path = mkl_kernels.LIBRARY, compiler: str = os.environ.get("CXX", "g++")) -> Path:
    """Builds the library and returns its path. Exits with status 1 and a message where it cannot be compiled."""
    with tempfile.TemporaryDirectory(prefix="mkl-", dir=library.parent) as folder:
        built = Path(folder, library.name)
        try:
            process = subprocess.run([compiler, *FLAGS, "-o", built, "-"], input=SOURCE, capture_output=True, text=True, check=False)
        except OSError as error:
            sys.exit(f"error: {compiler} could not be started ({error.strerror}); set CXX to a compiler")
        if process.returncode:
            sys.exit(f"error: {compiler} could not compile {library.name}: {(process.stderr.splitlines() or ['it gave no reason'])[0]}")
        os.replace(built, library)
    return library


if __name__ == "__main__":
    print(build())
