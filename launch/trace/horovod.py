"""Horovod's timeline as a source of the merged trace, its sums for the record of a run, and the sums as lines of text."""

from collections.abc import Iterable, Iterator
from dataclasses import astuple
from pathlib import Path
from typing import Any, TypeVar

from common import chrome_trace
from common.chrome_trace import Event, Report
from common.errors import UserError
from common.record.parts import Clock, HorovodTimeline, Lateness, Wait
from frameworks.shared.horovod.horovod_timeline import Activity, Cycle, Item, Negotiation, Operation, read, start_microseconds
from launch.trace.sources import Placed, Source

# Rank 0 receives the ranks that are ready within one cycle (HOROVOD_CYCLE_TIME: 1 ms) together, in the order of the ranks.
TOGETHER_MICROSECONDS = 1000
# Rounding of both clocks to microseconds. A thread that is descheduled between the two readings adds to it.
ERROR_MICROSECONDS = 2.0
NOTE = "Horovod's steady clock, paired with the host's at its start; resolution 1 us"
# The number of tensors with the longest waits that are printed.
NUM_TENSORS = 5
Sums = TypeVar("Sums", Wait, Lateness)


def source(path: Path, summary: HorovodTimeline, report: Report) -> Source:
    """Makes a source of a run's timeline, whose items are added to the summary as they are read.

    Raises UserError for a file of an old version of Horovod, which does not say when it starts.
    """
    start = start_microseconds(chrome_trace.events(path))
    if start is None:
        raise UserError(f"{path} has no start time, so it is not in the merged trace")
    items = read(chrome_trace.events(path, report))
    return Source(Clock("Horovod's timeline", ERROR_MICROSECONDS, NOTE), 0, start * 1000, _placed(_counted(items, summary)), 0.0)


def _placed(items: Iterable[Item]) -> Iterator[Placed]:
    """Places collectives and negotiations on rank 0, and a rank's readiness, as seen on rank 0, on that rank."""
    operations, negotiations = [], []
    for item in items:
        if isinstance(item, Cycle):
            mark = {"ph": "i", "s": "t", "name": "CYCLE_START", "ts": item.start, "args": {"tensors": item.num_tensors}}
            yield Placed(0, "collectives", "Horovod cycles", mark)
            continue
        unfinished = {} if item.finished else {"unfinished": True}
        if isinstance(item, Negotiation):
            track = "Horovod negotiation" + _nth(lane_for(negotiations, item.start, item.end))
            yield Placed(0, "collectives", track, _span(item, {"tensor": item.tensor} | unfinished))
            for rank, ts in item.ready.items():
                ready = {"ph": "i", "s": "t", "name": f"ready: {item.tensor}", "ts": ts}
                yield Placed(rank, "collectives", "Horovod: ready on rank 0", ready)
            continue
        track = "Horovod" + _nth(lane_for(operations, item.start, item.end))
        args = {"tensors": len(item.tensors), "first": item.tensors[0]} | ({"bytes": item.size_bytes} if item.size_bytes else {})
        yield Placed(0, "collectives", track, _span(item, args | unfinished))
        for activity in item.activities:
            yield Placed(0, "collectives", track, _span(activity, {}))


def lane_for(ends: list[float], start: float, end: float) -> int:
    """Returns the number, from 0, of a lane that is free at a span's start, so that spans in one lane do not overlap.

    `ends` has the end of the last span in each lane, and is updated. Spans come in the order of their ends.
    """
    lane = next((lane for lane, busy_until in enumerate(ends) if busy_until <= start), len(ends))
    ends[lane : lane + 1] = [end]
    return lane


def _nth(lane: int) -> str:
    return f" {lane + 1}" if lane else ""


def _span(item: Negotiation | Operation | Activity, args: dict[str, Any]) -> Event:
    return {"ph": "X", "name": item.name, "ts": item.start, "dur": item.end - item.start} | ({"args": args} if args else {})


def summarize(items: Iterable[Item]) -> HorovodTimeline:
    """Sums up the items of a timeline."""
    summary = HorovodTimeline()
    for _ in _counted(items, summary):
        pass
    return summary


def _counted(items: Iterable[Item], summary: HorovodTimeline) -> Iterator[Item]:
    """Yields the items of a timeline as they are, and adds them to the summary."""
    for item in items:
        summary.seconds = max(summary.seconds, item.end / 1e6)
        match item:
            case Cycle():
                _add_cycle(item, summary)
            case Operation():
                _add_operation(item, summary)
            case Negotiation():
                _add_negotiation(item, summary)
        yield item


def _add_cycle(cycle: Cycle, summary: HorovodTimeline) -> None:
    summary.num_cycles = (summary.num_cycles or 0) + 1
    summary.num_used_cycles = (summary.num_used_cycles or 0) + (cycle.num_tensors > 0)
    mean_seconds = summary.mean_cycle_seconds or 0.0
    summary.mean_cycle_seconds = mean_seconds + ((cycle.end - cycle.start) / 1e6 - mean_seconds) / summary.num_cycles


def _add_operation(operation: Operation, summary: HorovodTimeline) -> None:
    size_bytes, num_tensors = operation.size_bytes or 0, str(len(operation.tensors))
    summary.num_unfinished += not operation.finished
    summary.max_buffer_bytes = max(summary.max_buffer_bytes, size_bytes)
    summary.total_bytes += size_bytes
    summary.num_operations[operation.name] = summary.num_operations.get(operation.name, 0) + 1
    summary.tensors_per_buffer[num_tensors] = summary.tensors_per_buffer.get(num_tensors, 0) + 1
    for activity in operation.activities:
        seconds = summary.activity_seconds.get(activity.name, 0.0)
        summary.activity_seconds[activity.name] = seconds + (activity.end - activity.start) / 1e6


def _add_negotiation(negotiation: Negotiation, summary: HorovodTimeline) -> None:
    summary.num_unfinished += not negotiation.finished
    summary.num_negotiations += 1
    wait = summary.waits.get(negotiation.tensor, Wait())
    summary.waits[negotiation.tensor] = _with(wait, (negotiation.end - negotiation.start) / 1e6)
    ready = negotiation.ready
    if len(ready) < 2:
        return
    summary.num_compared += 1
    last_rank = str(max(ready, key=lambda rank: ready[rank]))
    spread = max(ready.values()) - min(ready.values())
    if spread > TOGETHER_MICROSECONDS:
        summary.lateness[last_rank] = _with(summary.lateness.get(last_rank, Lateness()), spread / 1e6)


def _with(sums: Sums, seconds: float) -> Sums:
    """Adds one more wait to the sums."""
    number, total, longest = astuple(sums)
    return type(sums)(number + 1, total + seconds, max(longest, seconds))


def describe(summary: HorovodTimeline) -> list[str]:
    """Describes a summary in lines of text, with the tensors of the longest waits."""
    lines = [f"Horovod's timeline of rank 0: {summary.seconds:.2f} s"]
    if num_buffers := sum(summary.tensors_per_buffer.values()):
        num_tensors = sum(int(size) * count for size, count in summary.tensors_per_buffer.items())
        operations = ", ".join(f"{count} {name}" for name, count in summary.num_operations.items())
        mean_kib, max_kib = summary.total_bytes / num_buffers / 1024, summary.max_buffer_bytes / 1024
        lines.append(f"{num_buffers} collectives ({operations}) of {num_tensors / num_buffers:.1f} tensors on average")
        lines.append(f"{mean_kib:.1f} KiB on average, {max_kib:.1f} KiB at most; time by activity:")
    for name, seconds in sorted(summary.activity_seconds.items(), key=lambda item: -item[1]):
        lines.append(f"  {name:<28} {seconds:9.3f} s")
    lines.append(f"{summary.num_negotiations} negotiations; longest waits for all ranks:")
    for name, wait in sorted(summary.waits.items(), key=lambda item: -item[1].total_seconds)[:NUM_TENSORS]:
        num, mean_ms = wait.num_negotiations, 1e3 * wait.total_seconds / wait.num_negotiations
        lines.append(f"  {name:<40} {num:5d} times {mean_ms:8.2f} ms on average {1e3 * wait.max_seconds:8.2f} ms at most")
    lines.append(
        f"readiness by rank is known for {summary.num_compared} of {summary.num_negotiations} negotiations (those of uncached tensors)"
    )
    for rank, late in sorted(summary.lateness.items(), key=lambda item: -item[1].num_last):
        mean_ms, max_ms = 1e3 * late.total_seconds / late.num_last, 1e3 * late.max_seconds
        lines.append(f"  rank {rank} was last {late.num_last} times, by {mean_ms:.2f} ms on average, {max_ms:.2f} ms at most")
    if summary.num_cycles and summary.num_used_cycles is not None and summary.mean_cycle_seconds is not None:
        used = summary.num_used_cycles / summary.num_cycles
        lines.append(f"{summary.num_cycles} cycles of {1e3 * summary.mean_cycle_seconds:.2f} ms on average, {used:.0%} not idle")
    if summary.num_unfinished:
        lines.append(f"{summary.num_unfinished} not finished at the end of the timeline")
    return lines
