"""How much memory a training needs on each rank, by backend, before it runs."""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from common import command_line
from common.backends import chosen, has_one_rank
from common.command_line import FROM_1, LAYERS, RANKS, Bounds
from common.config import Optimizer
from common.cost import memory_forecast
from common.errors import UserError
from common.model.families import can_recompute
from common.model.workload_table import WORKLOADS
from launch.forecast.memory import described, shown
from launch.forecast.memory.fits import fit, size_of
from launch.forecast.memory.shown import Row
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

    workload: Annotated[str | None, tyro.conf.arg(help=f"Preset: {', '.join(WORKLOADS)}.")] = None
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


def run(arguments):
    """Prints the forecast and returns the exit status. Raises UserError, before anything is printed, for what describes none."""
    training = described.training_of(arguments)
    limit = size_of(arguments.fits) if arguments.fits is not None else None
    files.check_all({"--picture": arguments.picture, "--json": arguments.json})
    rows, left_out = [], []
    for name in _names(arguments.backends):
        num_ranks = 1 if has_one_rank(name.partition("+")[0]) else arguments.ranks
        reason = memory_forecast.problem(name, training, num_ranks)
        if reason and arguments.backends:
            raise UserError(reason)
        if reason:
            left_out.append(reason)
        else:
            rows.append(_row(name, training, num_ranks))
    fits = [fit(row.name, training, row.num_ranks, limit) for row in rows] if limit else []
    text_of = {
        arguments.picture: functools.partial(shown.picture, training, rows),
        arguments.json: functools.partial(shown.as_json, training, rows, left_out, fits),
    }
    failures = files.write_all({path: text for path, text in text_of.items() if path})
    terminal.show(shown.answer(training, rows, left_out, fits, limit))
    if failures:
        raise UserError(failures)
    return 0


def _names(text):
    """The names of a comma-separated list, those of WAYS for None. Raises UserError for an unknown one."""
    names = WAYS if text is None else command_line.names_in(text)
    if not names:
        raise UserError(f"--backends is {text!r}; give backends such as ddp,fsdp,deepspeed_zero@3")
    for name in names:
        chosen(name.partition("+")[0])
    return names


def _row(name, training, num_ranks):
    by_rank = memory_forecast.by_rank(name, training, num_ranks)
    most = max(by_rank, key=lambda forecast: forecast.peak)
    recomputed = None
    if can_recompute(training.model) and not training.recompute:
        recomputed = memory_forecast.of(name, training._replace(recompute=True), num_ranks).activations
    return Row(name, num_ranks, most, recomputed, by_rank)


if __name__ == "__main__":
    command_line.main(run, Memory, PROGRAM, "Forecasts how much memory a training needs on each rank, by backend, before it runs.")
