"""PyTorch's post-local SGD: the average of the parameters at the end of an epoch, and its communication."""

import contextlib

from torch.distributed.algorithms.model_averaging import utils

from frameworks.shared.pytorch import process_group
from frameworks.shared.replaced import replaced


def average(optimizer):
    """Averages the parameters of a PostLocalSGDOptimizer once its ranks train locally; until then they are the same on all ranks."""
    if optimizer.averager.step > optimizer.averager.warmup_steps:
        utils.average_parameters_or_parameter_groups(optimizer.param_groups, optimizer.averager.process_group)


def restart(optimizer, gradients):
    """Counts the steps until the ranks train locally anew; `gradients` is the state of the hook."""
    gradients.iter = optimizer.averager.step = 0


def communication(model, optimizer, device):
    """How to measure its communication: DistributedDataParallel's at first, averages of the parameters later."""
    of_ddp = process_group.communication_of_ddp(model, device)

    @contextlib.contextmanager
    def without_communication():
        # No step of local training has been taken, so that no average is due at the end of an epoch either.
        local = replaced((optimizer.averager, "step", 0), (optimizer.averager, "average_parameters", lambda params: None))
        with local, of_ddp.without_communication():
            yield

    return process_group.communication_of_functions({"all_reduce": "all_reduce"}, without_communication, device)
