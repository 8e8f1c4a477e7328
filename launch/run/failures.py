"""Finds why a run failed, from the output of ranks and their libraries, the launcher's message about a killed rank, or watchdogs."""

import re
import signal
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from common.apart import describe_status
from common.progress import Progress
from common.ranks import machine, slurm
from common.ranks.messages import Hang
from common.record.definition import ENDED_BY_JOB
from launch.launchers.commands import LAUNCHERS, SIGNAL_NUMBERS, Launcher

# Messages that name the rank come first: Hydra's, which names a process, may be about an agent of another launcher.
MESSAGES = dict.fromkeys(kind.killed for kind in LAUNCHERS.values() if kind.killed)
LAUNCHER_MESSAGES = sorted(MESSAGES, key=lambda pattern: "rank" not in pattern.groupindex)
# These signals are ignored, because torchrun ends the remaining workers with SIGTERM.
PASSED_ON = {signal.SIGTERM}
MAX_RANKS_NAMED = 8
# What an MPI that cannot start prints, and srun about a --mpi that it cannot offer.
NOT_JOINED = re.compile("MPI_Init|Invalid MPI type")

REACH = "`ssh NODE true` must work without a question on each node; correct --hosts, or what ssh needs"
# Lines by which a library or a launcher gives the reason why a run failed, and the error, with what the group, or else all, has matched.
CAUSES = {
    # UCX, a library of MPI, before it aborts.
    re.compile(r"UCX +ERROR +(no usable transports.*)"): (
        "MPI cannot start: UCX has {}; unset UCX_TLS, or name in it what this node has, such as tcp,sm,self"
    ),
    # Slurm and PBS, when they end a job.
    re.compile("DUE TO TIME LIMIT|job killed: walltime"): ENDED_BY_JOB,
    # ssh, where it does not reach a node, which each line but the last names: a batch job has no terminal for a question about a new key.
    # What may be long stands at the beginning of a line alone, since a line may have 65,536 characters.
    re.compile(
        r"ssh: (?:connect to host|Could not resolve hostname) .*|^No \S{1,20} host key is known for .*|^Host key for .* has changed.*"
        r"|^\S{1,64}@\S{1,255}: Permission denied.*|Connection (?:closed|reset) by \S+ port \d+.*|^Host key verification failed\."
    ): f"a node is not reached: {{}}; {REACH}",
    # srun, where a step asks for more than its job has: Slurm counts hardware threads.
    re.compile(r"srun: error: Unable to create step for job .*: More processors requested than permitted"): (
        "{}; ask for the allocation with the ranks, cores and --threads-per-core=1, as the jobs of --print-jobs do"
    ),
    # Hydra's mpiexec, where all ports are taken that it may listen at.
    re.compile(r"\[mpiexec@.*: no port to bind"): "mpiexec finds no free port to listen at; widen or unset MPIEXEC_PORT_RANGE",
    # Open MPI's launcher, to root, as whom programs run in most containers.
    re.compile("attempt to run as root"): (
        "Open MPI's launcher refuses to run as root; give --launcher-args=--allow-run-as-root, or --launcher torchrun"
    ),
}
# Hydra's lines, which give no run's reason.
BANNER = re.compile("=|YOUR APPLICATION TERMINATED|This typically refers|Please see the FAQ|\\W*$")
# The signals of a process that uses memory which /dev/shm has promised and does not have, and of a process that finds out by itself.
OF_SHARED_MEMORY = {signal.SIGBUS, signal.SIGSEGV}
# What Hydra's mpiexec prints where the connection to a proxy, which starts the ranks of a node and passes their output on, is closed.
PROXY_LOST = re.compile(r"control_cb .*assert \(!closed\) failed")

# With more ranks Hydra itself kills the others when one has left, and its message may be about any of them.
MAX_RANKS_OF_HYDRA = 3


class Killed(NamedTuple):
    """A rank that was ended by a signal, None if unknown, the signal's number, and the launcher's message."""

    rank: int | None
    signal: int
    message: str


def killed_rank(lines: Iterable[str], pids: Sequence[int]) -> Killed | None:
    """Returns the killed rank according to the launcher's messages in the output of a run; None if there is none.

    `pids`: the process IDs by rank, if known.
    """
    output = "\n".join(lines)
    for pattern in LAUNCHER_MESSAGES:
        for match in pattern.finditer(output):
            groups = match.groupdict()
            signal_number = SIGNAL_NUMBERS[groups["name"]] if "name" in groups else int(groups["signal"])
            if signal_number in PASSED_ON:
                continue
            message = output[: match.end()].rpartition("\n")[2] + output[match.end() :].partition("\n")[0]
            return Killed(_rank_of(groups, pids), int(signal_number), message.strip())
    return None


def _rank_of(groups: Mapping[str, str], pids: Sequence[int]) -> int | None:
    """Returns the rank that a launcher's message is about; None where that is not certain."""
    if "rank" in groups:
        return int(groups["rank"])
    pid = int(groups.get("pid", 0))
    return pids.index(pid) if pid in pids and len(pids) <= MAX_RANKS_OF_HYDRA else None


def is_cause(line: str) -> bool:
    """Returns whether a line gives the reason why a run failed, wherever it stands in the output."""
    return any(pattern.search(line) for pattern in CAUSES)


def reported(lines: Iterable[str]) -> str | None:
    """Returns the error that a library or the launcher printed, with a remedy; None where there is none."""
    for pattern, error in CAUSES.items():
        if match := next(filter(None, map(pattern.search, lines)), None):
            return error.format(match[match.lastindex or 0])
    return None


def describe_killed(killed: Killed, progress: Progress | None, num_oom_kills: int | None, num_local_ranks: int = 1) -> str:
    """Describes a killed rank in one line. `progress`: the last one of the run.

    `num_oom_kills`: how many processes the kernel's OOM killer ended meanwhile on the launching node; None if not known.
    """
    rank = "a rank" if killed.rank is None else f"rank {killed.rank}"
    moment = f" after step {progress.step} of epoch {progress.epoch}" if progress else ""
    description = f"{rank} was killed by {signal.Signals(killed.signal).name}{moment}"
    shared = machine.shared_memory() if killed.signal in OF_SHARED_MEMORY else None
    if shared and (killed.signal == signal.SIGBUS or (not progress and shared.total < machine.needed_shared_memory(num_local_ranks))):
        what_there_is = machine.describe_shared_memory(shared, num_local_ranks)
        return f"{description}, as where shared memory is full; {what_there_is}; {machine.SHARED_MEMORY_REMEDY}"
    if killed.signal != signal.SIGKILL:
        return description
    if num_oom_kills:
        return f"{description}, out of memory: the kernel's OOM killer ended a process of this node meanwhile; {machine.LESS_MEMORY}"
    memory = "whether memory ran out is not known" if num_oom_kills is None else "the kernel killed no process of this node for memory"
    return f"{description}; {memory}, and the launcher printed: {killed.message}"


def describe_exit(status: int, lines: Sequence[str]) -> str:
    """Describes in one line a program that ended with this status and printed these lines, as a launcher whose ranks reported no error.

    `status`: less than 0 for one that a signal ended.
    """
    if any(map(PROXY_LOST.search, lines)):
        cause = ", since its hydra_pmi_proxy on a node, which starts the ranks there, was killed or could not be reached"
    else:
        line = next((line for line in reversed(lines) if not BANNER.match(line)), None)
        cause = f"; the last line: {line}" if line else ""
    return f"{describe_status(status)}{cause}"


def advice(lines: Iterable[str], launcher: Launcher) -> str:
    """Returns the remedy where the ranks could not find each other, according to the output of a run; empty elsewhere."""
    has_choice = LAUNCHERS[launcher.name].mpi_variable and any(map(NOT_JOINED.search, lines))
    return f"; {slurm.advice(launcher.mpi)}" if has_choice else ""


def describe_hang(hangs: Sequence[Hang], num_ranks: int) -> str:
    """Describes in one line the reported hangs of a run, with the ranks that the others waited for.

    Ranks without a report come first: they were stopped, or hang while holding the GIL. If all ranks have reported, the line names the
    ranks behind the others; if all are at the same place, only the place.
    """
    by_rank = {hang.rank: hang for hang in hangs}
    places = [hang.position for hang in hangs]
    first_place, last_place = min(places), max(places)
    missing = sorted(set(range(num_ranks)) - set(by_rank))
    behind = sorted(rank for rank, hang in by_rank.items() if hang.position < last_place)
    limit = f"{hangs[0].seconds:.0f} s (--watchdog-timeout)"
    if missing:
        return f"{name_ranks(missing)} hung without a report, as a stopped process does; the others waited {first_place} for {limit}"
    if behind:
        return f"{name_ranks(behind)} hung {first_place} for {limit}; the others waited {last_place}"
    hung_ranks = "all ranks" if num_ranks > 1 else "the only rank"
    return f"{hung_ranks} hung {first_place} for {limit}"


def name_ranks(ranks: Sequence[int]) -> str:
    """Returns `rank 3` or `ranks 1, 2`, with at most MAX_RANKS_NAMED numbers."""
    numbers = ", ".join(str(rank) for rank in ranks[:MAX_RANKS_NAMED])
    if len(ranks) > MAX_RANKS_NAMED:
        numbers += f" and {len(ranks) - MAX_RANKS_NAMED} more"
    return f"rank {numbers}" if len(ranks) == 1 else f"ranks {numbers}"
