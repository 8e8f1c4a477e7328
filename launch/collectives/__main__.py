"""Latency and bandwidth of collectives through each library, as nccl-tests print them: python -m launch.collectives.

Alone it starts its ranks; under a launcher (mpiexec, srun, torchrun) it is a rank.
"""

from common import command_line
from launch.collectives import rank, start
from launch.collectives.options import Collectives

PROGRAM = "python -m launch.collectives"
DESCRIPTION = "Measures the latency and bandwidth of collectives through each library, with the columns of nccl-tests."

if __name__ == "__main__":
    if start.is_rank():
        rank.main(PROGRAM, DESCRIPTION)
    command_line.main(start.run, Collectives, PROGRAM, DESCRIPTION)
