"""Why a run failed: the killed rank, from the launcher's message, or the hung rank, from the watchdogs of the ranks."""

import re
import signal
from typing import NamedTuple

from common.process import out_of_memory

# Message of each launcher about a process that was ended by a signal: its rank, or its process ID (Hydra), and the signal.
# In Open MPI, Slurm and torchrun the number is the global rank.
LAUNCHER_MESSAGES = (
    re.compile(r"process rank (?P<rank>\d+) with PID \d+ on node \S+ exited on signal (?P<signal>\d+)"),
    re.compile(r"srun: error: \S+: task (?P<rank>\d+): (?P<name>Killed|Segmentation fault|Aborted|Terminated|Bus error)"),
    re.compile(r"rank +: (?P<rank>\d+) \(local_rank: \d+\)\n +exitcode +: -(?P<signal>\d+) "),
    re.compile(r"PID (?P<pid>\d+) RUNNING AT .*\n(?:.*\n)*?.*\(signal (?P<signal>\d+)\)"),
)
SIGNAL_NAMES = {
    "Killed": signal.SIGKILL, "Segmentation fault": signal.SIGSEGV, "Aborted": signal.SIGABRT, "Terminated": signal.SIGTERM,
    "Bus error": signal.SIGBUS,
}  # fmt: skip
# Ignored, because torchrun ends the remaining workers with SIGTERM.
PASSED_ON = {signal.SIGTERM}
MAX_RANKS_NAMED = 8


class Killed(NamedTuple):
    """A rank that was ended by a signal, None if unknown, and the signal number."""

    rank: int | None
    signal: int


def killed_rank(lines, pids):
    """The killed rank according to the launcher's messages in the output `lines` of a run; None if there is none.

    `pids`: the process IDs by rank, if known.
    """
    text = "\n".join(lines)
    for pattern in LAUNCHER_MESSAGES:
        for match in pattern.finditer(text):
            groups = match.groupdict()
            number = SIGNAL_NAMES[groups["name"]] if "name" in groups else int(groups["signal"])
            if number in PASSED_ON:
                continue
            if "rank" in groups:
                return Killed(int(groups["rank"]), int(number))
            pid = int(groups["pid"])
            return Killed(pids.index(pid) if pid in pids else None, int(number))
    return None


def describe_killed(killed, progress, num_oom_kills=0):
    """One line about a Killed; `progress` is the last Progress of the run, or None.

    `num_oom_kills`: how many processes the kernel's OOM killer ended meanwhile on the launching node.
    """
    who = "a rank" if killed.rank is None else f"rank {killed.rank}"
    hint = ""
    if killed.signal == signal.SIGKILL:
        seen = ": the kernel's OOM killer ended a process of this node meanwhile" if num_oom_kills else ""
        hint = f", {'' if num_oom_kills else 'perhaps '}out of memory{seen}; {out_of_memory.HELP}"
    when = f" after step {progress.step} of epoch {progress.epoch}" if progress else ""
    return f"{who} was killed by {signal.Signals(killed.signal).name}{when}{hint}"


def describe_hang(hangs, num_ranks):
    """One line about the reported Hangs of a run, with the ranks that the others waited for.

    Ranks without a report are named first: they were stopped, or hang while holding the GIL. If all ranks have reported, those
    behind the others are named; if all are at the same place, only the place.
    """
    by_rank = {hang.rank: hang for hang in hangs}
    first, last = min(hang.place for hang in hangs), max(hang.place for hang in hangs)
    missing = sorted(set(range(num_ranks)) - set(by_rank))
    behind = sorted(rank for rank, hang in by_rank.items() if hang.place < last)
    limit = f"{hangs[0].seconds:.0f} s (--watchdog-timeout)"
    if missing:
        return f"{name_ranks(missing)} hung without a report, as a stopped process does; the others waited {first} for {limit}"
    if behind:
        return f"{name_ranks(behind)} hung {first} for {limit}; the others waited {last}"
    who = "all ranks" if num_ranks > 1 else "the only rank"
    return f"{who} hung {first} for {limit}"


def name_ranks(ranks):
    """`rank 3` or `ranks 1, 2`, listing at most MAX_RANKS_NAMED."""
    shown = ", ".join(str(rank) for rank in ranks[:MAX_RANKS_NAMED])
    if len(ranks) > MAX_RANKS_NAMED:
        shown += f" and {len(ranks) - MAX_RANKS_NAMED} more"
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"
