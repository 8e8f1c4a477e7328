"""What a rank holds in memory at the points of a training step in PyTorch."""

import contextlib
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from common.trainer import POINTS, TensorBytes
from frameworks.shared.pytorch.states import local, reshard


@contextlib.contextmanager
def at_points(module: nn.Module, optimizer: Optimizer, count: Callable[[], TensorBytes] | None = None) -> Iterator[dict[str, TensorBytes]]:
    """Returns the context of Trainer.memory. `count()`: what the rank holds; default: parameters and optimizer state."""
    reshard(module)
    optimizer, bytes_at = local(optimizer), {}
    # FSDP holds whole parameters, which then are the module's, beside the shards.
    shards = list(module.parameters())
    count = count or (lambda: bytes_of([*shards, *module.parameters()], optimizer))

    def note(point: str) -> None:
        bytes_at[point] = count()

    hooks = (module.register_forward_hook, optimizer.register_step_pre_hook, optimizer.register_step_post_hook)
    with contextlib.ExitStack() as registered:
        for point, register in zip(POINTS, hooks, strict=True):
            registered.callback(register(lambda *_, point=point: note(point)).remove)
        yield bytes_at


def bytes_of(
    parameters: list[Tensor], optimizer: Optimizer, gradients: Iterable[Tensor] = (), masters: Iterable[Tensor] = ()
) -> TensorBytes:
    """Returns the TensorBytes of parameters, of their gradients and others, and of an optimizer with its master parameters."""
    gradients = [*gradients, *(parameter.grad for parameter in parameters if parameter.grad is not None)]
    state = [value for parameter_state in optimizer.state.values() for value in parameter_state.values() if torch.is_tensor(value)]
    return TensorBytes(storage_bytes(parameters), storage_bytes(gradients), storage_bytes([*state, *masters]))


def storage_bytes(tensors: Iterable[Tensor]) -> int:
    """Returns the bytes of the memory of tensors, several of which may be views. Of a sharded tensor this rank's part counts."""
    parts: list[Tensor] = [getattr(tensor, "to_local", tensor.detach)() for tensor in tensors]
    return sum({(storage := tensor.untyped_storage()).data_ptr(): storage.nbytes() for tensor in parts}.values())
