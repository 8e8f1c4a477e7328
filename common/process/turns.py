"""Turns of runs that share a node side by side in time: a run stops itself at the end of its turn, and the matrix continues it.

While it is stopped, it takes no time from the run whose turn it is: the threads of its libraries are stopped with it.
"""

import contextlib
import ctypes
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from common.meter import Meter
from common.process import messages
from common.process.messages import TurnEnded
from common.process.ranks import Summing, by_rank, node_name

# Set by the matrix to the `node` on which it can continue the processes of the run.
VARIABLE = "TANDEM_TURNS"
# And to the path of a file for the part of an epoch that a turn of each run of the group takes.
SHARE_VARIABLE = "TANDEM_TURN_SHARE"
# How long a turn takes in the run that begins first. Between every second pair of turns and the rest, ratios of two backends differed
# by 2 % with turns of 2 s, and by 1 % with these. The first step of a turn is 6 to 15 % slower than the others
# (results/reference/experiments/turns.txt).
TURN_SECONDS = 0.3
# The process that has started this one.
PARENT = os.getppid()
# linux/prctl.h.
PR_SET_PDEATHSIG = 1
LIBC = ctypes.PyDLL(None)


class Turns:
    """The turns of this rank's run. All ranks make the same calls.

    Every run of a group trains the same part of an epoch in a turn, so that all meet the same machine from their first epoch to their
    last. `num_steps`: the steps of a turn, which also ends with the epoch; 0 before training, and where the run takes no turns, because it
    was started without a matrix or because the matrix cannot continue all its processes. `num_ended`: the number of turns that have
    ended. `meters`: the Meters that leave out what happens between turns. `step_seconds`: how long a step took on this rank when the
    run was made ready.
    """

    def __init__(self, run: Summing, step_seconds: float, pids_by_rank: Sequence[int]) -> None:
        self._run, self._pids, self._step_seconds = run, pids_by_rank, by_rank(run, step_seconds).max()
        self._is_reachable = by_rank(run, VARIABLE in os.environ and os.environ[VARIABLE] == node()).all()
        self.num_steps, self.num_ended = 0, 0
        self.meters: list[Meter] = []

    def begin(self, num_steps: int) -> None:
        """Sets the steps of a turn for epochs of `num_steps`."""
        if self._is_reachable:
            num_in_turn = min(max(1, round(TURN_SECONDS / self._step_seconds)), num_steps)
            share = _shared(num_in_turn / num_steps) if self._run.ranks.rank == 0 else 0.0
            self.num_steps = max(1, round(by_rank(self._run, share)[0] * num_steps))

    def end(self) -> None:
        """Ends the turn, if the run takes turns, and returns on all ranks together when the next one begins."""
        if not self._is_reachable:
            return
        # Barrier: waiting for a slower rank belongs to the turn.
        self._run.sum(np.zeros(1))
        self.num_ended += 1
        with contextlib.ExitStack() as paused:
            for meter in self.meters:
                paused.enter_context(meter.pause("turns"))
            if self._run.ranks.rank == 0:
                messages.send(TurnEnded(list(self._pids)))
            stop()
            self._run.sum(np.zeros(1))


def _shared(share: float) -> float:
    """Gives the share of the first run of the group; the runs after it wait for their turn and read it from its file."""
    path = Path(os.environ[SHARE_VARIABLE])
    if not path.exists():
        path.write_text(repr(share))
    return float(path.read_text())


def stop() -> None:
    """Stops all threads of this process, until another process continues it. It ends with the process that started it."""
    end_with_parent(signal.SIGKILL)
    # A parent that ended before sends no signal any more.
    os.kill(os.getpid(), signal.SIGSTOP if os.getppid() == PARENT else signal.SIGKILL)
    end_with_parent(0)


def end_with_parent(number: int) -> None:
    """Lets the kernel send this process a signal when its parent ends, also while the process is stopped; 0: no signal any more."""
    LIBC.prctl(PR_SET_PDEATHSIG, number)


def node() -> str:
    """Names the boot of the node and the namespace of processes, which processes that can see and continue each other share."""
    return f"{node_name()} {os.readlink('/proc/self/ns/pid')}"
