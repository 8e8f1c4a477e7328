"""Runs backends with faults: python -m tests.support.fault_injection FOLDER BACKEND FAULT [its arguments] [THEN …].

FAULT is a function of tests/support/faults.py, or one of the backend's in tests/support/contract.py. Rank 0 saves the final parameters in
FOLDER, by the run's name. After THEN come the backend, the fault and the arguments of another run, in the same processes: starting them
takes longer than a short run.
"""

import contextlib
import functools
import gc
import importlib
import itertools
import os
import sys
from pathlib import Path

import numpy as np

from common import workloads
from common.errors import RunError
from common.ranks import ending
from common.ranks.meeting import LOOPBACK_INTERFACE
from common.record import environment
from common.training import program, speed, step_breakdown
from frameworks.shared.replaced import replaced
from tests.support import faults, step_breakdown_run
from tests.support.contract import ROWS

# Options of no backend. Warm-up under strong scaling shows that every step has its own learning rate.
FACTOR = "--learning-rate-factor"
# The models are those of tests/support/small_models.py, which train in a third of the time.
SMALL = "--small"


def main():
    folder, arguments = Path(sys.argv[1]), sys.argv[2:]
    runs = [list(run) for is_run, run in itertools.groupby(arguments, lambda word: word != "THEN") if is_run]
    # As frameworks/__init__.py does for the program of a rank.
    gc.disable()
    backends = {name: importlib.import_module(f"frameworks.{name}") for name, *_ in runs}
    for backend in backends.values():
        saving(backend.Trainer, folder)
    # Horovod cannot be started a second time in a process. MPI ends with the last run, and Horovod's thread may not call it afterwards.
    horovods = [backend.hvd for backend in backends.values() if hasattr(backend, "hvd")]
    shut_down = horovods[0].shutdown if horovods else None
    with contextlib.ExitStack() as meanwhile:
        if len(runs) > 1:
            for horovod in horovods:
                meanwhile.enter_context(replaced((horovod, "shutdown", lambda: None)))
            go_on_after_runs(meanwhile)
            # They start programs, or look through all libraries.
            for owner, name in ((environment, "_git"), (environment, "hypervisor"), (environment, "version")):
                meanwhile.enter_context(replaced((owner, name, functools.cache(getattr(owner, name)))))
            if "torch" in sys.modules:
                share_gloo_device()
        for run, following in itertools.pairwise(runs):
            train(backends[run[0]], *run)
            # The next run meets at a port of its own.
            for variable in ("MASTER_ADDR", "MASTER_PORT"):
                os.environ.pop(variable, None)
            # Horovod can be started over MPI after Gloo, and not the other way round.
            if shut_down and "gloo" in run and "gloo" not in following:
                shut_down()
                for variable in [name for name in os.environ if name.startswith("HOROVOD_")]:
                    del os.environ[variable]
    train(backends[runs[-1][0]], *runs[-1])


def share_gloo_device():
    """Makes all process groups over Gloo have one device: its thread wakes up a hundred times a second, also after the run."""
    from torch.distributed import distributed_c10d

    plain = distributed_c10d.ProcessGroupGloo
    device = plain.create_device(interface=LOOPBACK_INTERFACE)

    class OnSharedDevice(plain):
        def __init__(self, store, rank, size, timeout, **_):
            options = plain._Options()
            options._devices, options._timeout = [device], timeout
            super().__init__(store, rank, size, options)

    distributed_c10d.ProcessGroupGloo = OnSharedDevice


def go_on_after_runs(meanwhile):
    """In the context `meanwhile` a run does not end its process, unless it failed other than by a RunError.

    That all ranks find at the same place. After another failure they are not, and no run may follow.
    """
    fail, leave = program.fail, ending.leave

    def fail_and_go_on(problem, so_far):
        if not (isinstance(problem, RunError) and so_far.trainer):
            ending.leave = leave
        fail(problem, so_far)
        so_far.trainer.close()

    meanwhile.enter_context(replaced((program, "fail", fail_and_go_on), (ending, "leave", lambda *_: None)))


def train(backend, name, fault, *arguments):
    """Trains the backend with a fault and these arguments, of which FACTOR and SMALL are of no backend."""
    arguments = list(arguments)
    with faults.REPLACED:
        if SMALL in arguments:
            faults.small(backend)
            arguments.remove(SMALL)
        if FACTOR in arguments:
            place = arguments.index(FACTOR)
            factor = float(arguments[place + 1])
            faults.replace(workloads, "learning_rate_factor", lambda *_: factor)
            del arguments[place : place + 2]
        sys.argv[1:] = arguments
        if hasattr(backend, "deepspeed"):
            # Nor can DeepSpeed, which would end with its process group.
            faults.replace(backend.steps.torch.distributed, "destroy_process_group", lambda: None)
        measure_once()
        if fault == "step_breakdown":
            faults.replace(step_breakdown, "add_to_record", step_breakdown_run.write)
            # Nothing is compared with the times that are measured.
            faults.replace(step_breakdown, "COMMUNICATES", (True, False))
        else:
            (getattr(ROWS[name].faults, fault, None) or getattr(faults, fault))(backend)
        if backend.BACKEND.framework != "PyTorch":
            faults.expect_no_traces_on_the_clock(backend)
        program.main(backend.Trainer, backend.__file__)


def measure_once():
    """Measures the machine's speed once, in products of small matrices: as it is done for a record, it takes as long as a short run.

    No test of what was trained reads it.
    """
    faults.replace(speed, "repeated", lambda action, _: 1 / speed.least_seconds(action))
    for name, value in (("PRODUCT_SIZE", 64), ("PEAK_SIZES", (64,)), ("NUM_PEAK_WARMUPS", 0), ("PEAK_SECONDS", 0)):
        faults.replace(speed, name, value)


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
