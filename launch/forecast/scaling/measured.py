"""What a forecast takes from the records of one backend at one number of ranks. Pure."""

from typing import NamedTuple

import numpy as np

from common.cost.collectives import bus_bytes
from launch.forecast.scaling import stragglers
from launch.forecast.scaling.model import Exchange, evenly
from launch.report import epochs, statistics

# Collectives of gradients, which overlap with the backward pass; unless their starts are measured, others overlap with nothing.
OF_GRADIENTS = ("all_reduce", "reduce_scatter")
# What torch.distributed does over Gloo: its reduce-scatter is an all-reduce of the whole buffer.
OVER_GLOO = {"reduce_scatter": "all_reduce", "all_gather": "gloo_all_gather"}
# Smaller ones are flags, such as DeepSpeed's check for overflow.
MIN_BYTES = 64


class Size(NamedTuple):
    """Typical values of the runs at one number of ranks. Seconds are those of a step, but for `evaluation_seconds`.

    `step_seconds`: of the timed training. `compute_seconds`, `data_wait_seconds`: from the step breakdown. `plain`: the sizes in bytes and
    seconds of plain all-reduces. `num_samples`: of the data set; `batch_size`: the global batch.
    """

    num_ranks: int
    num_nodes: int
    step_seconds: float
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
    def samples_per_second(self):
        return self.batch_size / self.step_seconds


def of(completed, plain):
    """The Size of completed runs that have a step breakdown; None where there are none.

    `plain`: {(backend, number of ranks): (size in bytes, seconds) of plain all-reduces}.
    """
    records = [record for record in completed if record.status == "ok" and record.step_breakdown and record.step_seconds]
    if not records:
        return None
    first = records[0]
    exchanges, are_measured = exchanges_of(first)
    relative = [stragglers.relative(statistics.present(record.step_seconds), len(record.train_seconds)) for record in records]
    steps_per_epoch = len(first.step_seconds) // len(first.train_seconds)
    return Size(
        num_ranks=first.num_ranks,
        num_nodes=first.num_nodes,
        step_seconds=_typical(records, epochs.step_seconds),
        compute_seconds=_typical(records, lambda record: _mean(record, "compute_seconds")),
        data_wait_seconds=_typical(records, lambda record: _mean(record, "data_wait_seconds")),
        evaluation_seconds=_typical(records, lambda record: np.mean(statistics.present(record.eval_seconds) or [0.0])),
        load_seconds=_typical(records, lambda record: record.load_seconds or 0.0),
        num_samples=first.samples_per_epoch + first.samples_dropped_per_epoch,
        batch_size=(first.samples_per_epoch + first.samples_padded_per_epoch) // steps_per_epoch,
        plain=tuple(plain.get((first.backend, first.num_ranks), ())),
        exchanges=tuple(exchanges),
        exchanges_are_measured=are_measured,
        slowest=stragglers.Slowest(np.sort(np.concatenate(relative)), first.num_ranks),
    )


def _typical(records, value):
    return float(statistics.typical([value(record) for record in records]))


def _mean(record, key):
    return float(np.mean(getattr(record.step_breakdown, key)))


def plain_of(record):
    """[(size in bytes, seconds)] of a run's plain all-reduces, or that of the gradients' size alone, from the bus bandwidth."""
    breakdown, num_ranks = record.step_breakdown, record.num_ranks
    if breakdown.all_reduce_seconds_by_size:
        return [tuple(point) for point in breakdown.all_reduce_seconds_by_size]
    bandwidth, operations = breakdown.plain_bus_bytes_per_second, breakdown.operations
    size = max((operations[name].num_bytes for name in OF_GRADIENTS if name in operations), default=0)
    return [(size, bus_bytes("all_reduce", size, num_ranks) / bandwidth)] if bandwidth and size else []


def exchanges_of(record):
    """(the Exchanges of a step, whether the starts of those of gradients were measured) of a run.

    Without a measured start, gradients are exchanged evenly over the backward pass, and computation waits for all else, such as parameters.
    """
    breakdown, num_ranks = record.step_breakdown, record.num_ranks
    compute = _mean(record, "compute_seconds")
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


def _starts(name, collective, breakdown):
    """Seconds from the beginning of a step to the starts of a collective, which is another one in the profile; None if not measured."""
    measured = breakdown.exchange_start_seconds or {}
    # Those of two operations would be one list.
    mixed = collective != name and collective in breakdown.operations
    return measured.get(name) or (None if mixed else measured.get(collective))


def _sizes(name, operation, library, num_ranks):
    """The whole buffers of a collective in a step: DDP's buckets, else equal parts."""
    if name == "all_reduce" and (buckets := library.get("rebuilt_bucket_sizes")):
        return [float(size) for size in buckets.split(",")]
    num = max(1, round(operation.num_calls))
    # To a gather a rank contributes its share of the buffer.
    size = operation.num_bytes / num * (num_ranks if name == "all_gather" else 1)
    return [size] * num if size >= MIN_BYTES else []
