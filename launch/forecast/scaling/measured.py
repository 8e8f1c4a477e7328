"""What a forecast takes from the records of one backend at one number of ranks."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np

from common.cost.collectives import bus_bytes
from common.record import records
from common.record.definition import Record
from common.record.parts import Library, Operation, StepBreakdown
from launch.forecast.scaling import stragglers
from launch.forecast.scaling.model import Exchange, evenly
from launch.report import epochs, statistics

# Collectives of gradients, which overlap with the backward pass; unless their starts are measured, others overlap with nothing.
OF_GRADIENTS = ("all_reduce", "reduce_scatter")
# What torch.distributed does over Gloo: its reduce-scatter is an all-reduce of the whole buffer.
OVER_GLOO = {"reduce_scatter": "all_reduce", "all_gather": "gloo_all_gather"}
# Smaller ones are flags, such as DeepSpeed's check for overflow.
MIN_BYTES = 64
# The sizes in bytes and the seconds of plain all-reduces, by backend and number of ranks.
PlainAllReduces = Mapping[tuple[str, int], Sequence[tuple[float, float]]]


class Size(NamedTuple):
    """Typical values of the runs at one number of ranks. Seconds are those of a step, except for evaluation and load.

    `timed_step_seconds` are of the timed training, `compute_seconds` and `data_wait_seconds` of the step breakdown. `plain` has the sizes
    in bytes and the seconds of plain all-reduces. `num_samples` is of the data set, `batch_size` global.
    """

    num_ranks: int
    num_nodes: int
    timed_step_seconds: float
    compute_seconds: float
    data_wait_seconds: float
    evaluation_seconds: float
    load_seconds: float
    num_samples: int
    batch_size: int
    plain: tuple[tuple[float, float], ...]
    exchanges: tuple[Exchange, ...]
    exchanges_are_measured: bool
    slowest: stragglers.Slowest

    @property
    def samples_per_second(self) -> float:
        return self.batch_size / self.timed_step_seconds


def of(completed: Iterable[Record], plain: PlainAllReduces) -> Size | None:
    """Sums up the completed runs that have a step breakdown; None where there are none."""
    ok = [record for record in completed if record.status == "ok" and record.samples_per_epoch]
    measured = [record for record in ok if record.step_breakdown and record.step_seconds]
    if not measured:
        return None
    first = measured[0]
    exchanges, are_measured = exchanges_of(first)
    relative = [stragglers.relative(statistics.present(record.step_seconds), len(record.train_seconds)) for record in measured]
    return Size(
        num_ranks=first.num_ranks,
        num_nodes=first.num_nodes or 1,
        timed_step_seconds=_trimmed_mean(measured, epochs.timed_step_seconds),
        compute_seconds=_trimmed_mean(measured, lambda record: fmean(_breakdown_of(record).compute_seconds)),
        data_wait_seconds=_trimmed_mean(measured, lambda record: fmean(_breakdown_of(record).data_wait_seconds)),
        evaluation_seconds=_trimmed_mean(measured, lambda record: fmean(statistics.present(record.eval_seconds) or [0.0])),
        load_seconds=_trimmed_mean(measured, lambda record: record.load_seconds or 0.0),
        num_samples=(first.samples_per_epoch or 0) + (first.samples_dropped_per_epoch or 0),
        batch_size=records.plan_of(first).global_batch,
        plain=tuple(plain.get((first.backend, first.num_ranks), ())),
        exchanges=tuple(exchanges),
        exchanges_are_measured=are_measured,
        slowest=stragglers.Slowest(np.sort(np.concatenate(relative)), first.num_ranks),
    )


def _trimmed_mean(measured: list[Record], value: Callable[[Record], float | None]) -> float:
    mean = statistics.trimmed_mean(map(value, measured))
    return math.nan if mean is None else mean


def _breakdown_of(record: Record) -> StepBreakdown:
    assert record.step_breakdown, "forecasts take only runs with a step breakdown"
    return record.step_breakdown


def plain_of(record: Record) -> list[tuple[float, float]]:
    """Returns the sizes and seconds of a run's plain all-reduces, or that of the gradients' size alone, from the bus bandwidth."""
    breakdown, num_ranks = _breakdown_of(record), record.num_ranks
    if breakdown.all_reduce_seconds_by_size:
        return [(size, seconds) for size, seconds in breakdown.all_reduce_seconds_by_size]
    bandwidth, operations = breakdown.plain_bus_bytes_per_second, breakdown.operations
    size = max((operations[name].num_bytes for name in OF_GRADIENTS if name in operations), default=0)
    return [(size, bus_bytes("all_reduce", size, num_ranks) / bandwidth)] if bandwidth and size else []


def exchanges_of(record: Record) -> tuple[list[Exchange], bool]:
    """Returns the exchanges of a run's step, and whether the starts of those of gradients were measured.

    Without a measured start, gradients are exchanged evenly over the backward pass, and computation waits for all else, such as parameters.
    """
    breakdown, num_ranks = _breakdown_of(record), record.num_ranks
    compute = fmean(breakdown.compute_seconds)
    exchanges, are_measured = [], False
    for name, operation in breakdown.operations.items():
        sizes = _sizes(name, operation, breakdown.library, num_ranks)
        collective = OVER_GLOO.get(name, name) if record.transport == "gloo" else name
        if sizes and (starts := _starts(name, collective, breakdown)):
            are_measured |= name in OF_GRADIENTS
            sizes = sizes if len(sizes) == len(starts) else [sum(sizes) / len(starts)] * len(starts)
            exchanges += [Exchange(min(1.0, start / compute), size, collective) for start, size in zip(starts, sizes, strict=True)]
        elif name in OF_GRADIENTS:
            exchanges += evenly(sizes, collective)
        else:
            exchanges += [Exchange(1.0, size, collective) for size in sizes]
    return sorted(exchanges), are_measured


def _starts(name: str, collective: str, breakdown: StepBreakdown) -> list[float] | None:
    """Returns the seconds from the beginning of a step to the starts of a collective; None if not measured.

    The profile may have the starts under another name, that of the collective which the library does for it.
    """
    measured = breakdown.exchange_start_seconds or {}
    # Those of two operations would be one list.
    mixed = collective != name and collective in breakdown.operations
    return measured.get(name) or (None if mixed else measured.get(collective))


def _sizes(name: str, operation: Operation, library: Library, num_ranks: int) -> list[float]:
    """Returns the whole buffers of a collective in a step: DDP's buckets, or equal parts."""
    if name == "all_reduce" and (buckets := library.get("rebuilt_bucket_sizes")):
        return [float(size) for size in buckets.split(",")]
    num = max(1, round(operation.num_calls))
    # To a gather a rank contributes its share of the buffer.
    size = operation.num_bytes / num * (num_ranks if name == "all_gather" else 1)
    return [size] * num if size >= MIN_BYTES else []
