"""The clock of a run, which stops for what is not the run's: the checks, and the turns of other runs.

Runs that share a node take turns side by side in time: a run stops itself at the end of its turn, and the matrix continues it. While it is
stopped, it takes no time from the run whose turn it is: the threads of its libraries are stopped with it.
"""

import contextlib
import math
import os
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from common.apart import end_with_parent
from common.config import CONTROL_DELAY, Settings
from common.ranks import messages
from common.ranks.launcher_variables import Summing, by_rank, node_name
from common.ranks.messages import TurnEnded
from common.ranks.watchdog import Watchdog

# Set by the matrix to the `node` on which it can continue the processes of the run.
TURNS_VARIABLE = "TANDEM_TURNS"
# And to the path of a file for the number of turns that an epoch of each run of the group has.
TURNS_FILE_VARIABLE = "TANDEM_TURNS_FILE"
# About how long a turn takes in the run that begins first. Its first step is slower than the others, and not equally for all backends.
TURN_SECONDS = 1.0
# The process that has started this one.
PARENT = os.getppid()
# A wait gives a heartbeat this often: where runs take no turns, one wait is for a whole epoch.
HEARTBEAT_SECONDS = 1.0


class Meter:
    """Counts what `read()` has grown by since the start, outside of `pause`. `paused` has the amounts of the pauses, by their reasons."""

    def __init__(self, read: Callable[[], float]) -> None:
        self._read, self._start = read, read()
        self.paused: defaultdict[str, float] = defaultdict(float)

    def now(self) -> float:
        return self._read() - self._start - sum(self.paused.values())

    def go_on_from(self, amount: float) -> None:
        """Sets what is counted so far."""
        self._start += self.now() - amount

    @contextlib.contextmanager
    def pause(self, reason: str) -> Iterator[None]:
        """Leaves out what is counted within this context. Its amount is added to `paused` under the reason."""
        begun = self._read()
        yield
        self.paused[reason] += self._read() - begun


class Delay:
    """Makes a delayed run take longer on the clock by CONTROL_DELAY, and does nothing in any other.

    A rank waits where it has waited for its device anyway, which are the ends of turns, epochs and evaluations: a GPU would compute what is
    queued during a wait between two steps.
    """

    def __init__(self, settings: Settings, clock: Meter, watchdog: Watchdog) -> None:
        self._is_delayed, self._clock, self._watchdog = settings.control == "delayed", clock, watchdog
        self._begun = clock.now()

    def begin(self) -> None:
        """Begins a time that is made longer."""
        self._begun = self._clock.now()

    def wait(self) -> None:
        """Waits for CONTROL_DELAY of the time since it began, or since the wait before."""
        if self._is_delayed:
            seconds = CONTROL_DELAY * (self._clock.now() - self._begun)
            num_parts = math.ceil(seconds / HEARTBEAT_SECONDS)
            for _ in range(num_parts):
                time.sleep(seconds / num_parts)
                self._watchdog.heartbeat()
        self.begin()


class Turns:
    """The turns of this rank's run. All ranks make the same calls.

    The epochs of all runs of a group have the same number of turns, of equal length, so that all meet the same machine from their first
    epoch to their last. `num_steps`: the steps of a turn, which also ends with the epoch; 0 before training, and where the run takes no
    turns, because it was started without a matrix or because the matrix cannot continue all its processes. `num_ended`: the number of turns
    that have ended. `meters`: the Meters that leave out what happens between turns. `step_seconds`: how long the shortest step of the
    warm-up took on this rank.
    """

    def __init__(self, run: Summing, step_seconds: float, pids_by_rank: Sequence[int]) -> None:
        self._run, self._pids, self._step_seconds = run, pids_by_rank, by_rank(run, step_seconds).max()
        self._is_reachable = by_rank(run, TURNS_VARIABLE in os.environ and os.environ[TURNS_VARIABLE] == node()).all()
        self._path = Path(os.environ.get(TURNS_FILE_VARIABLE, os.devnull))
        self.num_steps, self.num_ended = 0, 0
        self.meters: list[Meter] = []

    def begin(self, num_steps: int) -> None:
        """Sets the steps of a turn for epochs of `num_steps`."""
        if self._is_reachable:
            num_turns = min(max(1, round(num_steps * self._step_seconds / TURN_SECONDS)), num_steps)
            of_group = _shared(self._path, num_turns) if self._run.ranks.rank == 0 else 0
            self.num_steps = math.ceil(num_steps / by_rank(self._run, of_group)[0])

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


def _shared(path: Path, num_turns: int) -> int:
    """Gives the number of turns of the first run of the group; the runs after it wait for their turn and read it from its file."""
    if not path.exists():
        path.write_text(str(num_turns))
    return int(path.read_text())


def stop() -> None:
    """Stops all threads of this process, until another process continues it. It ends with the process that started it."""
    end_with_parent(signal.SIGKILL)
    # A parent that ended before sends no signal any more.
    os.kill(os.getpid(), signal.SIGSTOP if os.getppid() == PARENT else signal.SIGKILL)
    end_with_parent(0)


def node() -> str:
    """Names the boot of the node and the namespace of processes, which processes that can see and continue each other share."""
    return f"{node_name()} {os.readlink('/proc/self/ns/pid')}"
