"""The sums of Horovod's timeline for the record of a run, and the sums as lines of text."""

from collections.abc import Iterable, Iterator
from dataclasses import astuple
from typing import TypeVar

from common.record.parts import HorovodTimeline, Lateness, Wait
from frameworks.shared.horovod.horovod_timeline import Cycle, Item, Negotiation, Operation

# Rank 0 receives the ranks that are ready within one cycle (HOROVOD_CYCLE_TIME: 1 ms) together, in the order of the ranks.
TOGETHER_MICROSECONDS = 1000
# The number of tensors with the longest waits that are printed.
NUM_TENSORS = 5
Sums = TypeVar("Sums", Wait, Lateness)


def summarize(items: Iterable[Item]) -> HorovodTimeline:
    """Sums up the items of a timeline."""
    summary = HorovodTimeline()
    for _ in counted(items, summary):
        pass
    return summary


def counted(items: Iterable[Item], summary: HorovodTimeline) -> Iterator[Item]:
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
