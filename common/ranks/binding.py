"""The cores, the threads and the GPU of a rank.

Linux numbers hardware threads. Those of one physical core share its arithmetic units: a rank on each of two is not a rank on a core.

A run owns its binding and its threads, under every backend alike. Importing PyTorch loads an OpenMP library, which binds the main thread as
variables say, so `frameworks` has the cores read and the variables removed before it imports a library.
"""

import collections
import os
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from common.errors import UserError
from common.ranks.launcher_variables import Ranks

TOPOLOGY = Path("/sys/devices/system/cpu")
# By which a launcher selects them, for CUDA and ROCm.
VISIBLE_GPUS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
# It has the gpu_order of the machine file.
GPU_ORDER_VARIABLE = "TANDEM_GPU_ORDER"
INHERITED_CORES = frozenset(os.sched_getaffinity(0))
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

# What `remove_owned_variables` has removed, and the libraries that were there before it.
removed_variables: dict[str, str] = {}
_loaded_before: set[str] = set()


def core_of_threads(folder: Path = TOPOLOGY) -> dict[int, int]:
    """Maps each hardware thread of this node to its physical core, named by its first thread. Empty where Linux does not show it."""
    core_of = {}
    for path in folder.glob("cpu[0-9]*/topology/thread_siblings_list"):
        # Lists such as 0,64 and 0-1 both begin with the first thread.
        first = path.read_text().strip().partition(",")[0].partition("-")[0]
        core_of[int(path.parts[-3].removeprefix("cpu"))] = int(first)
    return core_of


def num_cores(threads: Iterable[int], core_of: Mapping[int, int]) -> int:
    """Counts the physical cores of these hardware threads."""
    return len({core_of.get(thread, thread) for thread in threads})


def cores_for(allowed: Iterable[int], local_rank: int, cores_per_rank: int, core_of: Mapping[int, int]) -> set[int]:
    """Chooses the hardware threads of a rank: each local rank gets the next `cores_per_rank` of the `allowed` ones, wrapping around.

    One of each physical core comes before the second of any. If the launcher has bound the rank to at most `cores_per_rank` cores,
    these are its cores.
    """
    num_threads_of = collections.Counter[int]()
    ordered: list[tuple[int, int]] = []
    for thread in sorted(allowed):
        core = core_of.get(thread, thread)
        ordered.append((num_threads_of[core], thread))
        num_threads_of[core] += 1
    ordered.sort()
    return {ordered[(local_rank * cores_per_rank + i) % len(ordered)][1] for i in range(cores_per_rank)}


def are_oversubscribed(
    cores_of_ranks: Iterable[Collection[int]], cores_per_rank: int, core_of: dict[int, int], quota_cores: float | None
) -> bool:
    """Returns whether ranks of a node need more physical cores than those that they run on, or than a CPU quota."""
    physical = [frozenset(core_of.get(core, core) for core in cores) for cores in cores_of_ranks]
    if quota_cores is not None and len(physical) * cores_per_rank > quota_cores:
        return True
    # Of each rank, with those beside it that have no other cores, and of all together.
    available = {*physical, frozenset().union(*physical)}
    return any(sum(cores <= shared for cores in physical) * cores_per_rank > len(shared) for shared in available)


def num_gpus_to_share(num_gpus: int | None) -> int | None:
    """Counts the GPUs for all ranks of a node, where a rank sees `num_gpus`; None if a launcher has selected the only one for it."""
    return None if num_gpus == 1 and any(name in os.environ for name in VISIBLE_GPUS) else num_gpus


def gpus_problem(num_gpus: int | None, local_size: int) -> str | None:
    """Describes in one line that a node has fewer GPUs than ranks; None where it has enough, or `num_gpus` is None."""
    if num_gpus is None or num_gpus >= local_size:
        return None
    gpus = "1 GPU" if num_gpus == 1 else f"{num_gpus} GPUs"
    return f"{local_size} ranks on a node with {gpus}; start at most one for each GPU, or use --device cpu"


def gpu_for(num_gpus: int, ranks: Ranks, may_share: bool = False) -> int:
    """Gives the index of a rank's GPU among the visible ones. Raises UserError if ranks would share a GPU, unless they may.

    A single visible GPU belongs to this rank alone if the launcher has selected it. GPU_ORDER_VARIABLE has the machine file's gpu_order.
    """
    problem = gpus_problem(num_gpus_to_share(num_gpus), ranks.local_size)
    if problem and not may_share:
        raise UserError(problem)
    index = ranks.local_rank % num_gpus
    return num_gpus - 1 - index if os.environ.get(GPU_ORDER_VARIABLE) == "reversed" else index


def numa_nodes_of(cores: Iterable[int], folder: Path = TOPOLOGY) -> list[int]:
    """Lists the NUMA nodes of hardware threads; empty where Linux shows none."""
    return sorted({int(path.name.removeprefix("node")) for core in cores for path in folder.glob(f"cpu{core}/node[0-9]*")})


def bind(cores: Collection[int]) -> None:
    """Binds all threads of this process to the cores; new threads inherit the binding."""
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), cores)


def owned_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns those of the variables that a run decides itself."""
    return {name: value for name, value in sorted(environ.items()) if BINDING.fullmatch(name) or THREADS.fullmatch(name)}


def without_owned_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that a run does not decide itself."""
    return {name: value for name, value in environ.items() if name not in owned_variables({name: value})}


def ignored_variables(further: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables of this process, with those that it has removed, and `further` ones that have no effect on a run."""
    return owned_variables({**os.environ, **removed_variables, **further})


def describe_ignored(variables: Mapping[str, str]) -> str:
    """Describes in one line that these variables have no effect."""
    return f"ignored, since a run binds its ranks and sets their threads: {', '.join(f'{name}={variables[name]}' for name in variables)}"


def remove_owned_variables() -> None:
    """Removes from the environment of this process what a run decides itself."""
    for name, value in owned_variables(os.environ).items():
        removed_variables[name] = value
        del os.environ[name]
    if removed_variables:
        _loaded_before.update(OPENMP.findall(Path("/proc/self/maps").read_text()))


def expect_unbound() -> None:
    """Raises UserError where a variable has bound this process before it could be removed: then the cores are not the launcher's."""
    names = list(filter(BINDING.fullmatch, removed_variables))
    if names and (_loaded_before or TORCHRUN in os.environ):
        cause = "the OpenMP library that LD_PRELOAD loads" if _loaded_before else "torchrun, which has bound itself and so its ranks"
        raise UserError(f"{', '.join(names)} was read by {cause}; unset it")
