"""The lesson of the pipeline: two stages exchange, in several orders of the calls, and one of them deadlocks.

python -m launch.lesson.pipeline ORDER BYTES, on two ranks of an MPI launcher, does one exchange.
"""

import os
import sys
from dataclasses import dataclass

import numpy as np

from common import units
from common.errors import UserError
from common.process import watchdog
from common.process.ranks import from_environment
from common.record import records
from launch.launchers import commands, detect
from launch.launchers.commands import Start
from launch.report.export import terminal
from launch.report.tables import Column, Table
from launch.run import lock, processes, turns
from launch.run.options import LaunchOptions

NUM_MICROBATCHES = 4
WATCHDOG_SECONDS = 5.0
TIME_LIMIT_SECONDS = 60.0
# MPI buffers a message up to some kilobytes, so that its send returns before anyone receives.
SMALL_BYTES, LARGE_BYTES = 2**10, 2**24
COLUMNS = (Column("calls"), Column("message"), Column("what came of it"))


@dataclass(frozen=True)
class Pipeline(LaunchOptions):
    """Two stages of a hand-written pipeline whose blocking sends wait for each other, under the watchdog, and two cures."""

    def run(self):
        """Runs the lesson and returns the exit status. Raises UserError for a launcher without MPI."""
        os.chdir(records.ROOT)
        launcher = detect.choose(self.launcher, self.launcher_args)
        if not commands.LAUNCHERS[launcher.name].provides_mpi:
            raise UserError(f"the lesson exchanges over MPI, which {launcher.name} does not provide; use an MPI launcher")
        with lock.held(records.ROOT, [], self.share_machine):
            results = run(launcher)
        terminal.show_result([Table("", COLUMNS, [row(*result) for result in results])], ["", conclusion(results)])
        return 0 if all(hangs or outcome.returncode == 0 for _, outcome, hangs in results) else 1


def sends_first(pipeline, sent, received, peer):
    """Both stages send, then both receive: the activations of the next micro-batch, and the gradient of the last one."""
    pipeline.Send(sent, peer)
    pipeline.Recv(received, peer)


def in_turn(pipeline, sent, received, peer):
    """One stage sends while the other one receives."""
    if pipeline.rank == 0:
        pipeline.Send(sent, peer)
        pipeline.Recv(received, peer)
    else:
        pipeline.Recv(received, peer)
        pipeline.Send(sent, peer)


def together(pipeline, sent, received, peer):
    """Both calls are begun before either is waited for, as torch.distributed.batch_isend_irecv does."""
    requests = pipeline.Irecv(received, peer), pipeline.Isend(sent, peer)
    type(requests[0]).Waitall(requests)


# {order of the calls: (its function, in words)}
ORDERS = {
    "sends_first": (sends_first, "both stages send, then receive"),
    "in_turn": (in_turn, "one stage sends while the other receives"),
    "together": (together, "both begin to send and to receive, then wait"),
}
# (order of the calls, size of a message)
CASES = (("sends_first", SMALL_BYTES), ("sends_first", LARGE_BYTES), ("in_turn", LARGE_BYTES), ("together", LARGE_BYTES))


def exchange(order, size_bytes):
    """Exchanges some micro-batches with the other rank, under the watchdog."""
    from mpi4py import MPI

    ranks = from_environment()
    in_order, _ = ORDERS[order]
    sent, received = np.full(size_bytes, ranks.rank, np.uint8), np.empty(size_bytes, np.uint8)
    guard = watchdog.Watchdog(WATCHDOG_SECONDS, ranks.rank)
    for number in range(NUM_MICROBATCHES):
        guard.begin(watchdog.Place(1, number + 1, NUM_MICROBATCHES))
        in_order(MPI.COMM_WORLD, sent, received, 1 - ranks.rank)
        assert (received == 1 - ranks.rank).all()


def run(launcher):
    """Runs every case; returns [(case, its Outcome, the Hangs that its ranks reported)]."""
    results = []
    for number, (order, size_bytes) in enumerate(CASES):
        program = (*launcher.python, "-m", "launch.lesson.pipeline", order, str(size_bytes))
        start = Start(launcher, 2, 2, 1, program, {"OMP_NUM_THREADS": "1"} | launcher.variables)
        hangs, mark = [], f"lesson-pipeline-{number}"
        outcome = turns.alone(processes.run(start.argv(), start.variables, mark, records.ROOT, TIME_LIMIT_SECONDS, hangs.append))
        results.append(((order, size_bytes), outcome, hangs))
    return results


def row(case, outcome, hangs):
    """A row of the lesson's table: the order, the size of a message, and what came of it."""
    if hangs:
        ending = "; ".join(f"rank {hang.rank} hung {hang.place}" for hang in sorted(hangs))
    else:
        ending = "exchanged" if outcome.returncode == 0 else f"failed: {outcome.last_lines[-1] if outcome.last_lines else 'without a word'}"
    order, size_bytes = case
    return [ORDERS[order][1], units.whole_text(size_bytes), ending]


def conclusion(results):
    """One sentence with what the cases show, and no more."""
    hung = [bool(hangs) for _, _, hangs in results]
    if not all(hangs or outcome.returncode == 0 for _, outcome, hangs in results):
        return "a case failed for another reason; see its row"
    if hung == [False, True, False, False]:
        return (
            "two blocking sends that wait for each other's receive deadlock once messages are too large for MPI's buffers; "
            "sending in turn, or beginning both calls before waiting, does not"
        )
    return "this MPI buffers messages of these sizes: nothing hung" if not any(hung) else "other cases hung than those expected"


if __name__ == "__main__":
    exchange(sys.argv[1], int(sys.argv[2]))
