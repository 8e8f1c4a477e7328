"""How much memory each rank of a training needs, by backend, before anything runs.

Parameters, gradients and optimizer state are divided as in common/cost/sharing.py, except where the libraries divide them otherwise.
common/cost/activations.py has the activations, and common/cost/communication_buffers.py the buffers of the exchange. A pipeline divides all
of them with the model (common/model/pipelining.py).
"""

import dataclasses
import heapq
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from common.backends import declaration_of, file_of, settings_of, variants_of
from common.config import Settings
from common.cost import activations, communication_buffers, parallelism, sharing
from common.cost.activations import Activations
from common.cost.communication_buffers import BufferBytes, Units
from common.cost.sharing import StateBytes
from common.declarations import Backend, declared
from common.errors import UserError
from common.model import pipelining
from common.model.families import Model, parameters_of, parts_of
from common.model.own_model import OwnModel

# The parts of the state that are in main memory in place of the GPU's, by the ending of a backend's name. Ren et al. 2021,
# arXiv:2101.06840; Rajbhandari et al. 2021, arXiv:2104.07857.
OFFLOADS = {"offload": ("gradients", "optimizer_state"), "offload_parameters": sharing.PARTS}


class Training(NamedTuple):
    """A training, as far as its memory depends on it.

    The batch size is in samples of a step on each rank, or on all ranks that compute one model together. The precision is one of
    common/cost/sharing.py, the device cpu or cuda. `num_parameters` stands in place of the model's own number: each part then has as many
    times more. `ranks_per_node`: None where all ranks are on one node.
    """

    model: Model
    batch_size: int
    precision: str = "fp32"
    optimizer: str = "adam"
    momentum: float = 0.9
    recompute: bool = False
    microbatches: int = 4
    num_parameters: float | None = None
    device: str = "cuda"
    ranks_per_node: int | None = None


class Forecast(NamedTuple):
    """Bytes of tensors of a rank.

    `activations` are those after the forward pass, with those of the block that is computed again. `buffers` are the most that a library
    has for its exchange. `peak` is the most of all at once, since activations go as gradients come. `main_memory` has what is offloaded.
    """

    parameters: float
    gradients: float
    optimizer_state: float
    activations: float
    buffers: float
    peak: float
    main_memory: float = 0

    @property
    def total(self) -> float:
        return self.parameters + self.gradients + self.optimizer_state + self.activations + self.buffers


def of(name: str, training: Training, num_ranks: int) -> Forecast:
    """Returns the forecast of the rank that needs most.

    The name is a backend or a variant, or one of either with +offload or +offload_parameters.
    """
    return max(by_rank(name, training, num_ranks), key=lambda forecast: forecast.peak)


def by_rank(name: str, training: Training, num_ranks: int) -> list[Forecast]:
    """Returns the forecasts of ranks that differ, where there is no `problem`: those of a pipeline in order, and one for other backends."""
    backend, offload = without_offload(name)
    training = training._replace(precision=sharing.precision_of(backend, training.precision))
    declaration = declaration_of(backend)
    if declaration.pipelined:
        num_stages = _num_stages(declaration, num_ranks)
        return [_of_stages(backend, training, num_stages, rank) for rank in range(num_stages)]
    num_divisions = num_ranks if declaration.divides else 1
    parts = _parts(training, num_divisions)
    if training.recompute:
        parts = activations.recomputed(parts)
    whole = sharing.whole_bytes(backend, sum(part.num_parameters for part in parts), training)
    held = held_bytes(backend, training, whole, num_ranks)
    return [_step(parts, training.batch_size, held, _buffers(backend, parts, training, offload), offload)]


def problem(name: str, training: Training, num_ranks: int) -> str | None:
    """Returns why there is no forecast of this training at this number of ranks under a name as in `of`; None if there is.

    Raises UserError for an unknown offload.
    """
    backend, _ = without_offload(name)
    if "+" in name and name not in (*variants_of(file_of(name)), *(able := with_offload())):
        raise UserError(f"{name} is nothing that a library offers; choose from: {', '.join(able)}")
    declaration = declaration_of(backend)
    settings = settings_of(backend, dataclasses.replace(Settings(workload="this model"), microbatches=training.microbatches))
    if declaration.num_servers:
        return f"there is no forecast for {name}, whose ranks do different things; leave it out"
    if not parallelism.trains(backend, training.model):
        return f"{name} does not train this model; leave it out"
    if not activations.are_known(training.model, activations.sizes_of(training.precision, training.device)):
        return f"there is no forecast for {name}: {_unknown(training.model)}"
    if reason := parallelism.problem_of_division(backend, settings, training.model, num_ranks, training.ranks_per_node):
        return reason
    if not declaration.pipelined:
        return None
    return pipelining.problem(name, settings, training.model, _num_stages(declaration, num_ranks), training.batch_size)


def without_offload(name: str) -> tuple[str, str]:
    """Returns the backend or variant of a name as in `of`, and its offload; empty for none."""
    backend, _, offload = name.rpartition("+")
    return (backend, offload) if offload in OFFLOADS else (name, "")


def _unknown(model: Model) -> str:
    if isinstance(model, OwnModel):
        return f"the activations of {model.file.path.name} are not known in this precision, or PyTorch's MemTracker does not take it"
    return f"the description of {type(model).__name__} does not state its activations"


def with_offload() -> list[str]:
    """Returns the names of the backends and variants whose library can keep state in main memory, each with a name in OFFLOADS."""
    return [
        f"{backend}@{variant}+{kind}" if variant else f"{backend}+{kind}"
        for kind in OFFLOADS
        for backend, declaration in declared().items()
        for variant in declaration.offloads.get(kind, ())
    ]


def _num_stages(declaration: Backend, num_ranks: int) -> int:
    return Settings().stages if declaration.model_parallel == "stages" else num_ranks


def _parts(training: Training, num_divisions: int = 1) -> list[Activations]:
    """Returns the activations of the parts of a model, with the number of parameters of the training."""
    sizes = activations.sizes_of(training.precision, training.device)
    parts = activations.by_part(training.model, sizes, num_divisions)
    factor = num_parameters(training) / sum(sizes_of(training.model))
    return [part._replace(num_parameters=part.num_parameters * factor, copies=part.copies * factor / num_divisions) for part in parts]


def _buffers(name: str, parts: Sequence[Activations], training: Training, offload: str) -> BufferBytes:
    blocks = dict.fromkeys([*_blocks(parts), ""], 0.0)
    for part in parts:
        blocks[part.block or ""] += part.num_parameters
    outside_blocks = blocks.pop("")
    factor = num_parameters(training) / sum(sizes_of(training.model))
    largest = max(sizes_of(training.model)) * factor
    element, variant = sharing.PRECISIONS[training.precision].parameters, name.partition("@")[2]
    units = Units(tuple(blocks.values()), outside_blocks, largest, element, variant, offload)
    return communication_buffers.BUFFERS[declaration_of(name).buffers](units)


def _blocks(parts: Sequence[Activations]) -> list[str]:
    return list(dict.fromkeys(part.block for part in parts if part.block))


def _step(parts: Sequence[Activations], num_samples: float, held: StateBytes, buffers: BufferBytes, offload: str = "") -> Forecast:
    """Forecasts a step: forward, then backward through the parts, from the last to the first, then the optimizer."""
    offloaded = OFFLOADS.get(offload, ())
    on_device = {part: 0 if part in offloaded else num_bytes for part, num_bytes in held.items()}
    always = on_device["parameters"] + on_device["optimizer_state"] + buffers.always
    gradient = on_device["gradients"] / sum(part.num_parameters for part in parts)
    forward_copies = sum(part.copies for part in parts if part.recomputed)
    kept = list(itertools.accumulate(part.kept * num_samples + (0 if part.recomputed else part.copies) for part in parts))
    num_with_gradient = list(itertools.accumulate((part.num_parameters for part in reversed(parts)), initial=0))[-2::-1]
    exchanged = dict(zip([*_blocks(parts), ""], buffers.in_backward or itertools.repeat(0), strict=False))
    after_forward = kept[-1] + forward_copies + parts[-1].working * num_samples + buffers.after_forward
    in_backward = [
        left
        + (part.working + part.recomputed) * num_samples
        + (part.copies if part.recomputed else 0)
        + num * gradient
        + exchanged[part.block]
        for part, left, num in zip(parts, kept, num_with_gradient, strict=True)
    ]
    return Forecast(
        **on_device,
        activations=kept[-1] + forward_copies + max(part.recomputed for part in parts) * num_samples,
        buffers=buffers.always + max(buffers.after_forward, *buffers.in_backward, 0),
        peak=always + max(after_forward, *in_backward, on_device["gradients"]),
        main_memory=sum(held[part] for part in offloaded),
    )


def _of_stages(name: str, training: Training, num_ranks: int, rank: int) -> Forecast:
    """Forecasts a step of a rank of a pipeline: all its stages, with several micro-batches under way."""
    settings = settings_of(name, dataclasses.replace(Settings(), microbatches=training.microbatches))
    schedule, num = settings.pipeline_schedule, pipelining.microbatches_of(settings)
    parts = _parts(training)
    # A backward pass in two parts keeps what the first has computed again until the second.
    if training.recompute and not pipelining.SCHEDULES[schedule].v_shaped:
        parts = activations.recomputed(parts, whole_blocks=False)
    stages = pipelining.stages_of(training.model, schedule, num_ranks)
    element, num_samples = sharing.PRECISIONS[training.precision].parameters, training.batch_size / num
    passed = [element * num_samples * math.prod(part.passed_shape) for part in parts_of(training.model)]
    parts_of_stages = [(stage, parts[stage.start : stage.end]) for stage in stages if stage.rank == rank]
    computed = [part for _, of_stage in parts_of_stages for part in of_stage]
    held = sharing.whole_bytes(name, sum(part.num_parameters for part in computed), training)
    # A stage also keeps the outputs that it has sent on.
    of_pass = max(sum(part.kept for part in of_stage) * num_samples + passed[stage.end - 1] for stage, of_stage in parts_of_stages)
    kept = of_pass * pipelining.num_under_way(schedule, rank, num_ranks, num) + sum(part.copies for part in computed)
    recomputed = max(part.recomputed for part in computed) * num_samples
    # A rank receives for each micro-batch activations from the stage before, and gradients from the one after.
    ends = [end for stage, _ in parts_of_stages for end, last in ((stage.start, 0), (stage.end, len(parts))) if end != last]
    received = sum(passed[end - 1] for end in ends) * num
    return Forecast(
        **held,
        activations=kept + recomputed,
        buffers=received,
        peak=sum(held.values()) + kept + max(part.recomputed + part.working for part in computed) * num_samples + received,
    )


def num_parameters(training: Training) -> float:
    return training.num_parameters or sum(sizes_of(training.model))


def held_bytes(name: str, training: Training, whole: StateBytes, num_ranks: int) -> StateBytes:
    """Returns the bytes that the rank with most holds of a model that has `whole` in all, as the libraries do it.

    They differ from common/cost/sharing.py where whole parameters are dealt to ranks, and under DeepSpeed (0.19.8): it has the gradients of
    a shard beside those that update the float32 masters, and stage 1 has no other gradients after the backward pass.
    """
    declaration = declaration_of(name)
    if declaration.divides:
        # Matrices are divided, and the vectors of norms are not.
        divided = sum(math.prod(shape) / (num_ranks if len(shape) > 1 else 1) for shape in shapes_of(training.model))
        return {part: num_bytes * divided / sum(sizes_of(training.model)) for part, num_bytes in whole.items()}
    way = sharing.of(name) or sharing.WAYS["replicated"]
    num_nodes = parallelism.num_nodes(num_ranks, training.ranks_per_node)
    held = sharing.held_bytes(way, num_ranks, whole, num_nodes)
    if declaration.buffers == "gathered":
        # Whole parameters are beside the shards.
        held["parameters"] = whole["parameters"] * sharing.num_replicas(way, num_nodes) / num_ranks
    if declaration.float32_masters and way.sharded:
        element = sharing.PRECISIONS[training.precision].parameters
        masters = sharing.FLOAT32_BYTES / element if "parameters" in way.sharded or element < sharing.FLOAT32_BYTES else 0
        held["gradients"] = whole["gradients"] / num_ranks * (1 + masters)
    if declaration.deals:
        held |= {part: whole[part] * largest_hand(sizes_of(training.model), num_ranks) for part in way.sharded}
    return held


def largest_hand(sizes: Sequence[int], num_ranks: int) -> float:
    """Returns the largest share of all elements that a rank has, where the largest parameter goes to the rank with least, and so on.

    PyTorch's ZeroRedundancyOptimizer deals parameters like this.
    """
    hands = [0] * num_ranks
    for size in sorted(sizes, reverse=True):
        heapq.heapreplace(hands, hands[0] + size)
    return max(hands) / sum(sizes)


def shapes_of(model: Model) -> list[tuple[int, ...]]:
    return [initial.shape for initial in parameters_of(model).values()]


def sizes_of(model: Model) -> list[int]:
    """Returns the number of elements of each parameter of a model."""
    return list(map(math.prod, shapes_of(model)))
