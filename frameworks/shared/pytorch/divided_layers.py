"""PyTorch's tensor parallelism of the decoder: how its layers are divided over the ranks, and their communication."""

from contextlib import AbstractContextManager
from typing import Any, cast

import torch
import torch.distributed._functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleOutput, RowwiseParallel, SequenceParallel, parallelize_module

from common.model.description import layers_of
from common.ranks.launcher_variables import Ranks
from common.trainer import Communication
from frameworks.shared.pytorch import process_group
from frameworks.shared.replaced import replaced

# The dimension of (samples, context, width) that is divided between the matrix products.
CONTEXT = Shard(1)
# The functions that tensors divided over ranks call.
COLLECTIVES = {"all_reduce": "all_reduce", "all_gather_single": "all_gather", "reduce_scatter_single": "reduce_scatter"}


def divide(decoder: Any, ranks: Ranks, device: torch.device) -> None:
    """Divides the matrices of a decoder over the ranks, and between them the context.

    Queries, keys and values are divided by heads, SwiGLU by its width, embedding and head by tokens, as the layers of the model state:
    Shoeybi et al. 2019, arXiv:1909.08053, section 3. Norms and residual connections work on a part of the context: Korthikanti et al. 2022,
    arXiv:2205.05198, section 4.2.2.
    """
    mesh = init_device_mesh(device.type, (ranks.size,))
    # Gathered once for all products that follow.
    gathered = PrepareModuleOutput(output_layouts=CONTEXT, desired_output_layouts=Replicate(), use_local_output=False)
    styles = {
        "columns": ColwiseParallel(input_layouts=Replicate()),
        "rows": RowwiseParallel(output_layouts=CONTEXT),
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=CONTEXT),
        "head": ColwiseParallel(input_layouts=Replicate(), output_layouts=Replicate()),
    }
    for layer in layers_of(decoder.description):
        if layer.divided:
            parallelize_module(decoder, mesh, {layer.name: styles[layer.divided]})
        elif layer.parameters:
            parallelize_module(decoder, mesh, {layer.name: SequenceParallel()})
            parallelize_module(decoder, mesh, {layer.name: gathered})
            decoder.get_parameter(f"{layer.name}.weight").register_post_accumulate_grad_hook(reduce)


def reduce(parameter: torch.Tensor) -> None:
    """Sums a gradient over the ranks, each of which has the part of its tokens. The optimizer would do so in each of its operations."""
    gradient, shards = cast("DTensor", parameter.grad), cast("DTensor", parameter)
    parameter.grad = gradient.redistribute(placements=shards.placements)


def communication(ranks: Ranks) -> Communication:
    """Returns how to measure its communication: the collectives of activations and of their gradients."""

    def all_gather(tensor: torch.Tensor, gather_dim: int, **_: object) -> torch.Tensor:
        return torch.cat([tensor] * ranks.size, gather_dim)

    def reduce_scatter(tensor: torch.Tensor, _: object, scatter_dim: int, **__: object) -> torch.Tensor:
        return tensor.chunk(ranks.size, scatter_dim)[ranks.rank].contiguous()

    def without_communication() -> AbstractContextManager[None]:
        alone = {"all_reduce": lambda tensor, *_, **__: tensor, "all_gather_single": all_gather, "reduce_scatter_single": reduce_scatter}
        return replaced(*((functional, name, value) for name, value in process_group.named_in(functional, alone).items()))

    return process_group.communication_of_functions(COLLECTIVES, without_communication, functional)
