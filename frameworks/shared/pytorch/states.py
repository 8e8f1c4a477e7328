"""Parameters, buffers and optimizer state of a PyTorch model, gathered into arrays and restored from them."""

from collections.abc import Mapping
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from common.model import weights
from frameworks.shared.networks.layers_pytorch import Convolution, FlattenedLinear
from frameworks.shared.pytorch import process_group

OPTIMIZER_STATE, SCALAR_STATE = weights.OPTIMIZER_STATE, weights.SCALAR_STATE


def gather(model: nn.Module, optimizer: Optimizer | None) -> dict[str, np.ndarray]:
    """Returns parameters, buffers and, unless `optimizer` is None, optimizer state, as arrays in the names and layouts of weights.py.

    They are gathered from the shards of all ranks, if there are any. Then all ranks call this. Buffers are those of this rank.
    """
    reshard(model)
    parameters, optimizer_state, states = {}, {}, local(optimizer).state if optimizer else {}
    for name, parameter in model.named_parameters():
        parameters[name] = as_array(name, whole(parameter), model)
        for key, value in states.get(parameter, {}).items():
            if value is not None:
                optimizer_state[f"{OPTIMIZER_STATE[key]}/{name}"] = as_array(name, whole(torch.as_tensor(value)), model)
    # A ZeroRedundancyOptimizer holds on each rank the state of some parameters.
    if hasattr(optimizer, "consolidate_state_dict"):
        optimizer_state = process_group.united(optimizer_state)
    return parameters | gather_buffers(model) | optimizer_state


def buffers_of(model: nn.Module) -> dict[str, Tensor]:
    """Returns the buffers that are part of a model's state by name, such as running statistics. Others are constant tables."""
    return {
        f"{prefix}.{name}" if prefix else name: buffer
        for prefix, layer in model.named_modules()
        for name, buffer in layer.named_buffers(recurse=False)
        if name not in layer._non_persistent_buffers_set
    }


def gather_buffers(model: nn.Module) -> dict[str, np.ndarray]:
    """Returns copies of the buffers by their names in a state."""
    return {f"{weights.BUFFER}{name}": buffer.detach().cpu().numpy().copy() for name, buffer in buffers_of(model).items()}


@torch.no_grad()
def restore_buffers(model: nn.Module, state: Mapping[str, np.ndarray]) -> None:
    """Loads the buffers that a state has."""
    for name, buffer in buffers_of(model).items():
        if f"{weights.BUFFER}{name}" in state:
            buffer.copy_(torch.tensor(state[f"{weights.BUFFER}{name}"]))


@torch.no_grad()
def restore(model: nn.Module, optimizer: Optimizer, state: Mapping[str, np.ndarray]) -> None:
    """Loads a state into the model, or this rank's shards of it, and its optimizer; optimizer state that it lacks begins anew.

    Buffers that it lacks stay as they are.
    """
    reshard(model)
    restore_buffers(model, state)
    optimizer = local(optimizer)
    updated = {parameter for group in optimizer.param_groups for parameter in group["params"]}
    for name, parameter in model.named_parameters():
        parameter.copy_(placed(as_tensor(name, state[name], model), parameter))
        if parameter not in updated:
            continue
        parameter_state = optimizer.state[parameter]
        for key, prefix in OPTIMIZER_STATE.items():
            if f"{prefix}/{name}" in state:
                value = as_tensor(name, state[f"{prefix}/{name}"], model)
                parameter_state[key] = value.to(parameter.device) if key in SCALAR_STATE else placed(value, parameter)
            elif parameter_state.get(key) is not None:
                # In place, since its memory was allocated off the clock.
                parameter_state[key].fill_(SCALAR_STATE.get(key, 0.0))


def local(optimizer: Optimizer) -> Optimizer:
    """Returns the optimizer that updates this rank's parameters: that in `optim` of a wrapper of torch.distributed.optim, or itself."""
    return getattr(optimizer, "optim", optimizer)


def reshard(model: nn.Module) -> None:
    """Frees whole parameters that FSDP has gathered, such as for an evaluation, so that the model's parameters are the shards."""
    for submodule in model.modules():
        getattr(submodule, "reshard", lambda: None)()


def whole(tensor: Tensor) -> Tensor:
    """Gathers a tensor from its shards, where it has any."""
    return getattr(tensor, "full_tensor", lambda: tensor)()


def placed(tensor: Tensor, parameter: Tensor) -> Tensor:
    """Gives a whole tensor a parameter's type, device and, where it has any, shards."""
    tensor = tensor.to(parameter.device, parameter.dtype)
    if not hasattr(parameter, "placements"):
        return tensor
    # Imported here to keep the start of every run short.
    from torch.distributed.tensor import DTensor, distribute_tensor

    shard = cast("DTensor", parameter)
    # Each rank has the whole tensor and takes its shard of it.
    return distribute_tensor(tensor, shard.device_mesh, shard.placements, src_data_rank=None)


def as_array(name: str, tensor: Tensor, model: nn.Module) -> np.ndarray:
    """Returns a model's parameter of that name, or its optimizer state, in the layout of weights.py: channels before height and width."""
    array, layer = tensor.detach().cpu().numpy(), _layer_of_weight(name, model)
    if array.ndim and isinstance(layer, Convolution):
        array = array.transpose(0, 3, 1, 2)
    elif array.ndim and isinstance(layer, FlattenedLinear):
        array = weights.flattened_channels_first(array, layer.image)
    return np.array(array, order="C")


def as_tensor(name: str, array: np.ndarray, model: nn.Module) -> Tensor:
    """Converts an array back to a tensor, the inverse of `as_array`, as a copy."""
    layer = _layer_of_weight(name, model)
    if array.ndim and isinstance(layer, Convolution):
        array = array.transpose(0, 2, 3, 1)
    elif array.ndim and isinstance(layer, FlattenedLinear):
        array = weights.flattened_channels_last(array, layer.image)
    return torch.tensor(np.array(array, order="C"))


def _layer_of_weight(name: str, model: nn.Module) -> nn.Module | None:
    """Returns the layer whose weight has this name; None for other parameters. PyTorch's own layers have the layout of weights.py."""
    layer, _, parameter = name.rpartition(".")
    return model.get_submodule(layer) if parameter == "weight" else None
