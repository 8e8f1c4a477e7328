"""What becomes of a run of two ranks when one is killed, is stopped or raises in its twentieth step, as a table in Markdown.

python -m tests.bench.faults --watchdog-timeout 10
"""

import contextlib
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.bench import shared
from tests.support import made_backends, slurm_cluster
from tests.support.backends import LAUNCHED
from tests.support.running import copied, environ

COLUMNS = ("launcher", "fault", "backend", "found by", "seconds", "what the record says")


@dataclass(frozen=True)
class Arguments:
    """What fails where; names are separated by commas."""

    watchdog_timeout: str = "10"
    """Seconds, as the backends take it."""
    backends: str = ",".join(LAUNCHED)
    launchers: str = "mpich,torchrun,srun"
    faults: str = ",".join(made_backends.FAULTS)


def run(arguments):
    print(shared.head(COLUMNS), flush=True)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        checkout = copied(folder)
        for launcher in arguments.launchers.split(","):
            around, variables, options = (), {}, ("--launcher", launcher)
            if launcher == "srun":
                around, options = ("salloc", "--quiet", "-N2", "-n2"), ("--ranks-per-node", "1")
                variables = environ() | stack.enter_context(slurm_cluster.started(folder / "slurm"))
            for fault in arguments.faults.split(","):
                for backend in arguments.backends.split(","):
                    if launcher == "torchrun" and backend.startswith("horovod"):
                        continue
                    results = folder / f"{launcher}-{fault}-{backend}"
                    limit = ("--watchdog-timeout", arguments.watchdog_timeout)
                    record, seconds, left = made_backends.run(
                        checkout, backend, fault, results, *limit, *options, around=around, variables=variables
                    )
                    found_by = "a process is left!" if left else found_by_whom(record["error"])
                    print(shared.row((launcher, fault, backend, found_by, f"{seconds:.1f}", record["error"])), flush=True)


def found_by_whom(error):
    """Who saw the fault, from what the record says."""
    if "--watchdog-timeout" in error:
        return "the other rank's watchdog"
    return "the launcher" if "was killed by" in error else f"rank {error.split()[1].rstrip(':')} itself"


if __name__ == "__main__":
    shared.main(run, Arguments, __file__, __doc__)
