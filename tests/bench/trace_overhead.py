"""What the MPI interposer costs a call: a program of short calls with it and without it, measured in turns.

python -m tests.bench.trace_overhead
"""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from launch.trace import build, traced
from tests.bench import shared
from tests.support.running import completed
from tests.support.tracing import compiled

LIMIT_NANOSECONDS = 200
# Prints, for each kind of call, the nanoseconds that one takes.
PROGRAM = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#define MEASURE(name, call) \
    do { \
        double began = MPI_Wtime(); \
        for (long i = 0; i < num_calls; i++) \
            call; \
        printf(name " %.2f\n", (MPI_Wtime() - began) * 1e9 / (double)num_calls); \
    } while (0)
int main(int argc, char **argv)
{
    long num_calls = atol(argv[1]);
    int number = 1, sum, flag;
    MPI_Init(&argc, &argv);
    for (int warm = 0; warm < 1000; warm++)
        MPI_Allreduce(&number, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF);
    MEASURE("MPI_Comm_rank", MPI_Comm_rank(MPI_COMM_WORLD, &number));
    MEASURE("MPI_Iprobe", MPI_Iprobe(0, 1, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE));
    MEASURE("MPI_Allreduce", MPI_Allreduce(&number, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF));
    MPI_Finalize();
    return 0;
}
"""


def measure(num_calls, num_rounds):
    """{"without", "counting", "events": {routine: nanoseconds a call, one of each round}}; the three run in turns."""
    with tempfile.TemporaryDirectory() as folder:
        program = compiled(Path(folder), PROGRAM, "-O2")
        library = build.build()

        def one_run(variables, _):
            """{routine: nanoseconds a call}."""
            done = completed(program, num_calls, variables=variables)
            if done.returncode:
                sys.exit(f"error: exit status {done.returncode}:\n{done.stdout}{done.stderr}")
            return {routine: float(nanoseconds) for routine, nanoseconds in map(str.split, done.stdout.splitlines())}

        settings = {
            "without": {},
            "counting": traced.variables(library, folder),
            "events": traced.variables(library, folder, num_calls),
        }
        rounds = shared.in_turns(one_run, settings, num_rounds)
    return {name: {routine: [times[routine] for times in by_round] for routine in by_round[0]} for name, by_round in rounds.items()}


def overheads(nanoseconds, setting):
    """{routine: nanoseconds that a setting adds to a call}, the median over the rounds of the differences within a round."""
    return {
        routine: median(with_it - without for with_it, without in zip(nanoseconds[setting][routine], times, strict=True))
        for routine, times in nanoseconds["without"].items()
    }


@dataclass(frozen=True)
class Arguments:
    """How much is measured."""

    calls: int = 2_000_000
    """Calls of each kind in a run."""
    rounds: int = 5
    """Runs of each."""


def run(arguments):
    nanoseconds = measure(arguments.calls, arguments.rounds)
    counting, events = overheads(nanoseconds, "counting"), overheads(nanoseconds, "events")
    print(f"{'ns a call':<16}{'without':>10}{'counting adds':>16}{'events add':>14}")
    for routine, times in nanoseconds["without"].items():
        print(f"{routine:<16}{median(times):>10.1f}{counting[routine]:>16.1f}{events[routine]:>14.1f}")
    if max(counting.values()) >= LIMIT_NANOSECONDS:
        sys.exit(f"error: counting adds {max(counting.values()):.0f} ns to a call; it must add less than {LIMIT_NANOSECONDS}")


if __name__ == "__main__":
    shared.main(run, Arguments, __file__, __doc__)
