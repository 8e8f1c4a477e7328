"""How much memory a training needs on each rank, by backend, before it runs."""

import functools
from collections.abc import Sequence

from common import command_line
from common.backends import chosen, has_one_rank
from common.cost import memory_forecast
from common.cost.memory_forecast import Training
from common.errors import UserError
from launch.forecast.memory import described, shown
from launch.forecast.memory.described import Memory
from launch.forecast.memory.fits import fit, size_of
from launch.forecast.memory.shown import Row
from launch.report.export import files, terminal

PROGRAM = "python -m launch.memory"
WAYS = (
    "single", "ddp", "horovod_torch", "zero_redundancy", "deepspeed_zero", "deepspeed_zero@2", "deepspeed_zero@3", "fsdp", "fsdp@hsdp",
    "tensor_parallel", "pipeline", "pipeline@gpipe", "pipeline@interleaved", "pipeline@zero_bubble", "deepspeed_zero@2+offload",
    "deepspeed_zero@3+offload", "deepspeed_zero@3+offload_parameters",
)  # fmt: skip


def run(arguments: Memory) -> int:
    """Prints the forecast and returns the exit status. Raises UserError, before anything is printed, where nothing can be forecast."""
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
    fits = [fit(row.backend, training, row.num_ranks, limit) for row in rows] if limit else []
    text_of = {
        arguments.picture: functools.partial(shown.picture, training, rows),
        arguments.json: functools.partial(shown.as_json, training, rows, left_out, fits),
    }
    failures = files.write_all({path: text for path, text in text_of.items() if path})
    terminal.show(shown.answer(training, rows, left_out, fits, limit))
    if failures:
        raise UserError(failures)
    return 0


def _names(text: str | None) -> Sequence[str]:
    """Reads the names of a comma-separated list, or returns WAYS for None. Raises UserError for an unknown name."""
    names = WAYS if text is None else command_line.names_in(text)
    if not names:
        raise UserError(f"--backends is {text!r}; give backends such as ddp,fsdp,deepspeed_zero@3")
    for name in names:
        chosen(name.partition("+")[0])
    return names


def _row(name: str, training: Training, num_ranks: int) -> Row:
    by_rank = memory_forecast.by_rank(name, training, num_ranks)
    most = max(by_rank, key=lambda forecast: forecast.peak)
    recomputed = None
    if described.can_forecast_recomputed(training.model) and not training.recompute:
        recomputed = memory_forecast.of(name, training._replace(recompute=True), num_ranks).activations
    return Row(name, num_ranks, most, recomputed, by_rank)


if __name__ == "__main__":
    command_line.main(run, Memory, PROGRAM, "Forecasts how much memory a training needs on each rank, by backend, before it runs.")
