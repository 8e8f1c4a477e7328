"""How much memory a training needs on each rank, by backend, before it runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from common import backends, command_line, memory_forecast
from common.backends import has_one_rank
from common.errors import UserError
from common.models import LAYERED
from launch.memory import described, shown
from launch.memory.fits import fit, size_of
from launch.memory.shown import Row
from launch.report.export import files, terminal

PROGRAM = "python -m launch.memory"
WAYS = (
    "single", "ddp", "horovod_torch", "zero_redundancy", "deepspeed_zero", "deepspeed_zero@2", "deepspeed_zero@3", "fsdp", "fsdp@hsdp",
    "tensor_parallel", "pipeline", "pipeline@gpipe", "pipeline@interleaved", "pipeline@zero_bubble", "deepspeed_zero@2+offload",
    "deepspeed_zero@3+offload", "deepspeed_zero@3+offload_parameters",
)  # fmt: skip


@dataclass(frozen=True)
class Memory:
    """What is forecast: a preset, or a decoder of the described sizes."""

    workload: str | None = None
    """Preset: cnn, transformer, transformer-gpt2, transformer-1b, resnet50, …"""
    params: float | None = None
    """Number of parameters, such as 1e12, in place of what the sizes give. Needs --layers and --width, from which activations follow."""
    layers: int | None = None
    """Layers of a decoder."""
    width: int | None = None
    """Width of a decoder."""
    heads: int | None = None
    """Heads of a decoder. Default: one for each 64 of the width."""
    context: int | None = None
    """Positions in a sample of a decoder. Default: 1024."""
    vocabulary: int | None = None
    """Tokens that a decoder knows. Default: 50257, GPT-2's."""
    batch_size: int | None = None
    """Samples per step of a rank, or of the ranks that compute one model together. Default: the preset's, or 8."""
    ranks: int = 8
    """Number of ranks."""
    precision: Literal["fp32", "tf32", "fp64", "bf16", "bf16_masters", "bf16_pure"] = "fp32"
    """bf16: mixed, as --precision bf16 trains here. bf16_masters: parameters and gradients in 16 bits, with float32 masters. bf16_pure:
    all in 16 bits."""
    optimizer: Literal["sgd", "adam"] | None = None
    """Default: the preset's, or adam."""
    recompute: bool = False
    """Do not keep the activations inside a layer, but compute them again."""
    microbatches: int | None = None
    """Micro-batches of a pipeline's step. Default: as many as ranks."""
    device: Literal["cuda", "cpu"] = "cuda"
    """Whose kernels: those of GPUs keep fewer activations."""
    way: str | None = None
    """Backends and variants, separated by commas, also with +offload (gradients and optimizer state in main memory) or +offload_parameters.
    Default: those that divide memory differently. What cannot divide the model is left out with the reason."""
    fits: str | None = None
    """Memory of a rank, such as 80GB: which backends fit, the largest model that does, and the fewest ranks."""
    picture: Path | None = None
    """Write stacked bars as an SVG picture."""
    json: Path | None = None
    """Write the forecast as JSON, in bytes."""


def run(arguments):
    """Prints the forecast and returns the exit status. Raises UserError, before anything is printed, for what describes none."""
    training = described.training_of(arguments)
    limit = size_of(arguments.fits) if arguments.fits is not None else None
    for path, option in ((arguments.picture, "--picture"), (arguments.json, "--json")):
        if path:
            files.check(path, option)
    rows, left_out = [], []
    for name in _names(arguments.way):
        num_ranks = 1 if has_one_rank(name.partition("+")[0]) else arguments.ranks
        reason = memory_forecast.problem(name, training, num_ranks)
        if reason and arguments.way:
            raise UserError(reason)
        if reason:
            left_out.append(reason)
        else:
            rows.append(_row(name, training, num_ranks))
    fits = [fit(row.name, training, row.num_ranks, limit) for row in rows] if limit else []
    if arguments.picture:
        files.write(arguments.picture, shown.picture(training, rows))
    if arguments.json:
        files.write(arguments.json, shown.as_json(training, rows, left_out, fits))
    terminal.show(shown.page(training, rows, left_out, fits, limit))
    return 0


def _names(way):
    """The names of a comma-separated list, those of WAYS for None. Raises UserError for an unknown one."""
    if way is None:
        return WAYS
    names = [name.strip() for name in way.split(",") if name.strip()]
    if not names:
        raise UserError(f"--way is {way!r}; give backends such as ddp,fsdp,deepspeed_zero@3")
    for name in names:
        backends.chosen(name.partition("+")[0])
    return names


def _row(name, training, num_ranks):
    by_rank = memory_forecast.by_rank(name, training, num_ranks)
    most = max(by_rank, key=lambda one: one.peak)
    recomputed = None
    if isinstance(training.model, LAYERED) and not training.recompute:
        recomputed = memory_forecast.of(name, training._replace(recompute=True), num_ranks).activations
    return Row(name, num_ranks, most, recomputed, by_rank)


if __name__ == "__main__":
    command_line.main(run, Memory, PROGRAM, "Forecasts how much memory a training needs on each rank, by backend, before it runs.")
