"""The models in PyTorch, and how a run builds its model."""

import functools
import os
import shutil
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.checkpoint import checkpoint

from common.config import Settings
from common.errors import UserError
from common.model import user_model
from common.model.cnn import Cnn
from common.model.decoder import Decoder
from common.model.encoder_decoder import EncoderDecoder
from common.model.resnet import ResNet50
from common.model.user_model import UserModel
from common.ranks.launcher_variables import Ranks
from common.workloads import workload_of
from frameworks.shared.pytorch.criteria import CROSS_ENTROPY, Criterion
from frameworks.shared.pytorch.models import user
from frameworks.shared.pytorch.models.cnn import CnnModule
from frameworks.shared.pytorch.models.decoder import DecoderModule
from frameworks.shared.pytorch.models.encoder_decoder import EncoderDecoderModule
from frameworks.shared.pytorch.models.resnet import ResNet50Module

MODELS: dict[type[Any], type[nn.Module]] = {
    Cnn: CnnModule, Decoder: DecoderModule, EncoderDecoder: EncoderDecoderModule, ResNet50: ResNet50Module,
}  # fmt: skip
# The types of parameters, their gradients and the loss.
DTYPES = {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.float32, "tf32": torch.float32}


class Implementation(NamedTuple):
    """How PyTorch computes a kind of model, given its description."""

    module: Callable[[Any, Settings, torch.device, Ranks], nn.Module]
    criterion: Callable[[Any], Criterion]
    # None: the optimizer is that of the settings.
    optimizer: Callable[[Any, nn.Module], Optimizer | None]
    # Those that keep no activations with --recompute, and that FSDP shards by themselves.
    layers: Callable[[Any, nn.Module], Iterable[nn.Module]]


def _built_in(model: Any, settings: Settings, device: torch.device, _: Ranks) -> nn.Module:
    module: Any = MODELS[type(model)](model, settings.dropout)
    module = module.to(device=device, dtype=DTYPES[settings.precision])
    for parameter in module.parameters():
        # Uninitialized values may overflow in the warm-up step. DeepSpeed would skip that step and allocate no optimizer state.
        nn.init.zeros_(parameter)
    module.mixed = settings.precision == "bf16"
    return module


def _layers(_: Any, module: Any) -> Iterable[nn.Module]:
    return getattr(module, "layers", list)()


BUILT_IN = Implementation(_built_in, lambda _: CROSS_ENTROPY, lambda *_: None, _layers)
IMPLEMENTATIONS = dict.fromkeys(MODELS, BUILT_IN) | {
    UserModel: Implementation(
        user.build, user.UserCriterion, user.optimizer_of, lambda model, module: user_model.layers_of(model.file, module)
    ),
}


def build(settings: Settings, device: torch.device | str, ranks: Ranks) -> nn.Module:
    """Builds the model on its device. Parameters are set before training; the random seed is for dropout."""
    model, seed_of_dropout = workload_of(settings).model, settings.seed * 100_003 + ranks.rank
    torch.manual_seed(seed_of_dropout)
    module = IMPLEMENTATIONS[type(model)].module(model, settings, torch.device(device), ranks)
    if settings.recompute:
        for layer in layers_of(settings, module):
            if any(getattr(part, "running_mean", None) is not None for part in layer.modules()):
                raise UserError("--recompute would update the running statistics of a layer's batch norm twice a step; leave it out")
            # Its class, since copies of a module, such as DataParallel's, keep it and their own parameters.
            layer.__class__ = recomputed(type(layer))
    if settings.compile:
        compile_forward(module)
    return module


def layers_of(settings: Settings, module: nn.Module) -> list[nn.Module]:
    """Returns the layers of a model that keep no activations with --recompute, and that FSDP shards by themselves."""
    model = workload_of(settings).model
    return list(IMPLEMENTATIONS[type(model)].layers(model, module))


def criterion_of(settings: Settings) -> Criterion:
    """Returns the Criterion of the settings' model."""
    model = workload_of(settings).model
    return IMPLEMENTATIONS[type(model)].criterion(model)


def optimizer_of(settings: Settings, module: nn.Module) -> Optimizer | None:
    """Returns the optimizer that the model itself makes; None where it makes none."""
    model = workload_of(settings).model
    return IMPLEMENTATIONS[type(model)].optimizer(model, module)


@functools.cache
def recomputed(layer_class: type[nn.Module]) -> type[nn.Module]:
    """Returns a class of layers whose forward pass is a `recomputed_function`."""
    return type(layer_class.__name__, (layer_class,), {"forward": recomputed_function(layer_class.forward)})


def recomputed_function(function: Callable) -> Callable:
    """Returns a function that keeps its arguments alone for the backward pass, which computes the rest again."""

    def computed(*arguments: Any, **settings: Any) -> Any:
        return checkpoint(function, *arguments, use_reentrant=False, **settings)

    return computed


def compile_forward(module: nn.Module) -> None:
    """Replaces a module's forward by one that is compiled, with its backward, at the first training step.

    Raises UserError if the C++ compiler that torch.compile calls is missing.
    """
    compiler = os.environ.get("CXX", "g++")
    if not shutil.which(compiler):
        raise UserError(f"--compile requires a C++ compiler, but {compiler} was not found; install it, or set CXX, e.g. CXX=clang++")
    plain = module.forward
    # No graph breaks: they are slower and may be compiled later, on the clock.
    compiled = torch.compile(plain, fullgraph=True, dynamic=False)

    def forward(inputs: torch.Tensor) -> torch.Tensor:
        # The size of evaluation batches is known only when the data has been read, on the clock, too late to compile for it.
        return compiled(inputs) if module.training else plain(inputs)

    module.forward = forward
