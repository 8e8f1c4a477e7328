"""Which rank of a run was killed, from what its launcher says of it. A killed rank itself says nothing."""

import re
import signal
from typing import NamedTuple

# What each launcher says of a process that was ended by a signal: its rank, or its process number (Hydra), and the signal.
# Open MPI, Slurm and torchrun number ranks as we do.
SAID = (
    re.compile(r"process rank (?P<rank>\d+) with PID \d+ on node \S+ exited on signal (?P<signal>\d+)"),
    re.compile(r"srun: error: \S+: task (?P<rank>\d+): (?P<name>Killed|Segmentation fault|Aborted|Terminated|Bus error)"),
    re.compile(r"rank +: (?P<rank>\d+) \(local_rank: \d+\)\n +exitcode +: -(?P<signal>\d+) "),
    re.compile(r"PID (?P<pid>\d+) RUNNING AT .*\n(?:.*\n)*?.*\(signal (?P<signal>\d+)\)"),
)
NAMES = {
    "Killed": signal.SIGKILL, "Segmentation fault": signal.SIGSEGV, "Aborted": signal.SIGABRT, "Terminated": signal.SIGTERM,
    "Bus error": signal.SIGBUS,
}  # fmt: skip
# torchrun ends the other workers with SIGTERM.
PASSED_ON = {signal.SIGTERM}


class Death(NamedTuple):
    """A rank, None where it is not known which, and the number of the signal that ended it."""

    rank: int | None
    signal: int


def death_in(lines, pids):
    """The Death that the launcher tells of in the lines that a run printed; None where it tells of none.

    `pids` are the process numbers by rank, as far as they are known.
    """
    text = "\n".join(lines)
    for said in SAID:
        for match in said.finditer(text):
            groups = match.groupdict()
            number = NAMES[groups["name"]] if "name" in groups else int(groups["signal"])
            if number in PASSED_ON:
                continue
            if "rank" in groups:
                return Death(int(groups["rank"]), int(number))
            pid = int(groups["pid"])
            return Death(pids.index(pid) if pid in pids else None, int(number))
    return None


def told(death, progress):
    """A Death in one line, with the last that was heard of the run (a Progress), if anything was."""
    who = "a rank" if death.rank is None else f"rank {death.rank}"
    hint = ", as by a node that runs out of memory" if death.signal == signal.SIGKILL else ""
    when = f" after step {progress.step} of epoch {progress.epoch} was told" if progress else ""
    return f"{who} was ended by {signal.Signals(death.signal).name}{when}{hint}"
