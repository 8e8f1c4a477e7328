"""Cores and GPUs: which ones a rank is bound to, and whether ranks have to share them."""

import os

from common.errors import UserError


def cores_for(allowed, local_rank, threads):
    """The cores of one rank: `threads` of the `allowed` ones, the next ones for each local rank, round and round.

    Where the launcher has left this rank no more cores than it needs, it gets just those.
    """
    allowed = sorted(allowed)
    return {allowed[(local_rank * threads + i) % len(allowed)] for i in range(threads)}


def oversubscribed(allowed, local_size, threads, total):
    """Whether the ranks of a node want more cores than it gives them."""
    bound_by_launcher = len(allowed) <= threads and len(allowed) < total
    return local_size * threads > (total if bound_by_launcher else len(allowed))


def gpu_for(num_gpus, local_rank, local_size, order, chosen):
    """The number of a rank's GPU among those it sees. `order` is local or reversed. Raises UserError where ranks would share one.

    `chosen`: the launcher has said which GPUs a rank sees. Then a single one is the rank's own.
    """
    if num_gpus < local_size and not (num_gpus == 1 and chosen):
        gpus = "1 GPU" if num_gpus == 1 else f"{num_gpus} GPUs"
        raise UserError(f"{local_size} ranks on a node with {gpus}; start at most one for each GPU, or use --device cpu")
    own = local_rank % num_gpus
    return num_gpus - 1 - own if order == "reversed" else own


def gpus_chosen(environ):
    """Whether the launcher has said which GPUs this process sees, in the variables of CUDA or ROCm."""
    return any(name in environ for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"))


def bind(cores):
    """Binds all threads that this process has, and so all it will start, to the cores."""
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), cores)
