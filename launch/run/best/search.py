"""Which run a search of a backend's best batch and library setting makes next, from the runs that it has made.

It doubles the batch, then tries each setting of the library at the fastest batch, and then repeats the best in turns with the default.
Where there is a target, a whole training at the best ends it.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from common.config import NO_SETTING

# Throughput that the last doubling of the batch must have gained for another one.
LEAST_GAIN = 0.02
# Steps of an epoch whose throughput counts.
LEAST_STEPS = 4


class Trial(NamedTuple):
    """A run of a search: its batch size, its setting of the library, and what it is for. Pairs are repeated."""

    batch_size: int
    setting: str = NO_SETTING
    purpose: Literal["search", "pair", "solution"] = "search"
    repeat: int = 0


class Measured(NamedTuple):
    """What a run of a search has measured; without a throughput it failed, as for want of memory."""

    samples_per_second: float | None
    rank_bytes: float | None = None
    seconds_to_target: float | None = None


class Cell(NamedTuple):
    """What is searched: from which batch, among which settings, within which memory of a rank and samples of an epoch.

    `batch_ratio` is the global batch over the batch size, and `state_bytes` what a rank holds whatever its batch.
    """

    default_batch: int
    settings: tuple[str, ...]
    limit_bytes: float
    state_bytes: float
    num_samples: int
    batch_ratio: int
    num_pairs: int
    has_target: bool


# The runs of a search by what they are.
Runs = Mapping[Trial, Measured]


def next_trial(runs: Runs, cell: Cell) -> Trial | None:
    """Returns the run to make next; None where the search has ended."""
    default = Trial(cell.default_batch)
    if default not in runs:
        return default
    if runs[default].samples_per_second is None:
        return None
    if end_of_batches(runs, cell) is None:
        return Trial(2 * _largest(runs))
    batch_size = _fastest(runs, [trial for trial in _searched(runs) if trial.setting == NO_SETTING]).batch_size
    after_batches = [Trial(batch_size, setting) for setting in cell.settings]
    best = chosen({trial: measured for trial, measured in runs.items() if trial.purpose == "search"})
    if all(trial in runs for trial in after_batches):
        after_batches += pairs(default, best, cell.num_pairs)
        after_batches += [best._replace(purpose="solution")] if cell.has_target else []
    return next((trial for trial in after_batches if trial not in runs), None)


def pairs(default: Trial, best: Trial, num_pairs: int) -> list[Trial]:
    """Returns the repeats of the default and the best, each pair in another order than the one before; none where they are the same."""
    if best == default:
        return []
    repeats: list[Trial] = []
    for repeat in range(num_pairs):
        of_repeat = [trial._replace(purpose="pair", repeat=repeat) for trial in (default, best)]
        repeats += of_repeat if repeat % 2 == 0 else reversed(of_repeat)
    return repeats


def chosen(runs: Runs) -> Trial:
    """Returns the fastest run of those that searched."""
    return _fastest(runs, _searched(runs))


def end_of_batches(runs: Runs, cell: Cell) -> str | None:
    """Returns why no larger batch is tried; None where one is."""
    batches = sorted(trial.batch_size for trial in _searched(runs) if trial.setting == NO_SETTING)
    measured = [runs[Trial(size)] for size in batches]
    speeds = [run.samples_per_second for run in measured]
    if speeds[-1] is None:
        return f"a batch of {batches[-1]} failed"
    if len(speeds) > 1 and (before := speeds[-2]) and speeds[-1] <= (1 + LEAST_GAIN) * before:
        return f"a batch of {batches[-1]} gained no {100 * LEAST_GAIN:g} %"
    if 2 * batches[-1] * cell.batch_ratio * LEAST_STEPS > cell.num_samples:
        return f"an epoch has {cell.num_samples:,} samples"
    if (needed := expected_bytes([run.rank_bytes for run in measured], cell.state_bytes)) and needed > cell.limit_bytes:
        return f"a batch of {2 * batches[-1]} would need {needed / 1e9:.1f} GB"
    return None


def expected_bytes(bytes_by_batch: list[float | None], state_bytes: float) -> float | None:
    """Returns the memory of a rank with twice the last batch: the line through the last two, or at most twice all beyond the state."""
    last = bytes_by_batch[-1]
    if last is None:
        return None
    before = bytes_by_batch[-2] if len(bytes_by_batch) > 1 else None
    growth = last - state_bytes if before is None else 2 * (last - before)
    return last + max(growth, 0.0)


def _searched(runs: Runs) -> list[Trial]:
    return [trial for trial in runs if trial.purpose == "search"]


def _largest(runs: Runs) -> int:
    return max(trial.batch_size for trial in _searched(runs))


def _fastest(runs: Runs, trials: list[Trial]) -> Trial:
    return max(trials, key=lambda trial: runs[trial].samples_per_second or 0.0)
