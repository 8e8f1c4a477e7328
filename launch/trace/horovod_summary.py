"""The sums of Horovod's timeline, and these as lines of text."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from frameworks.shared.horovod.horovod_timeline import Item, Negotiation, Operation

# Rank 0 receives the ranks that are ready within one cycle (HOROVOD_CYCLE_TIME: 1 ms) together, in the order of the ranks.
TOGETHER_MICROSECONDS = 1000
# The number of tensors with the longest waits that are printed.
NUM_TENSORS = 5


class Waits(NamedTuple):
    """The number of some waits, and their seconds."""

    num: int = 0
    total_seconds: float = 0.0
    max_seconds: float = 0.0

    def with_one_of(self, seconds: float) -> "Waits":
        return Waits(self.num + 1, self.total_seconds + seconds, max(self.max_seconds, seconds))


@dataclass
class Summary:
    """The sums of a timeline, of which each buffer counts once.

    `waits` has the waits of each tensor for all ranks. `lateness` has by rank how often and for how long the first rank waited for it,
    where it was the last by more than a cycle; the readiness of at least two ranks is known in `num_compared` negotiations.
    """

    seconds: float = 0.0
    num_negotiations: int = 0
    num_compared: int = 0
    waits: dict[str, Waits] = field(default_factory=dict)
    lateness: dict[int, Waits] = field(default_factory=dict)
    num_operations: Counter[str] = field(default_factory=Counter)
    buffers_by_num_tensors: Counter[int] = field(default_factory=Counter)
    max_buffer_bytes: int = 0
    total_bytes: int = 0
    activity_seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    num_unfinished: int = 0


def counted(items: Iterable[Item], summary: Summary) -> Iterator[Item]:
    """Yields the items of a timeline as they are, and adds them to the summary."""
    for item in items:
        summary.seconds = max(summary.seconds, item.end / 1e6)
        match item:
            case Operation():
                _add_operation(item, summary)
            case Negotiation():
                _add_negotiation(item, summary)
        yield item


def _add_operation(operation: Operation, summary: Summary) -> None:
    size_bytes, num_tensors = operation.size_bytes or 0, len(operation.tensors)
    summary.num_unfinished += not operation.finished
    summary.max_buffer_bytes = max(summary.max_buffer_bytes, size_bytes)
    summary.total_bytes += size_bytes
    summary.num_operations[operation.name] += 1
    summary.buffers_by_num_tensors[num_tensors] += 1
    for activity in operation.activities:
        summary.activity_seconds[activity.name] += (activity.end - activity.start) / 1e6


def _add_negotiation(negotiation: Negotiation, summary: Summary) -> None:
    summary.num_unfinished += not negotiation.finished
    summary.num_negotiations += 1
    waits = summary.waits.get(negotiation.tensor, Waits())
    summary.waits[negotiation.tensor] = waits.with_one_of((negotiation.end - negotiation.start) / 1e6)
    ready = negotiation.ready
    if len(ready) < 2:
        return
    summary.num_compared += 1
    last_rank = max(ready, key=lambda rank: ready[rank])
    spread = max(ready.values()) - min(ready.values())
    if spread > TOGETHER_MICROSECONDS:
        summary.lateness[last_rank] = summary.lateness.get(last_rank, Waits()).with_one_of(spread / 1e6)


def describe(summary: Summary) -> list[str]:
    """Describes a summary in lines of text, with the tensors of the longest waits."""
    lines = [f"Horovod's timeline of rank 0: {summary.seconds:.2f} s"]
    if num_buffers := summary.buffers_by_num_tensors.total():
        num_tensors = sum(size * count for size, count in summary.buffers_by_num_tensors.items())
        operations = ", ".join(f"{count} {name}" for name, count in summary.num_operations.items())
        mean_kib, max_kib = summary.total_bytes / num_buffers / 1024, summary.max_buffer_bytes / 1024
        lines.append(f"{num_buffers} collectives ({operations}) of {num_tensors / num_buffers:.1f} tensors on average")
        lines.append(f"{mean_kib:.1f} KiB on average, {max_kib:.1f} KiB at most; time by activity:")
    for name, seconds in sorted(summary.activity_seconds.items(), key=lambda item: -item[1]):
        lines.append(f"  {name:<28} {seconds:9.3f} s")
    lines.append(f"{summary.num_negotiations} negotiations; longest waits for all ranks:")
    for name, wait in sorted(summary.waits.items(), key=lambda item: -item[1].total_seconds)[:NUM_TENSORS]:
        num, mean_ms = wait.num, 1e3 * wait.total_seconds / wait.num
        lines.append(f"  {name:<40} {num:5d} times {mean_ms:8.2f} ms on average {1e3 * wait.max_seconds:8.2f} ms at most")
    lines.append(
        f"readiness by rank is known for {summary.num_compared} of {summary.num_negotiations} negotiations (those of uncached tensors)"
    )
    for rank, late in sorted(summary.lateness.items(), key=lambda item: -item[1].num):
        mean_ms, max_ms = 1e3 * late.total_seconds / late.num, 1e3 * late.max_seconds
        lines.append(f"  rank {rank} was last {late.num} times, by {mean_ms:.2f} ms on average, {max_ms:.2f} ms at most")
    if summary.num_unfinished:
        lines.append(f"{summary.num_unfinished} not finished at the end of the timeline")
    return lines
