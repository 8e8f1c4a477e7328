"""The memory that a run needs at least (common/README.md, "Memory"). A run that needs more than there is, is refused before it starts.

The bytes of a part of the state are the least that common/cost/sharing.py and common/cost/memory_forecast.py give. TensorFlow has no
gradients when a run starts from its initial parameters, and its activations beside them later.
"""

import dataclasses
from typing import NamedTuple

from common import workloads
from common.backends import declaration_of, file_of, is_exact, settings_of, variant_settings
from common.config import Settings
from common.cost import memory_forecast, parallelism, sharing
from common.cost.memory_forecast import Training
from common.cost.sharing import StateBytes
from common.declarations import declared
from common.errors import UserError
from common.process import gpus, machine
from common.workloads import gradient_bytes

GB = 1e9
ON_GPU = "on each GPU"
# A refusal names at most so many backends.
NUM_NAMED = 3


class Need(NamedTuple):
    """The bytes of a rank's state, and those of main memory on a node for all ranks on it."""

    rank_bytes: float
    node_bytes: float


class Shortage(NamedTuple):
    """A need for more bytes than are free; `place` names the memory in words."""

    needed_bytes: float
    place: str
    free_bytes: float


def state(name: str, settings: Settings, num_ranks: int, num_local_ranks: int) -> StateBytes:
    """Returns the bytes of the state of a rank of a backend, or a variant, in the mean over the ranks.

    Where no way of sharing is declared, they are those of one model for each shard of a global batch, without optimizer state unless its
    ranks divide the model, since it may be elsewhere.
    """
    # The state does not depend on the batch.
    training = _training(name, settings, 1, "cpu", num_local_ranks)
    whole = sharing.whole_bytes(name, memory_forecast.num_parameters(training), training)
    if way := sharing.of(name):
        in_theory = sharing.held_bytes(way, num_ranks, whole, parallelism.num_nodes(num_ranks, num_local_ranks))
        forecast = memory_forecast.held_bytes(name, training, whole, num_ranks)
        # fsdp@keep has whole parameters beside its shards.
        return {part: min(in_theory[part], forecast[part]) for part in forecast} | {"parameters": in_theory["parameters"]}
    share = parallelism.degree(name, settings, num_ranks, num_local_ranks) / num_ranks
    divides = bool(declaration_of(name).model_parallel)
    return {part: num_bytes * share * (part != "optimizer_state" or divides) for part, num_bytes in whole.items()}


def expect_room(name: str, settings: Settings, num_ranks: int, num_local_ranks: int, device: str) -> None:
    """Raises UserError if the state of a training does not fit into the memory that is free on this node, or on its GPUs.

    The settings are resolved. `num_local_ranks` is the number of ranks on this node. The device is cpu or cuda.
    """
    shortage = _shortage(name, settings, num_ranks, num_local_ranks, device)
    if shortage is None:
        return
    parts = [f"{part.replace('_', ' ')} {_text(size)}" for part, size in state(name, settings, num_ranks, num_local_ranks).items()]
    on_gpu = shortage.place == ON_GPU
    if not on_gpu:
        parts.append(f"initial parameters {_text(gradient_bytes(settings))}")
    fitting = ", ".join(_fitting(settings, num_ranks, num_local_ranks, device))
    advice = f"the state of {fitting} would fit" if fitting else f"share them over more {'GPUs' if on_gpu else 'nodes'}"
    raise UserError(
        f"{settings.workload} does not fit into memory with {name} at size {num_ranks}: a rank's {', '.join(parts)} need "
        f"{_text(shortage.needed_bytes)} {shortage.place}, and {_text(shortage.free_bytes)} are free"
        f"{_activations(name, settings, num_ranks, num_local_ranks, device)}; {advice}, or choose a smaller workload"
    )


def _shortage(name: str, settings: Settings, num_ranks: int, num_local_ranks: int, device: str) -> Shortage | None:
    """Returns the shortage of memory where a training does not fit; None where it does."""
    need = needed(name, settings, num_ranks, num_local_ranks, device)
    if device == "cuda" and need.rank_bytes > (free := gpus.most_free_bytes()):
        return Shortage(need.rank_bytes, ON_GPU, free)
    if need.node_bytes > (free := machine.available_bytes()):
        ranks = f"its {num_local_ranks} ranks" if num_local_ranks > 1 else "its rank"
        return Shortage(need.node_bytes, f"on a node for {ranks}", free)
    return None


def needed(name: str, settings: Settings, num_ranks: int, num_local_ranks: int, device: str) -> Need:
    """Returns the bytes that a training needs, whatever is free."""
    state_bytes, initial_bytes = sum(state(name, settings, num_ranks, num_local_ranks).values()), gradient_bytes(settings)
    on_node = initial_bytes if device == "cuda" else state_bytes + initial_bytes
    return Need(state_bytes, num_local_ranks * on_node)


def _activations(name: str, settings: Settings, num_ranks: int, num_local_ranks: int, device: str) -> str:
    """Returns the end of a refusal, about the activations, which it does not count.

    It is empty for a file outside frameworks/, and where there is no forecast.
    """
    if file_of(name) not in declared():
        return ""
    plan = workloads.batch_plan(settings, parallelism.degree(name, settings, num_ranks, num_local_ranks))
    training = _training(name, settings, plan.micro_batch, device, num_local_ranks)
    if memory_forecast.problem(name, training, num_ranks):
        return ""
    return f" (activations would be {_text(memory_forecast.of(name, training, num_ranks).activations)} more)"


def _fitting(settings: Settings, num_ranks: int, num_local_ranks: int, device: str) -> list[str]:
    """Returns the exact backends and variants whose state fits, those with the least state first; at most NUM_NAMED."""
    without_variant = dataclasses.replace(settings, **{setting: getattr(Settings(), setting) for setting in variant_settings()})
    bytes_by_name = {}
    for name in filter(is_exact, sharing.every_way()):
        variant = settings_of(name, without_variant)
        problem = parallelism.problem(name, variant, num_ranks, num_local_ranks)
        if not problem and not _shortage(name, variant, num_ranks, num_local_ranks, device):
            bytes_by_name[name] = sum(state(name, variant, num_ranks, num_local_ranks).values())
    return sorted(bytes_by_name, key=lambda name: bytes_by_name[name])[:NUM_NAMED]


def _training(name: str, settings: Settings, batch_size: int, device: str, ranks_per_node: int) -> Training:
    workload = workloads.workload_of(settings)
    return Training(
        model=workload.model,
        batch_size=batch_size,
        precision=sharing.precision_of(name, settings.precision),
        optimizer=settings.optimizer or workload.optimizer,
        momentum=settings.momentum,
        recompute=settings.recompute,
        microbatches=settings.microbatches,
        device=device,
        ranks_per_node=ranks_per_node,
    )


def _text(size_bytes: float) -> str:
    return f"{size_bytes / GB:.1f} GB"
