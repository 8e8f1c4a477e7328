"""PyTorch's tensor parallelism of the decoder: how its layers are divided over the ranks, and their communication."""

import torch
import torch.distributed._functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleOutput, RowwiseParallel, SequenceParallel, parallelize_module

from common.model.families import layers_of
from frameworks.shared.pytorch import process_group
from frameworks.shared.replaced import replaced

# The dimension of (samples, context, width) that is divided between the matrix products.
CONTEXT = Shard(1)
# The functions that tensors divided over ranks call.
COLLECTIVES = {"all_reduce": "all_reduce", "all_gather_single": "all_gather", "reduce_scatter_single": "reduce_scatter"}


def divide(decoder, ranks, device):
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
            decoder.get_submodule(layer.name).weight.register_post_accumulate_grad_hook(reduce)


def reduce(parameter):
    """Sums a gradient, of which each rank has the part of its tokens. The optimizer would do so in each of its operations."""
    parameter.grad = parameter.grad.redistribute(placements=parameter.placements)


def communication(ranks, device):
    """How to measure its communication: the collectives of activations and of their gradients."""

    def all_gather(tensor, gather_dim, **_):
        return torch.cat([tensor] * ranks.size, gather_dim)

    def reduce_scatter(tensor, _, scatter_dim, **__):
        return tensor.chunk(ranks.size, scatter_dim)[ranks.rank].contiguous()

    def without_communication():
        alone = {"all_reduce": lambda tensor, *_, **__: tensor, "all_gather_single": all_gather, "reduce_scatter_single": reduce_scatter}
        return replaced(*((functional, name, value) for name, value in process_group.named_in(functional, alone).items()))

    return process_group.communication_of_functions(COLLECTIVES, without_communication, device, functional)
