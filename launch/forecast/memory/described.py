"""The options of a memory forecast, and the training that they describe."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from common import workloads
from common.command_line import FROM_1, LAYERS, RANKS, Bounds, flag
from common.config import Optimizer, Settings
from common.cost import memory_forecast
from common.cost.memory_forecast import Training
from common.errors import UserError
from common.model import model_sizes
from common.model.families import Decoder, EncoderDecoder, Model, can_recompute
from common.model.own_model import OwnModel
from common.model.workload_table import WORKLOADS

# The vocabulary and the width of a head of GPT-2.
VOCABULARY, HEAD_WIDTH = 50_257, 64
BATCH_SIZE, CONTEXT = 8, 1024
# Options that describe a decoder.
SIZES = ("params", "layers", "width", "heads", "context", "vocabulary")


@dataclass(frozen=True)
class Memory:
    """What is forecast: a preset, a model of the user's own, or a decoder of the described sizes."""

    workload: Annotated[str | None, tyro.conf.arg(help=f"Preset: {', '.join(WORKLOADS)}.")] = None
    model: str | None = None
    """A model of your own (frameworks/own_model/README.md): its file, or package.module."""
    model_args: str | None = None
    """Arguments of its model() as a JSON object."""
    params: Annotated[float | None, Bounds(at_least=1, at_most=1e18)] = None
    """Number of parameters, such as 1e12, in place of what the sizes give. Needs --layers and --width, from which activations follow."""
    layers: Annotated[int | None, LAYERS] = None
    """Layers of a decoder."""
    width: Annotated[int | None, FROM_1] = None
    """Width of a decoder."""
    heads: Annotated[int | None, FROM_1] = None
    """Heads of a decoder. Default: one for each 64 of the width."""
    context: Annotated[int | None, FROM_1] = None
    """Positions in a sample of a decoder. Default: 1024."""
    vocabulary: Annotated[int | None, FROM_1] = None
    """Tokens that a decoder knows. Default: 50257, GPT-2's."""
    batch_size: Annotated[int | None, FROM_1] = None
    """Samples per step of a rank, or of the ranks that compute one model together. Default: the preset's, or 8."""
    ranks: Annotated[int, RANKS] = 8
    """Number of ranks."""
    ranks_per_node: Annotated[int | None, RANKS] = None
    """Ranks of a node, over which fsdp@hsdp shards. Default: all, in two halves."""
    precision: Literal["fp32", "tf32", "fp64", "bf16", "bf16_masters", "bf16_pure"] = "fp32"
    """bf16: mixed, as --precision bf16 trains here. bf16_masters: parameters and gradients in 16 bits, with float32 masters. bf16_pure:
    all in 16 bits."""
    optimizer: Optimizer | None = None
    """Default: the preset's, or adam."""
    recompute: bool = False
    """Do not keep the activations inside a layer, but compute them again."""
    microbatches: Annotated[int | None, FROM_1] = None
    """Micro-batches of a pipeline's step. Default: as many as ranks."""
    device: Literal["cuda", "cpu"] = "cuda"
    """Whose kernels: those of GPUs keep fewer activations."""
    backends: Annotated[str | None, tyro.conf.arg(aliases=("--way",))] = None
    """Backends and variants, separated by commas, also with +offload (gradients and optimizer state in main memory) or +offload_parameters.
    Default: those that divide memory differently. What cannot divide the model is left out with the reason."""
    fits: str | None = None
    """Memory of a rank, such as 80GB: which backends fit, the largest model that does, and the fewest ranks."""
    picture: Path | None = None
    """Write stacked bars as an SVG picture."""
    json: Path | None = None
    """Write the forecast as JSON, in bytes."""


def training_of(arguments: Memory) -> Training:
    """Returns the training that the command line describes. Raises UserError where it describes none."""
    sizes = [flag(name) for name in SIZES if getattr(arguments, name) is not None]
    named = [flag(name) for name in ("workload", "model") if getattr(arguments, name)]
    if named and sizes:
        raise UserError(f"{sizes[0]} is for a model that is described by --layers and --width; leave it out, or {named[0]}")
    if len(named) > 1:
        raise UserError("--model stands in place of --workload; leave one of them out")
    settings = Settings(workload=arguments.workload or "cnn", model=arguments.model, model_args=arguments.model_args)
    preset = workloads.workload_of(settings) if named or arguments.model_args else None
    model = preset.model if preset else _decoder(arguments, sizes)
    if arguments.recompute and not can_forecast_recomputed(model):
        reason = "of whose layers nothing is known" if arguments.model else "which has few layers"
        raise UserError(f"--recompute would save no memory of {arguments.model or arguments.workload}, {reason}; leave it out")
    return Training(
        model=model,
        batch_size=arguments.batch_size or (preset.batch_size if preset else BATCH_SIZE),
        precision=arguments.precision,
        optimizer=arguments.optimizer or (preset.optimizer if preset else "adam"),
        recompute=arguments.recompute,
        microbatches=arguments.microbatches or arguments.ranks,
        num_parameters=arguments.params,
        device=arguments.device,
        ranks_per_node=arguments.ranks_per_node,
    )


def can_forecast_recomputed(model: Model) -> bool:
    """Returns whether the layers of a model that --recompute computes again are described."""
    return not isinstance(model, OwnModel) and can_recompute(model)


def _decoder(arguments: Memory, sizes: list[str]) -> Decoder:
    layers, width = arguments.layers, arguments.width
    if layers is None or width is None:
        missing = [flag(name) for name, value in (("layers", layers), ("width", width)) if value is None]
        problem = f"{' and '.join(sizes)} alone describe no model, {' and '.join(missing)} missing" if sizes else "no model is given"
        raise UserError(f"{problem}; give --layers and --width, or a preset with --workload")
    heads = arguments.heads or max(1, width // HEAD_WIDTH)
    decoder = Decoder(width, heads, layers, arguments.context or CONTEXT, arguments.vocabulary or VOCABULARY)
    model_sizes.check_heads(decoder)
    return decoder


def description(training: Training) -> str:
    """Describes the training in a line."""
    model = training.model
    sizes = f", {model.num_layers} layers of width {model.width:,}" if isinstance(model, Decoder | EncoderDecoder) else ""
    return (
        f"{memory_forecast.num_parameters(training):,.0f} parameters{sizes}; {training.batch_size:,} samples per step, "
        f"{training.precision}, {training.optimizer}{', recomputed' if training.recompute else ''}"
    )
