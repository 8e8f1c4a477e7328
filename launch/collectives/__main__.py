"""Latency and bandwidth of collectives through each library, as nccl-tests print them: python -m launch.collectives.

Alone it starts its ranks; under a launcher (mpiexec, srun, torchrun) it is a rank.
"""

from common import command_line
from common.errors import UserError
from common.process.ranks import SLURM, Ranks, from_environment
from launch.collectives import rank, start
from launch.collectives.options import Collectives

PROGRAM = "python -m launch.collectives"
DESCRIPTION = "Measures the latency and bandwidth of collectives through each library, with the columns of nccl-tests."


def run(options):
    """Starts the ranks and returns the exit status."""
    ranks = from_environment()
    # The shell of an interactive job may itself be a step of one task.
    if ranks.source not in (Ranks().source, SLURM.name):
        raise UserError(f"{ranks.source} has started one rank, which sends nothing; start 2 or more, or leave the launcher out")
    return start.run(options)


def is_rank():
    """Whether a launcher has started this process as one of several ranks."""
    try:
        return from_environment().size > 1
    except UserError:
        return False


if __name__ == "__main__":
    if is_rank():
        rank.main(PROGRAM, DESCRIPTION)
    command_line.main(run, Collectives, PROGRAM, DESCRIPTION)
