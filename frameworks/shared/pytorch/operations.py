"""The operations of common/model/operations.py in PyTorch, each as the models compute it, and their passes."""

import functools
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from common.model import operations
from common.model.decoder import rotary_tables
from common.model.operations import Operand, Operation
from common.trainer import Passes
from frameworks.shared.pytorch import steps
from frameworks.shared.pytorch.models.decoder import rotated
from frameworks.shared.pytorch.models.resnet import batch_norm


def passes(operation: Operation, copies: Sequence[Sequence[np.ndarray]], device: torch.device, precision: str) -> Passes:
    """Returns the Passes of copies of an operation, given their operands."""
    mixed = precision == "bf16"
    operands = [[_tensor(*pair, device, mixed) for pair in zip(operation.operands, arrays, strict=True)] for arrays in copies]
    leaves = [tensor for tensors in operands for tensor in tensors if tensor.requires_grad]
    compute = functools.partial(FUNCTIONS[type(operation)], operation)

    def outputs() -> list[Tensor]:
        with torch.autocast(device.type, torch.bfloat16, enabled=mixed):
            return [compute(*tensors) for tensors in operands]

    gradients = [torch.rand_like(output) for output in outputs()]

    def forward() -> None:
        outputs()

    def forward_and_backward() -> None:
        if copies:
            torch.autograd.grad(outputs(), leaves, gradients)

    return Passes(forward, forward_and_backward)


def update(optimizer: torch.optim.Optimizer) -> Callable[[], object]:
    """Returns the `update` of a Trainer."""
    steps.set_learning_rate(optimizer, 0.0)
    for parameter in (parameter for group in optimizer.param_groups for parameter in group["params"]):
        parameter.grad = torch.rand_like(parameter)
    return optimizer.step


def _tensor(operand: Operand, array: np.ndarray, device: torch.device, mixed: bool) -> Tensor:
    if operand.parameter and array.ndim == 4:
        # As a Convolution of models/layers.py has it.
        array = np.ascontiguousarray(array.transpose(0, 2, 3, 1))
    tensor = torch.from_numpy(array).to(device)
    if operand.low and mixed:
        tensor = tensor.to(torch.bfloat16)
    return tensor.requires_grad_(operand.has_gradient)


def _convolution(operation: operations.Convolution, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return functional.conv2d(_channels_first(x), _channels_first(weight), bias, operation.stride, operation.padding)


def _dense(_: operations.Dense, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return functional.linear(x, weight, bias)


def _attention(operation: operations.Attention, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    query, key, value = (tensor.unflatten(-1, (operation.num_heads, -1)).transpose(1, 2) for tensor in (query, key, value))
    if operation.causal:
        rotary = _rotary(operation, query.device, torch.float64 if query.dtype == torch.float64 else torch.float32)
        query, key = rotated(query, rotary), rotated(key, rotary)
    mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=operation.causal)
    return mixed.transpose(1, 2).flatten(2)


@functools.cache
def _rotary(operation: operations.Attention, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    cosine, sine = (torch.from_numpy(table).to(device, dtype) for table in rotary_tables(operation.num_queries, operation.head_width))
    return cosine, sine


def _norm(operation: operations.Norm, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if bias is None:
        return functional.rms_norm(x, weight.shape, weight, operation.epsilon)
    if operation.name == "layer":
        return functional.layer_norm(x, weight.shape, weight, bias, operation.epsilon)
    return batch_norm(_channels_first(x), weight, bias, operation.epsilon)


def _embedding(_: operations.Embedding, tokens: Tensor, table: Tensor) -> Tensor:
    return functional.embedding(tokens, table)


def _activation(_: operations.Activation, x: Tensor, factor: Tensor | None = None) -> Tensor:
    return x.relu() if factor is None else functional.silu(x) * factor


def _residual(_: operations.Residual, x: Tensor, added: Tensor) -> Tensor:
    return x + added


def _pooling(operation: operations.Pooling, x: Tensor) -> Tensor:
    if operation.size is None:
        return _channels_first(x).mean((2, 3))
    return functional.max_pool2d(_channels_first(x), operation.size, operation.stride, operation.padding)


def _loss(_: operations.Loss, logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    return steps.weighted_loss(logits, targets, weights)


def _channels_first(x: Tensor) -> Tensor:
    """Returns images, or the weight of a convolution, that lie in memory with channels last."""
    return x.permute(0, 3, 1, 2)


FUNCTIONS: dict[type[Operation], Callable[..., Tensor]] = {
    operations.Convolution: _convolution,
    operations.Dense: _dense,
    operations.Attention: _attention,
    operations.Norm: _norm,
    operations.Embedding: _embedding,
    operations.Activation: _activation,
    operations.Residual: _residual,
    operations.Pooling: _pooling,
    operations.Loss: _loss,
}
