"""The memory that the state of a run needs on each rank. A run whose state needs more than there is, is refused before it starts.

Activations and what libraries keep to themselves come on top (common/README.md, "Memory"; python -m launch.memory).
"""

from common.backends import declaration_of
from common.config import Settings
from common.cost import parallelism, sharing
from common.cost.sharing import StateBytes
from common.declarations import SHELL_PYTHON
from common.errors import UserError
from common.ranks import gpus, machine
from common.workloads import gradient_bytes, workload_of

GB = 1e9


def state(name: str, settings: Settings, num_ranks: int) -> StateBytes:
    """Returns the bytes of the state of a rank of a backend, or a variant, in the mean over the ranks, as its library keeps it.

    It differs from common/cost/sharing.py under DeepSpeed (0.19.8), which has the gradients of a shard beside those that update the float32
    masters, and in stage 1 no others after the backward pass. Where no sharing is declared, it is one model for each shard of a
    global batch, without optimizer state unless the ranks divide the model, since it may be elsewhere.
    """
    declaration, strategy = declaration_of(name), sharing.of(name)
    whole = sharing.whole_bytes(name, workload_of(settings).num_parameters, settings)
    if strategy is None:
        share = parallelism.degree(name, settings, num_ranks) / num_ranks
        return {
            kind: num_bytes * share * (kind != "optimizer_state" or bool(declaration.model_parallel)) for kind, num_bytes in whole.items()
        }
    bytes_of_rank = sharing.held_bytes(strategy, num_ranks, whole)
    if declaration.float32_masters and strategy.sharded:
        masters = sharing.FLOAT32_BYTES / sharing.element_bytes(settings) if "parameters" in strategy.sharded else 0
        bytes_of_rank["gradients"] = whole["gradients"] / num_ranks * (1 + masters)
    return bytes_of_rank


def expect_room(name: str, settings: Settings, num_ranks: int, num_local_ranks: int, device: str) -> None:
    """Raises UserError if the state of a training does not fit into the memory that is free on this node, or on its GPUs.

    The settings are resolved. `num_local_ranks` is the number of ranks on this node. The device is cpu or cuda.
    """
    parts = {kind.replace("_", " "): size for kind, size in state(name, settings, num_ranks).items()}
    # Main memory has the initial parameters of each rank too.
    rank_bytes, initial_bytes = sum(parts.values()), gradient_bytes(settings)
    node_bytes = num_local_ranks * (initial_bytes if device == "cuda" else rank_bytes + initial_bytes)
    if device == "cuda" and rank_bytes > (free_bytes := gpus.most_free_bytes()):
        needed_bytes, memory, remedy = rank_bytes, "on each GPU", "GPUs"
    elif node_bytes > (free_bytes := machine.available_bytes()):
        ranks = f"its {num_local_ranks} ranks" if num_local_ranks > 1 else "its rank"
        needed_bytes, memory, remedy = node_bytes, f"on a node for {ranks}", "nodes"
        parts["initial parameters"] = initial_bytes
    else:
        return
    raise UserError(
        f"{settings.workload} does not fit into memory with {name} at size {num_ranks}: a rank's "
        f"{', '.join(f'{kind} {_text(size)}' for kind, size in parts.items())} need {_text(needed_bytes)} {memory}, and "
        f"{_text(free_bytes)} are free (activations come on top); share them over more {remedy}, or choose a smaller workload or another "
        f"backend ({SHELL_PYTHON} -m launch.memory)"
    )


def _text(size_bytes: float) -> str:
    return f"{size_bytes / GB:.1f} GB" if size_bytes >= GB else f"{size_bytes / machine.MB:.1f} MB"
