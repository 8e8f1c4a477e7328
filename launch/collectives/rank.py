"""The program of a rank: measures every collective through every library at every size, and rank 0 prints and writes the results."""

import functools
import importlib
import os
from collections.abc import Iterator
from types import ModuleType

import numpy as np

from common import command_line, units
from common.cost.collectives import ELEMENT_BYTES, num_elements
from common.errors import UserError
from common.process import binding, control_groups, ending, inherited, node_memory, watchdog
from common.process.messages import Place
from common.process.ranks import Ranks, from_environment
from common.process.watchdog import Watchdog
from common.trainer import by_rank
from frameworks.shared.collectives.library import Library, Prepared
from launch.collectives import data, output, table
from launch.collectives import options as collective_options
from launch.collectives.measurement import Fit, Measurement, fit, time_call
from launch.collectives.options import Collectives
from launch.launchers import machine_files
from launch.launchers.commands import started_with_mpi

# Beside what a rank contributes and receives: what a library makes of it, and the elements that are compared.
NUM_BUFFERS = 3
# Repeats of a copy in main memory.
NUM_COPIES = 3


def main(program: str, description: str) -> None:
    """Measures as one of the ranks that a launcher has started, and ends the process.

    Exit status 0: all results were right; 1: one was wrong, or a library failed; 2: invalid arguments; 130: interrupted.
    """
    ranks, guard = from_environment(), None
    try:
        options = command_line.parse(collective_options.Collectives, program, description)
        collective_options.expect_started(options, ranks)
        collective_options.check(options, writes=ranks.rank == 0)
        guard = watchdog.begin(options.watchdog_timeout, ranks.rank)
        status = run(options, ranks, guard)
    except (Exception, KeyboardInterrupt) as problem:
        status, error = ending.describe_failure(problem, guard.place if guard and guard.place != Place() else None)
        ending.leave_with_others(problem, status, error, ranks, guard)
        ending.report_failure(status, error, ranks)
    ending.leave(status)


def run(options: Collectives, ranks: Ranks, guard: Watchdog) -> int:
    """Measures everything and returns the exit status. Raises UserError where no library can run, or the sizes do not fit."""
    reasons = {name: problem(name, ranks) for name in collective_options.libraries(options)}
    collective_options.expect_runnable(reasons)
    expect_room(collective_options.sizes(options)[-1], ranks.local_size)
    allowed, core_of = inherited.CORES, binding.core_of_threads()
    binding.bind(binding.cores_for(allowed, ranks.local_rank, options.cores_per_rank, core_of))
    total = binding.num_cores(range(os.cpu_count() or 1), core_of)
    shared = binding.oversubscribed(allowed, ranks.local_size, options.cores_per_rank, total, core_of, control_groups.quota_cores())
    writer = output.Output(options, ranks, {name: reason for name, reason in reasons.items() if reason})
    host_suffix = machine_files.read(options.machine_file).host_suffix
    measurements, fits, running = [], [], [name for name, reason in reasons.items() if not reason]
    for name in running:
        guard.begin(f"in the start of {name}")
        library = module(name).begin(name, ranks, host_suffix)
        writer.versions |= library.versions
        if not writer.copies:
            crowded, num_nodes = library.sum(np.array([shared, ranks.local_rank == 0], np.float64))
            writer.begin(int(num_nodes), bool(crowded), copies(options, library, guard))
        for new_measurements, fitted in measured(options, name, library, guard, writer):
            measurements += new_measurements
            fits += [fitted] if fitted else []
        guard.begin(f"in the end of {name}")
        writer.write(measurements, fits, is_last=name == running[-1])
        # Barrier: the first rank to leave may end the others, so rank 0 must have written the files.
        library.sum(np.zeros(1))
        library.end()
    return 1 if any(measurement.num_wrong for measurement in measurements) else 0


def problem(name: str, ranks: Ranks) -> str | None:
    """Describes why a library cannot run on this machine; None if it can."""
    reason = collective_options.problem(name, has_mpi=started_with_mpi(ranks.source))
    return reason or (module(name).gpu_problem(ranks) if collective_options.LIBRARIES[name].needs_gpu else None)


def module(name: str) -> ModuleType:
    """Returns the module of a library, which is slow to import."""
    return importlib.import_module(f"frameworks.shared.collectives.{collective_options.LIBRARIES[name].name}")


def expect_room(largest_bytes: int, num_local_ranks: int) -> None:
    """Raises UserError where the buffers of the ranks of this node do not fit into its memory."""
    needed, free = NUM_BUFFERS * largest_bytes * num_local_ranks, node_memory.available()
    if needed > free:
        raise UserError(
            f"{units.whole_text(largest_bytes)} need {needed / 1e9:.1f} GB on a node with {num_local_ranks} ranks, and {free / 1e9:.1f} GB "
            "are free; choose a smaller --max-bytes"
        )


def copies(options: Collectives, library: Library, guard: Watchdog) -> dict[int, list[float]]:
    """Times a copy in main memory, on all ranks at the same time: seconds in each repeat, by size in bytes."""
    seconds_of = {}
    for size in collective_options.sizes(options):
        guard.begin(f"in a copy of {size} bytes")
        source, target = np.ones(size, np.uint8), np.ones(size, np.uint8)
        seconds_of[size], _ = time_call(library, functools.partial(np.copyto, target, source), NUM_COPIES, guard.heartbeat)
    return seconds_of


def measured(
    options: Collectives, name: str, library: Library, guard: Watchdog, writer: output.Output
) -> Iterator[tuple[list[Measurement], Fit | None]]:
    """Measures each collective through one library, and prints the results as they come."""
    for collective in collective_options.collectives(options):
        place = writer.next_place()
        if reason := library.missing.get(collective):
            writer.print("#", f"# [{place}] skipping {collective} over {name}: {reason}")
            continue
        writer.print(*table.header(name, collective, library.ranks.size, place))
        measurements = []
        for requested, count in sizes_of(options, collective, library.ranks.size):
            out_of_place, in_place = (
                measure(library, name, collective, in_place, count, options.repeats, guard) for in_place in (False, True)
            )
            measurements += filter(None, (out_of_place, in_place))
            writer.print(table.row(out_of_place, in_place, None if requested is None else writer.copies.get(requested)))
        fitted = fit(measurements)
        writer.print(*table.footer(measurements, fitted))
        yield measurements, fitted


def sizes_of(options: Collectives, collective: str, num_ranks: int) -> list[tuple[int | None, int]]:
    """Returns the sizes of a collective as requested, with their numbers of elements; sizes that rounding makes equal appear once."""
    if collective == "barrier":
        return [(None, 0)]
    requested_of = {}
    for size in collective_options.sizes(options):
        requested_of.setdefault(num_elements(collective, size, num_ranks), size)
    return [(size, count) for count, size in requested_of.items()]


def measure(
    library: Library, name: str, collective: str, in_place: bool, count: int, num_repeats: int, guard: Watchdog
) -> Measurement | None:
    """Measures a collective of `count` elements; None where the library does not have it so.

    Its result is checked in a call of its own, after those that are timed.
    """
    prepare = library.collectives.get((collective, in_place))
    if prepare is None:
        return None
    size_bytes = count * ELEMENT_BYTES
    guard.begin(f"in {collective} of {size_bytes} bytes over {name}")
    rank, size = library.ranks.rank, library.ranks.size

    def prepared() -> Prepared:
        return prepare(data.contributed(collective, rank, size, count), data.room(collective, size, count))

    seconds, num_iterations = time_call(library, prepared().call, num_repeats, guard.heartbeat)
    checked = prepared()
    returned = checked.call()
    library.synchronize()
    received = library.as_array(returned if checked.received is None else checked.received)
    num_wrong = int(by_rank(library, data.num_wrong(received, data.expected(collective, rank, size, count))).sum())
    return Measurement(name, collective, in_place, size, size_bytes, count, seconds, num_iterations, num_wrong)
