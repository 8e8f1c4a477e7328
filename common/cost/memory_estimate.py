"""The memory that a run needs at least (common/README.md, "Memory"): where that is more than there is, it is refused before it starts.

Of the state it is the least of what common/cost/sharing.py and common/cost/memory_forecast.py say. TensorFlow has no gradients when a run
starts from its initial parameters, and its activations beside them later.
"""

import dataclasses

from common import workloads
from common.backends import declaration_of, declared, file_of, is_exact, settings_of, variant_settings
from common.config import Settings
from common.cost import memory_forecast, parallelism, sharing
from common.cost.memory_forecast import Training
from common.errors import UserError
from common.process import node_memory
from common.workloads import gradient_bytes

GB = 1e9
ON_GPU = "on each GPU"
# Of the backends that a refusal names.
NUM_NAMED = 3


def state(name, settings, num_ranks):
    """{part: bytes} of parameters, gradients and optimizer state of a rank of a backend, or a variant, in the mean over the ranks.

    Where no way of sharing is declared: of one model for each shard of a global batch, without optimizer state unless its ranks divide
    the model, since it may be elsewhere.
    """
    training = _training(settings, settings.batch_size or 1, "cpu")
    whole = sharing.whole_bytes(name, memory_forecast.num_parameters(training), training)
    if way := sharing.of(name):
        by_theory = sharing.held_bytes(way, num_ranks, whole)
        # fsdp@keep has whole parameters beside its shards.
        least = {part: min(by_theory[part], held) for part, held in memory_forecast.held_bytes(name, training, whole, num_ranks).items()}
        return least | {"parameters": by_theory["parameters"]}
    share = parallelism.degree(name, settings, num_ranks) / num_ranks
    divides = bool(declaration_of(name).model_parallel)
    return {part: num_bytes * share * (part != "optimizer_state" or divides) for part, num_bytes in whole.items()}


def expect_room(name, settings, num_ranks, num_local_ranks, device):
    """Raises UserError if the state of a training does not fit into the memory that is free on this node, or on its GPUs.

    `settings`: resolved. `num_local_ranks`: ranks on this node. `device`: cpu or cuda.
    """
    lacking = _lacking(name, settings, num_ranks, num_local_ranks, device)
    if lacking is None:
        return
    needed, where, free = lacking
    parts = [f"{part.replace('_', ' ')} {_text(size)}" for part, size in state(name, settings, num_ranks).items()]
    if where != ON_GPU:
        parts.append(f"initial parameters {_text(gradient_bytes(settings))}")
    fitting = ", ".join(_fitting(settings, num_ranks, num_local_ranks, device))
    advice = f"the state of {fitting} would fit" if fitting else f"share them over more {'GPUs' if where == ON_GPU else 'nodes'}"
    raise UserError(
        f"{settings.workload} does not fit into memory with {name} at size {num_ranks}: a rank's {', '.join(parts)} need {_text(needed)} "
        f"{where}, and {_text(free)} are free{_activations(name, settings, num_ranks, device)}; {advice}, or choose a smaller workload"
    )


def _lacking(name, settings, num_ranks, num_local_ranks, device):
    """(bytes needed, where, bytes that are free) where a training does not fit; None where it does."""
    of_rank, on_node = needed(name, settings, num_ranks, num_local_ranks, device)
    if device == "cuda" and of_rank > (free := node_memory.available_on_gpu()):
        return of_rank, ON_GPU, free
    if on_node > (free := node_memory.available()):
        return on_node, f"on a node for {f'its {num_local_ranks} ranks' if num_local_ranks > 1 else 'its rank'}", free
    return None


def needed(name, settings, num_ranks, num_local_ranks, device):
    """(bytes of a rank's state, bytes of main memory on a node for the ranks on it)."""
    of_rank, initial = sum(state(name, settings, num_ranks).values()), gradient_bytes(settings)
    return of_rank, num_local_ranks * (initial if device == "cuda" else of_rank + initial)


def _activations(name, settings, num_ranks, device):
    """The end of a refusal about activations, which it does not count; empty for a file outside frameworks/ and without a forecast."""
    if file_of(name) not in declared():
        return ""
    plan = workloads.batch_plan(settings, parallelism.degree(name, settings, num_ranks))
    training = _training(settings, plan.micro_batch, device)
    if memory_forecast.problem(name, training, num_ranks):
        return ""
    return f" (activations would be {_text(memory_forecast.of(name, training, num_ranks).activations)} more)"


def _fitting(settings, num_ranks, num_local_ranks, device):
    """The exact backends and variants whose state fits, those with the least state first; at most NUM_NAMED."""
    without_variant = dataclasses.replace(settings, **{setting: getattr(Settings(), setting) for setting in variant_settings()})
    bytes_by_name = {}
    for name in filter(is_exact, sharing.every_way()):
        variant = settings_of(name, without_variant)
        if not parallelism.problem(name, variant, num_ranks) and not _lacking(name, variant, num_ranks, num_local_ranks, device):
            bytes_by_name[name] = sum(state(name, variant, num_ranks).values())
    return sorted(bytes_by_name, key=bytes_by_name.get)[:NUM_NAMED]


def _training(settings, batch_size, device):
    return Training(
        model=workloads.workload_of(settings).model, batch_size=batch_size, precision=settings.precision,
        optimizer=settings.optimizer, momentum=settings.momentum, recompute=settings.recompute, microbatches=settings.microbatches,
        device=device,
    )  # fmt: skip


def _text(size_bytes):
    return f"{size_bytes / GB:.1f} GB"
