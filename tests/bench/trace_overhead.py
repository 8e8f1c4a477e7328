"""What the MPI interposer costs a call: a program of short calls with it and without it, measured in turns.

python -m tests.bench.trace_overhead
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from launch.trace import build, preload
from tests.support.running import environ
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


def measured(program, num_calls, variables):
    """{routine: nanoseconds a call} of one run of the program."""
    done = subprocess.run([program, str(num_calls)], env=environ() | variables, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"error: exit status {done.returncode}:\n{done.stdout}{done.stderr}")
    return {name: float(nanoseconds) for name, nanoseconds in (line.split() for line in done.stdout.splitlines())}


def measure(num_calls, num_rounds):
    """{"without", "counting", "events": {routine: nanoseconds a call, one of each round}}; the three run in turns."""
    with tempfile.TemporaryDirectory() as folder:
        program = compiled(Path(folder), PROGRAM, "-O2")
        library = build.build()
        settings = {
            "without": {},
            "counting": preload.variables(library, folder),
            "events": preload.variables(library, folder, events=num_calls),
        }
        rounds = [{name: measured(program, num_calls, variables) for name, variables in settings.items()} for _ in range(num_rounds)]
    return {name: {routine: [one[name][routine] for one in rounds] for routine in rounds[0][name]} for name in settings}


def overheads(found, setting):
    """{routine: nanoseconds that a setting adds to a call}, the median over the rounds of the differences within a round."""
    return {
        routine: median(with_it - without for with_it, without in zip(found[setting][routine], times, strict=True))
        for routine, times in found["without"].items()
    }


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.bench.trace_overhead", description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=2_000_000, help="calls of each kind in a run (default: 2,000,000)")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each (default: 5)")
    arguments = parser.parse_args()
    found = measure(arguments.calls, arguments.rounds)
    counting, events = overheads(found, "counting"), overheads(found, "events")
    print(f"{'ns a call':<16}{'without':>10}{'counting adds':>16}{'events add':>14}")
    for routine, times in found["without"].items():
        print(f"{routine:<16}{median(times):>10.1f}{counting[routine]:>16.1f}{events[routine]:>14.1f}")
    if max(counting.values()) >= LIMIT_NANOSECONDS:
        sys.exit(f"error: counting adds {max(counting.values()):.0f} ns to a call; it must add less than {LIMIT_NANOSECONDS}")


if __name__ == "__main__":
    main()
