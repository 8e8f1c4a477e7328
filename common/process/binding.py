"""The cores and the GPU of a rank."""

import os

from common.errors import UserError


def cores_for(allowed, local_rank, threads):
    """The cores of a rank: the next `threads` of the `allowed` cores for each local rank, wrapping around.

    If the launcher has bound the rank to at most `threads` cores, these are its cores.
    """
    allowed = sorted(allowed)
    return {allowed[(local_rank * threads + i) % len(allowed)] for i in range(threads)}


def oversubscribed(allowed, local_size, threads, total):
    """Whether the ranks of a node need more cores than are available to them."""
    bound_by_launcher = len(allowed) <= threads and len(allowed) < total
    return local_size * threads > (total if bound_by_launcher else len(allowed))


def gpu_for(num_gpus, local_rank, local_size, order, chosen):
    """The index of a rank's GPU among the visible ones. Raises UserError if ranks would share a GPU.

    `order`: local or reversed. `chosen`: the launcher has selected the visible GPUs; a single one is then the rank's own.
    """
    if num_gpus < local_size and not (num_gpus == 1 and chosen):
        gpus = "1 GPU" if num_gpus == 1 else f"{num_gpus} GPUs"
        raise UserError(f"{local_size} ranks on a node with {gpus}; start at most one for each GPU, or use --device cpu")
    own = local_rank % num_gpus
    return num_gpus - 1 - own if order == "reversed" else own


def gpus_chosen(environ):
    """Whether the launcher has selected the visible GPUs through the variables of CUDA or ROCm."""
    return any(name in environ for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"))


def bind(cores):
    """Binds all threads of this process to the cores; new threads inherit the binding."""
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), cores)
