"""Finds the CUDA toolkit that Horovod is built with, before anything is downloaded; prints its folder.

Standard library only: it runs before there is an environment.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

# CUDA_HOME has its libraries in one of these, as PyTorch looks for them.
FOLDERS = ("lib64", "lib")
LIBRARIES = ("libcudart.so", "libcudart_static.a")


class ToolkitError(Exception):
    """What is wrong with the CUDA toolkit and what to do, in one line."""


def toolkit(environ: Mapping[str, str], cuda: str) -> Path:
    """Returns the folder of the toolkit that CUDA_HOME names, or else of the nvcc on PATH.

    Raises ToolkitError where it has not at least the version `cuda`, such as 13.0.
    """
    remedy = f"load a module of CUDA {cuda}, or set CUDA_HOME to its folder; TANDEM_DEVICE=cpu sets up without GPUs"
    home = environ.get("CUDA_HOME")
    nvcc = shutil.which(f"{home}/bin/nvcc" if home else "nvcc", path=environ.get("PATH"))
    if nvcc is None:
        raise ToolkitError(f"{f'CUDA_HOME is {home!r}, which has' if home else 'there is'} no nvcc; {remedy}")
    release = re.search(r"release (\d+)\.(\d+)", output_of(nvcc, "--version"))
    if release is None:
        raise ToolkitError(f"{nvcc} --version tells no release of CUDA; {remedy}")
    installed, needed = tuple(map(int, release.groups())), tuple(map(int, cuda.split(".")))
    if installed[0] != needed[0] or installed < needed:
        raise ToolkitError(f"{nvcc} is of CUDA {installed[0]}.{installed[1]}, and this PyTorch of CUDA {cuda}; {remedy}")
    # nvcc on PATH may be a link or a script anywhere. It prints the folder that it takes headers from.
    top = re.search(r"^#\$ TOP=(.+)$", output_of(nvcc, "--dryrun", "x.cu"), re.MULTILINE)
    folder = Path(home or (top and top[1]) or Path(nvcc).resolve().parents[1]).resolve()
    if not (folder / "include/cuda_runtime.h").exists():
        raise ToolkitError(f"the CUDA toolkit {folder} lacks include/cuda_runtime.h; {remedy}")
    for library in LIBRARIES:
        if not any((folder / name / library).exists() for name in FOLDERS):
            raise ToolkitError(f"the CUDA toolkit {folder} lacks {FOLDERS[0]}/{library}; {remedy}")
    return folder


def output_of(*command: str) -> str:
    """Returns the output of a program; empty if it cannot be started."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout + done.stderr


def main() -> None:
    parser = argparse.ArgumentParser(description="Finds the CUDA toolkit that Horovod is built with, and prints its folder.")
    parser.add_argument("cuda", help="the CUDA version of PyTorch's wheel, pinned in environment.yml")
    try:
        print(toolkit(os.environ, parser.parse_args().cuda))
    except ToolkitError as error:
        print(f"setup: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
