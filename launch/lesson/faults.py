"""The mistakes of launch/lesson/broken.py, and the program that trains with one of them. No other program has them.

mpiexec -n 2 python -m launch.lesson.faults FAULT [OPTIONS OF python -m frameworks.gradient_averaging]

A fault replaces one function of a backend that averages by hand, or of the data that all backends share. The record has the fault as the
name of the backend.
"""

import sys
from types import ModuleType

from common.data import sharding
from common.ranks.launcher_variables import from_environment
from frameworks.shared.replaced import Replacement, replaced
from launch.lesson import running


def no_all_reduce(backend: ModuleType) -> Replacement:
    """Gradients are not exchanged: each rank trains a model of its own."""
    return backend.Trainer, "average_gradients", lambda _: None


def same_shard(_: ModuleType) -> Replacement:
    """Every rank reads the shard of rank 0: the other samples of a batch are never seen."""
    training_shard = sharding.training_shard
    return sharding, "training_shard", lambda epoch, of_rank, num_losses: training_shard(epoch, of_rank._replace(number=0), num_losses)


def summed_gradients(backend: ModuleType) -> Replacement:
    """Gradients are summed, not averaged: the learning rate is multiplied by the number of ranks."""
    unpack = backend.vector_to_parameters
    return backend, "vector_to_parameters", lambda vector, parts: unpack(vector * from_environment().size, parts)


def same_order(_: ModuleType) -> Replacement:
    """set_epoch is forgotten: every epoch has the order of samples of the first."""
    training_shard = sharding.training_shard
    return sharding, "training_shard", lambda epoch, of_rank, num_losses: training_shard(epoch._replace(number=0), of_rank, num_losses)


FAULTS = {function.__name__: function for function in (no_all_reduce, same_shard, summed_gradients, same_order)}


def main(fault: str) -> None:
    """Trains with a fault until the process ends."""
    from common.training import program
    from frameworks import gradient_averaging

    with replaced(FAULTS[fault](gradient_averaging)):
        program.main(gradient_averaging.Trainer, f"{fault}.py")


if __name__ == "__main__":
    if sys.argv[1:2] == [] or sys.argv[1] not in FAULTS:
        running.refuse(f"start ranks: .venv/bin/mpiexec -n 2 .venv/bin/python -m launch.lesson.faults {'|'.join(FAULTS)} [OPTIONS]")
    main(sys.argv.pop(1))
