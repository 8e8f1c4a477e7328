"""What the backends on Horovod share: its start, and what their communication is measured with."""

import contextlib
import math
import os
import tempfile
import time
from pathlib import Path

import numpy as np

from common import records
from common.rendezvous import expect_size
from common.trainer import Communication, Observed

SECONDS_TO_WRITE = 5.0
# Summed where a timeline begins and where it ends, so that all ranks are there.
MARK = np.zeros(1)
# Horovod's names for the collectives of common/account.py.
OPERATIONS = {"ALLREDUCE": "all_reduce", "ALLGATHER": "all_gather", "REDUCESCATTER": "reduce_scatter", "ALLTOALL": "all_to_all"}


def begin(hvd, settings, ranks):
    """Joins the ranks. Raises UserError where Horovod sees others than were started, or --autotune would have no folder for its log."""
    os.environ |= variables(settings)
    # So its timeline can be begun later; until then it writes none.
    os.environ.setdefault("HOROVOD_TIMELINE", "DYNAMIC")
    hvd.init()
    expect_size(ranks, hvd.size(), "Horovod")


def variables(settings):
    """Horovod's variables for what it is to leave in the folder of the run's traces, which is made."""
    wanted = {}
    if settings.timeline or settings.autotune:
        # Only a run that leaves traces shall wait for this import.
        from launch.trace import timeline

        folder = records.make_trace_folder(settings, "--timeline" if settings.timeline else "--autotune")
        wanted |= timeline.horovod_variables(folder) if settings.timeline else {}
        wanted |= timeline.autotune_variables(folder) if settings.autotune else {}
    return wanted


def communication_of_torch(hvd, trainer):
    """What the communication of a trainer on PyTorch is measured with."""
    import torch

    @contextlib.contextmanager
    def alone():
        # Horovod takes a handle that is a function for the sum of the gradients, when it has called it.
        trainer.optimizer._allreduce_grad_async = lambda parameter: (lambda: parameter.grad, None)
        yield
        del trainer.optimizer._allreduce_grad_async

    def plain(num_bytes):
        buffer = torch.zeros(num_bytes // 4, device=trainer.device)

        def all_reduce():
            hvd.allreduce_(buffer, op=hvd.Sum, name="plain")
            if trainer.device.type == "cuda":
                torch.cuda.synchronize(trainer.device)

        return all_reduce

    return Communication(alone, lambda train: _observed(hvd, trainer, train), plain)


def communication_of_tensorflow(hvd, trainer, alone):
    """What the communication of a trainer on TensorFlow is measured with; `alone` as in Communication."""
    import tensorflow as tf

    def plain(num_bytes):
        buffer = tf.zeros(num_bytes // 4)

        def all_reduce():
            # One value of it read is all of it there.
            hvd.allreduce(buffer, op=hvd.Sum, name="plain")[0].numpy()

        return all_reduce

    return Communication(alone, lambda train: _observed(hvd, trainer, train), plain)


def _observed(hvd, trainer, train):
    """What Horovod's timeline tells, which rank 0 alone writes; nothing where it is not written in time."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "timeline.json"
        hvd.start_timeline(str(path))
        trainer.sum(MARK)
        train()
        trainer.sum(MARK)
        hvd.stop_timeline()
        return told(path) if trainer.ranks.rank == 0 and _is_whole(path) else Observed(math.nan, {}, {})


def _is_whole(path):
    """Waits for a timeline's end, which Horovod writes from a thread of its own; whether it came."""
    patience = time.monotonic() + SECONDS_TO_WRITE
    while time.monotonic() < patience:
        if path.exists() and path.read_bytes().endswith(b"]"):
            return True
        time.sleep(0.01)
    return False


def told(path):
    """What a timeline tells of the steps in it, which have no tensor as small as the marks around them."""
    # What reads it belongs to the tracing of runs; every start would be longer by its import.
    from launch.trace import chrome, horovod_timeline

    operations, seconds = {}, 0.0
    for one in horovod_timeline.read(chrome.events(path)):
        if isinstance(one, horovod_timeline.Operation) and one.size_bytes != MARK.nbytes:
            name = OPERATIONS.get(one.name, one.name.lower())
            num_calls, num_bytes = operations.get(name, (0, 0))
            operations[name] = num_calls + 1, num_bytes + (one.size_bytes or 0)
            seconds += (one.end - one.start) / 1e6
    return Observed(seconds, operations, {})
