"""Prints, in a line for each framework, the libraries for GPUs in this environment; exit status 1 if Horovod lacks something.

The machine needs no GPU. Each question is asked in a process of its own, python -m launch.setup.check_cuda QUESTION ARGUMENT…, where no
library is found only because another framework has loaded it before.
"""

import ctypes
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

FRAMEWORKS = {"PyTorch": "torch", "TensorFlow": "tensorflow"}
# A process must have one copy of this library: two would not know of each other's communicators.
NCCL = "libnccl.so.2"
# A line of the loader (ld.so(8), LD_DEBUG): the library from which Horovod takes a function of the CUDA runtime, where it does not have it.
CUDA_BINDING = re.compile(r"binding file .+/horovod/.+ \[0\] to (.+) \[0\]: normal symbol `(?:__)?cuda")
# Horovod for TensorFlow has the runtime inside.
CUDA_RUNTIMES: dict[str, set[str]] = {"PyTorch": {"libcudart.so.13"}, "TensorFlow": set()}
# The libraries that TensorFlow 2.21 loads for a GPU; without the NVIDIA driver it does not try.
OF_TENSORFLOW = (
    *("libcudart.so.12", "libcublas.so.12", "libcublasLt.so.12", "libcufft.so.11", "libcusolver.so.11", "libcusparse.so.12"),
    *("libcudnn.so.9", "libcupti.so.12", NCCL),
)


def ask(question: str, *arguments: str, **variables: str) -> tuple[str, str]:
    """Returns (output, last line of the error) of one of QUESTIONS."""
    command = [sys.executable, "-m", "launch.setup.check_cuda", question, *arguments]
    process = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)
    return process.stdout, (process.stderr.strip().splitlines() or ["it ended without a word"])[-1] if process.returncode else ""


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


QUESTIONS = {"horovod": horovod, "nccl_of_pytorch": nccl_of_pytorch, "load": load}


def of_horovod(framework: str, nccl_of_pytorch: int) -> tuple[str, bool]:
    """Returns (line, whether all is well) of the Horovod for a framework."""
    with tempfile.TemporaryDirectory() as folder:
        printed, error = ask("horovod", FRAMEWORKS[framework], NCCL, LD_DEBUG="bindings", LD_DEBUG_OUTPUT=f"{folder}/bindings")
        libraries = {Path(match[1]).resolve() for path in Path(folder).iterdir() for match in CUDA_BINDING.finditer(path.read_text())}
    # Those of another folder than the environment's are shown by their paths.
    runtimes = {library.name if library.is_relative_to(Path(sys.prefix).resolve()) else str(library) for library in libraries}
    if error:
        return f"it cannot be imported: {error}", False
    has_cuda, built, loaded_version, num_loaded = json.loads(printed.splitlines()[-1])
    versions = f"NCCL {loaded_version} is loaded, PyTorch has {nccl_of_pytorch}; in one process {num_loaded} {NCCL}"
    runtime = ", ".join(sorted(runtimes)) or ("its own" if has_cuda else "none")
    line = f"cuda_built() {has_cuda}, nccl_built() {built}; {versions}; CUDA runtime: {runtime}"
    is_one_nccl = built == loaded_version == nccl_of_pytorch and num_loaded == 1
    return line, has_cuda and is_one_nccl and runtimes == CUDA_RUNTIMES[framework]


def errors_of_tensorflow() -> dict[str, str]:
    """Returns the error of each library that TensorFlow loads for a GPU and does not find where it looks for it, by name."""
    tensorflow = find_spec("tensorflow")
    libraries = Path(tensorflow.origin).parents[1].glob("nvidia/*/lib") if tensorflow and tensorflow.origin else ()
    # In NVIDIA's wheels for CUDA 12 each library has a folder; cu13 has all of CUDA 13, some under the same names.
    folders = [str(path) for path in libraries if path.parent.name != "cu13"]
    path = os.pathsep.join([*folders, os.environ.get("LD_LIBRARY_PATH", "")])
    errors = {name: ask("load", name, LD_LIBRARY_PATH=path)[1] for name in OF_TENSORFLOW}
    return {name: error.removeprefix("OSError: ") for name, error in errors.items() if error}


def main() -> int:
    def say(text: str) -> None:
        print(f"setup:         {text}", flush=True)

    printed, error = ask("nccl_of_pytorch")
    major, minor, patch = json.loads(printed) if not error else (0, 0, 0)
    all_well = True
    for framework in FRAMEWORKS:
        line, is_well = of_horovod(framework, 10000 * major + 100 * minor + patch)
        say(f"Horovod for {framework}: {line}")
        all_well &= is_well
    errors = errors_of_tensorflow()
    say("; ".join([f"TensorFlow: {len(OF_TENSORFLOW) - len(errors)} of {len(OF_TENSORFLOW)} CUDA libraries load", *errors.values()]))
    return 0 if all_well else 1


if __name__ == "__main__":
    if sys.argv[1:]:
        print(json.dumps(QUESTIONS[sys.argv[1]](*sys.argv[2:])))
    else:
        sys.exit(main())
