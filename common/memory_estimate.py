"""An estimate of the memory that a run needs, made before it starts: a run is refused where even that is more than there is.

It counts what a run has when it starts from its initial parameters: parameters, gradients and optimizer state, by the backend's way of
sharing them, and on each rank the initial parameters, which are drawn whole in main memory. Activations, the buckets of a library and the
programs themselves are left out, so a run that is not refused may still need more than there is. TensorFlow has no gradients at this point,
and its activations beside them later.
"""

from common import parallelism, sharing
from common.errors import UserError
from common.process import node_memory
from common.step_breakdown import gradient_bytes

GB = 1e9


def state_bytes(name, settings, num_ranks):
    """Bytes of parameters, gradients and optimizer state of a rank of a backend, or a variant, in the mean over the ranks.

    Where no way of sharing is declared: of parameters and gradients, of one model for each shard of a global batch.
    """
    known = sharing.state_bytes(name, num_ranks, settings)
    if known is not None:
        return known
    return 2 * gradient_bytes(settings) * parallelism.degree(name, settings, num_ranks) / num_ranks


def expect_room(name, settings, num_ranks, num_local_ranks, device):
    """Raises UserError if the state of a training does not fit into the memory that is free on this node, or on its GPUs.

    `settings`: resolved. `num_local_ranks`: ranks on this node. `device`: cpu or cuda.
    """
    of_rank, initial = state_bytes(name, settings, num_ranks), gradient_bytes(settings)
    if device == "cuda" and of_rank > (free := node_memory.available_on_gpu()):
        raise UserError(_refusal(name, settings, num_ranks, f"{_text(of_rank)} on each GPU", free, "GPUs"))
    on_node = num_local_ranks * (initial if device == "cuda" else of_rank + initial)
    if on_node > (free := node_memory.available()):
        ranks = f"its {num_local_ranks} ranks" if num_local_ranks > 1 else "its rank"
        raise UserError(_refusal(name, settings, num_ranks, f"{_text(on_node)} on a node for {ranks}", free, "nodes"))


def _refusal(name, settings, num_ranks, needed, free_bytes, places):
    return (
        f"{settings.workload} does not fit into memory with {name} at size {num_ranks}: parameters, gradients and optimizer state need "
        f"{needed}, and {_text(free_bytes)} are free; share them with fsdp or deepspeed_zero@3 over ranks on more {places}, or choose a "
        "smaller workload"
    )


def _text(size_bytes):
    return f"{size_bytes / GB:.1f} GB"
