"""The cores and the GPU of a rank.

Linux numbers hardware threads. Those of one physical core share its arithmetic units: a rank on each of two is not a rank on a core.
"""

import collections
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from common.errors import UserError
from common.process.ranks import Ranks

TOPOLOGY = Path("/sys/devices/system/cpu")
# By which a launcher selects them, for CUDA and ROCm.
VISIBLE_GPUS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
# It has the gpu_order of the machine file.
GPU_ORDER_VARIABLE = "TANDEM_GPU_ORDER"


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


def numa_nodes(threads: Iterable[int], folder: Path = TOPOLOGY) -> list[int] | None:
    """Lists the NUMA nodes of these hardware threads, sorted; None where Linux does not show them."""
    nodes = {int(path.name.removeprefix("node")) for thread in threads for path in folder.glob(f"cpu{thread}/node[0-9]*")}
    return sorted(nodes) or None


def cores_for(allowed: Iterable[int], local_rank: int, cores_per_rank: int, core_of: Mapping[int, int]) -> set[int]:
    """Chooses the hardware threads of a rank: each local rank gets the next `cores_per_rank` of the `allowed` ones, wrapping around.

    One of each physical core comes before the second of any. If the launcher has bound the rank to at most `cores_per_rank` cores,
    these are its cores.
    """
    seen = collections.Counter[int]()
    ordered: list[tuple[int, int]] = []
    for thread in sorted(allowed):
        core = core_of.get(thread, thread)
        ordered.append((seen[core], thread))
        seen[core] += 1
    ordered.sort()
    return {ordered[(local_rank * cores_per_rank + i) % len(ordered)][1] for i in range(cores_per_rank)}


def oversubscribed(
    allowed: Collection[int], local_size: int, cores_per_rank: int, total: int, core_of: Mapping[int, int], quota_cores: float | None = None
) -> bool:
    """Decides whether the ranks of a node need more physical cores than are available to them; the node has `total`.

    A CPU quota counts as that many cores. A rank with fewer cores than it needs is oversubscribed, as where a launcher has counted the
    hardware threads of a core.
    """
    num_allowed = num_cores(allowed, core_of)
    if num_allowed < cores_per_rank:
        return True
    bound_by_launcher = num_allowed == cores_per_rank < total
    num_available = total if bound_by_launcher else num_allowed
    return local_size * cores_per_rank > (num_available if quota_cores is None else min(num_available, quota_cores))


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


def bind(cores: Collection[int]) -> None:
    """Binds all threads of this process to the cores; new threads inherit the binding."""
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), cores)
