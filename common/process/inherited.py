"""What this process was started with: the cores that it may run on, and variables that would bind its threads or set their number.

A run owns its binding and its threads, under every backend alike. Importing PyTorch loads an OpenMP library, which binds the main thread as
these variables say, so `frameworks` has the cores read and the variables removed before it imports a library.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from common.errors import UserError

CORES = frozenset(os.sched_getaffinity(0))
# Of OpenMP libraries (GNU, Intel, LLVM), of the libraries of linear algebra, of TensorFlow, and of threads that communicate.
BINDING = re.compile(
    r"OMP_(PLACES|PROC_BIND)|GOMP_CPU_AFFINITY|KMP_(AFFINITY|HW_SUBSET|PLACE_THREADS)"
    r"|HOROVOD_THREAD_AFFINITY|MPIR_CVAR_PROGRESS_THREAD_AFFINITY|I_MPI_ASYNC_PROGRESS_PIN"
)
THREADS = re.compile(
    r"OMP_(DYNAMIC|THREAD_LIMIT|NESTED|MAX_ACTIVE_LEVELS)|KMP_(ALL_THREADS|MAX_THREADS|DEVICE_THREAD_LIMIT|DYNAMIC_MODE)"
    r"|MKL_((DOMAIN_)?NUM_THREADS|DYNAMIC)|(OPENBLAS|GOTO|BLIS|NUMEXPR)_NUM_THREADS|NUMEXPR_MAX_THREADS|TF_NUM_INT(RA|ER)OP_THREADS"
)
OPENMP = re.compile(r"/lib(gomp|iomp5|omp)\b")
TORCHRUN = "TORCHELASTIC_RUN_ID"

# What `remove` has removed, and the libraries that were there before it.
removed: dict[str, str] = {}
_loaded_before: set[str] = set()


def owned(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns those of the variables that a run decides itself."""
    return {name: value for name, value in sorted(environ.items()) if BINDING.fullmatch(name) or THREADS.fullmatch(name)}


def without_owned(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that a run does not decide itself."""
    return {name: value for name, value in environ.items() if name not in owned({name: value})}


def describe(variables: Mapping[str, str]) -> str:
    """Describes in one line that these variables have no effect."""
    return f"ignored, since a run binds its ranks and sets their threads: {', '.join(f'{name}={variables[name]}' for name in variables)}"


def remove() -> None:
    """Removes from the environment of this process what a run decides itself."""
    for name, value in owned(os.environ).items():
        removed[name] = value
        del os.environ[name]
    if removed:
        _loaded_before.update(OPENMP.findall(Path("/proc/self/maps").read_text()))


def expect_unbound() -> None:
    """Raises UserError where a variable has bound this process before it could be removed: then the cores are not the launcher's."""
    names = list(filter(BINDING.fullmatch, removed))
    if names and (_loaded_before or TORCHRUN in os.environ):
        cause = "the OpenMP library that LD_PRELOAD loads" if _loaded_before else "torchrun, which has bound itself and so its ranks"
        raise UserError(f"{', '.join(names)} was read by {cause}; unset it")
