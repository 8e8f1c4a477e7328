"""The table of a search: what each backend reaches at its best, and what it gains over the default."""

from collections.abc import Callable, Sequence
from statistics import geometric_mean
from typing import NamedTuple

from common.config import NO_SETTING
from common.terminal import Cell, filled, print_tables
from launch.run.best import search
from launch.run.best.search import Cell as Searched
from launch.run.best.search import Measured, Runs, Trial

QUESTION = "And if each may choose?"
NOTE = (
    "Batch and setting were searched in runs of one epoch, and the backends followed one another. Samples/s and gain are of runs of the "
    "default and the best in turns. These runs are in no other table."
)


MIB = 2**20


class Gain(NamedTuple):
    """The throughput of the best over that of the default, and its 95 % interval as text; None from too few pairs."""

    value: float
    interval: str | None


# The gain from the throughputs of the best and of the default in each pair.
GainOf = Callable[[list[float], list[float]], Gain]


class Best(NamedTuple):
    """What a search has found so far for a backend at a size."""

    workload: str
    num_ranks: int
    backend: str
    default: Trial
    chosen: Trial
    # Of the runs in turns, or else of those that searched.
    default_speed: float | None
    speed: float | None
    gain: Gain | None
    rank_bytes: float | None
    seconds_to_target: Cell
    end: str | None


def best_of(workload: str, num_ranks: int, backend: str, runs: Runs, cell: Searched, gain_of: GainOf) -> Best | None:
    """Returns what a search has found; None before its first run has completed."""
    default = Trial(cell.default_batch)
    if runs.get(default, Measured(None)).samples_per_second is None:
        return None
    chosen = search.chosen(runs)
    gain, default_speed, speed = None, runs[default].samples_per_second, runs[chosen].samples_per_second
    pairs = paired_speeds(default, chosen, runs, cell.num_pairs)
    if pairs:
        above, below = [list(side) for side in zip(*pairs, strict=True)]
        gain = gain_of(above, below)
        default_speed, speed = geometric_mean(below), geometric_mean(above)
    solution = runs.get(chosen._replace(purpose="solution"))
    seconds_to_target: Cell = None
    if solution:
        seconds_to_target = "not reached" if solution.seconds_to_target is None else solution.seconds_to_target
    end = search.end_of_batches(runs, cell)
    rank_bytes = runs[chosen].rank_bytes
    return Best(workload, num_ranks, backend, default, chosen, default_speed, speed, gain, rank_bytes, seconds_to_target, end)


def paired_speeds(default: Trial, chosen: Trial, runs: Runs, num_pairs: int) -> list[tuple[float, float]]:
    """Returns the throughput of the best and of the default in each pair that is complete."""
    pairs = []
    for repeat in range(num_pairs if chosen != default else 0):
        above, below = (runs.get(trial._replace(purpose="pair", repeat=repeat), Measured(None)) for trial in (chosen, default))
        if above.samples_per_second and below.samples_per_second:
            pairs.append((above.samples_per_second, below.samples_per_second))
    return pairs


def _row(best: Best) -> dict[str, Cell]:
    return {
        "workload": best.workload,
        "ranks": best.num_ranks,
        "backend": best.backend,
        "samples/s": best.speed,
        "--batch-size": best.chosen.batch_size,
        "setting": None if best.chosen.setting == NO_SETTING else best.chosen.setting,
        "gain": best.gain and best.gain.value,
        "95 % interval": best.gain and best.gain.interval,
        "default samples/s": best.default_speed,
        "default batch": best.default.batch_size,
        "memory of a rank (MiB)": best.rank_bytes and best.rank_bytes / MIB,
        "time to solution (s)": best.seconds_to_target,
        "no larger batch, since": best.end,
    }


def show(bests: Sequence[Best]) -> None:
    """Prints the table, the fastest of each workload and size first."""
    ordered = sorted(bests, key=lambda best: (best.workload, best.num_ranks, -(best.speed or 0.0)))
    print_tables(filled(QUESTION, map(_row, ordered)), [NOTE] if bests else [])
