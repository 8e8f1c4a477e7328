"""Runs a backend with faults: python -m tests.support.fault_injection BACKEND FOLDER FAULT [its arguments] [THEN …].

FAULT is a function of tests/support/faults.py, or one of the backend's in tests/support/contract.py. Rank 0 saves the final parameters in
FOLDER, by the run's name. After THEN come the fault and the arguments of another run, in the same processes: starting them takes longer
than a short run. With `collectives FAULT [arguments]` it is a rank of python -m launch.collectives over MPI instead.
"""

import contextlib
import importlib
import itertools
import os
import sys
from pathlib import Path

import numpy as np

from common.process import ending, noise
from common.training import program, step_breakdown, throughput
from frameworks.shared.replaced import replaced
from tests.support import faults, step_breakdown_run
from tests.support.contract import ROWS


def main():
    name, *arguments = sys.argv[1:]
    if name == "collectives":
        collectives(*arguments)
    else:
        train_in_turn(name, *arguments)


def collectives(fault, *arguments):
    from frameworks.shared.collectives import mpi
    from launch.collectives import rank

    sys.argv[1:] = arguments
    getattr(faults, fault)(mpi)
    rank.main("collectives", "")


def train_in_turn(name, folder, *arguments):
    runs = [list(run) for is_run, run in itertools.groupby(arguments, lambda word: word != "THEN") if is_run]
    backend = importlib.import_module(f"frameworks.{name}")
    saving(backend.Trainer, Path(folder))
    shut_down = backend.hvd.shutdown if hasattr(backend, "hvd") else None
    several = len(runs) > 1
    with contextlib.ExitStack() as meanwhile:
        # Horovod and DeepSpeed cannot be started a second time in a process. MPI ends with the last run, and Horovod's thread may
        # not call it afterwards.
        if several and shut_down:
            meanwhile.enter_context(replaced((backend.hvd, "shutdown", lambda: None)))
        if several and hasattr(backend, "deepspeed"):
            # Nor can DeepSpeed end with the last.
            backend.pytorch.torch.distributed.destroy_process_group = lambda: None
        leave = ending.leave
        # A run that failed may not be followed by another: its ranks are no longer at the same place.
        meanwhile.enter_context(replaced((ending, "leave", lambda status: leave(status) if status else None)))
        for run, following in itertools.pairwise(runs):
            train(name, backend, *run)
            # The next run meets at a port of its own.
            for variable in ("MASTER_ADDR", "MASTER_PORT"):
                os.environ.pop(variable, None)
            # Horovod can be started over MPI after Gloo, and not the other way round.
            if shut_down and "gloo" in run and "gloo" not in following:
                shut_down()
                for variable in [name for name in os.environ if name.startswith("HOROVOD_")]:
                    del os.environ[variable]
    train(name, backend, *runs[-1])


def train(name, backend, fault, *arguments):
    """Trains the backend with a fault and these arguments."""
    sys.argv[1:] = arguments
    with faults.REPLACED:
        # Measuring the machine would take as long as a short run.
        repeated = noise.repeated
        faults.replace(noise, "repeated", lambda action, _: repeated(action, noise.SLICE_SECONDS))
        faults.replace(throughput, "SECONDS", 0)
        if fault == "step_breakdown":
            faults.replace(step_breakdown, "add_to_record", step_breakdown_run.write)
            # Nothing is compared with the times that are measured.
            faults.replace(step_breakdown, "COMMUNICATES", (True, False))
        else:
            (getattr(ROWS[name].faults, fault, None) or getattr(faults, fault))(backend)
        program.main(backend.Trainer, backend.__file__)


def saving(trainer_class, folder):
    """Makes the class save the parameters before it closes."""
    close, closed = trainer_class.close, []

    def save_and_close(self):
        state = self.state()
        if self.ranks.rank == 0:
            run_id = sys.argv[sys.argv.index("--run-id") + 1]
            np.savez(folder / f"{run_id}.npz", **{name: value for name, value in state.items() if "/" not in name})
        # The first rank to leave Horovod may take the others down with it: none leaves before the file is written.
        self.sum(np.zeros(1))
        close(self)
        # Gloo's threads want the interpreter's lock to let go of their last tensors: a process group that is collected waits for
        # them with the lock held, and so for ever.
        closed.append(self)

    trainer_class.close = save_and_close


if __name__ == "__main__":
    main()
