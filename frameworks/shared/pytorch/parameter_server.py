"""A parameter server and its workers, over MPI: asynchronous SGD (Dean et al. 2012, Large Scale Distributed Deep Networks).

The last rank is the server. It applies the gradients of each worker as they arrive, and answers with the newest parameters.
"""

import contextlib
import functools
import time
import traceback
from abc import abstractmethod
from collections import Counter
from typing import final

import numpy as np
import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from common.errors import UserError
from common.process.meeting import joined
from common.trainer import NO_LOSS, POINTS, Communication, ProfiledCommunication, Totals
from frameworks.shared.pytorch import memory, mpi, process_group, states, steps
from frameworks.shared.pytorch.trainer import PyTorchTrainer
from frameworks.shared.replaced import replaced

# Tags of the messages of a worker for each of its steps: a learning rate, which gradients follow, or that it is left out.
GRADIENTS, LEFT_OUT = 1, 2
POLL_SECONDS = 1e-4


class Remote(torch.optim.Optimizer):
    """A worker's optimizer: a step sends the gradients to the server and fetches the newest parameters.

    `seconds`: time in exchanges, with the wait for the server; `num_steps`: their number.
    """

    def __init__(self, module, server):
        super().__init__(module.parameters(), {"lr": 0.0})
        self.server, self.seconds, self.num_steps = server, 0.0, 0

    @torch.no_grad()
    def step(self):
        begun = time.perf_counter()
        (group,) = self.param_groups
        communicator = mpi.world()
        communicator.Send(np.array([group["lr"]], np.float64), self.server, GRADIENTS)
        values = parameters_to_vector([parameter.grad for parameter in group["params"]])
        communicator.Send(values.numpy(), self.server, GRADIENTS)
        communicator.Recv(values.numpy(), self.server)
        vector_to_parameters(values, group["params"])
        self.seconds += time.perf_counter() - begun
        self.num_steps += 1


def device_problem(device):
    """Why a parameter server cannot use `cpu` or `cuda`; None if it can."""
    return "the messages of a parameter server are in main memory" if device == "cuda" else None


def begin(ranks, device):
    """Initializes MPI and returns whether this rank is the server. Raises UserError on a GPU, or if MPI has a different number of ranks."""
    if reason := device_problem(device.type):
        raise UserError(f"{reason}; use --device cpu")
    joined(ranks)
    return ranks.rank == ranks.size - 1


def asynchronous(train_epoch):
    """Makes the train_epoch of one process that of a worker. The server serves; all have its parameters at the end of the epoch."""

    @functools.wraps(train_epoch)
    def epoch(trainer, batches, observe):
        if not trainer.exchanges:
            return train_epoch(trainer, batches, observe) if not trainer.serves else rest(0, batches, observe)
        staleness = serve(trainer, len(batches), observe) if trainer.serves else work(trainer, train_epoch, batches, observe)
        return synchronize(trainer, staleness)

    return epoch


def rest(num_done, batches, observe, before_step=lambda: None):
    """Observes the remaining steps of an epoch, in which this rank trains nothing; calls `before_step()` before each of them."""
    for _ in range(num_done, len(batches)):
        before_step()
        observe(NO_LOSS)


def work(trainer, train_epoch, batches, observe):
    """Trains an epoch as a worker. One whose training fails is left out from there on, and takes part in evaluations only.

    A failure before the first epoch, or of MPI, is that of the run.
    """
    from mpi4py import MPI

    num_done = 0

    def counting(loss):
        nonlocal num_done
        num_done += 1
        observe(loss)

    if trainer.failure is None:
        try:
            train_epoch(trainer, batches, counting)
        except Exception as problem:
            if trainer.staleness is None or isinstance(problem, MPI.Exception):
                raise
            traceback.print_exc()
            place = f"epoch {len(trainer.staleness) + 1}, step {num_done + 1}"
            trainer.failure = f"rank {trainer.ranks.rank}, {place}: {type(problem).__name__}: {problem}"
    # For the server each step is a message, so that all ranks are at the same step where a turn ends.
    rest(num_done, batches, observe, lambda: mpi.world().Send(np.zeros(1), trainer.ranks.size - 1, LEFT_OUT))


def serve(trainer, num_steps, observe):
    """Applies an epoch of updates; {staleness: number of updates}. Staleness: updates since the worker fetched its parameters."""
    from mpi4py import MPI

    communicator, status = mpi.world(), MPI.Status()
    num_workers, parameters = trainer.ranks.size - 1, list(trainer.module.parameters())
    values, learning_rate = torch.empty_like(parameters_to_vector(parameters)), np.empty(1)
    for parameter, gradient in zip(parameters, values.split([parameter.numel() for parameter in parameters]), strict=True):
        parameter.grad = gradient.view_as(parameter)
    fetched, num_updates, staleness = [0] * num_workers, 0, Counter()
    for _ in range(num_steps):
        for _ in range(num_workers):
            # MPI's own wait would keep a core from the workers.
            while not communicator.Iprobe():
                time.sleep(POLL_SECONDS)
            communicator.Recv(learning_rate, MPI.ANY_SOURCE, MPI.ANY_TAG, status)
            worker = status.Get_source()
            if status.Get_tag() == LEFT_OUT:
                continue
            communicator.Recv(values.numpy(), worker)
            staleness[num_updates - fetched[worker]] += 1
            update(trainer.optimizer, values, learning_rate.item(), num_workers)
            num_updates += 1
            communicator.Send(parameters_to_vector(parameters).detach().numpy(), worker)
            fetched[worker] = num_updates
        observe(NO_LOSS)
    return dict(sorted(staleness.items()))


def update(optimizer, gradients, learning_rate, num_workers):
    """Applies the gradients of one worker. Those of all add up to the average, as in synchronous training."""
    steps.set_learning_rate(optimizer, learning_rate)
    gradients /= num_workers
    optimizer.step()


@torch.no_grad()
def synchronize(trainer, staleness):
    """Gives all ranks the parameters, and what there is to record of the epoch. Raises RuntimeError if no worker trains any more."""
    communicator, server = mpi.world(), trainer.ranks.size - 1
    values = parameters_to_vector(trainer.module.parameters())
    communicator.Bcast(values.numpy(), server)
    vector_to_parameters(values, trainer.module.parameters())
    staleness = communicator.bcast(staleness, server)
    trainer.left_out = [failure for failure in communicator.allgather(trainer.failure) if failure]
    if len(trainer.left_out) == server:
        raise RuntimeError(f"the training of every worker has failed; the first: {trainer.left_out[0]}")
    if trainer.staleness is not None:
        trainer.staleness.append({str(value): number for value, number in staleness.items()})


class ServerTrainer(PyTorchTrainer):
    """A backend whose last rank, which `serves`, has the optimizer. The `failure` of a worker is why it no longer trains."""

    @abstractmethod
    def __init__(self, settings):
        super().__init__(settings)
        self.serves, self.exchanges, self.transport = begin(self.ranks, self.device), True, "mpi"
        self.staleness, self.left_out, self.failure = None, None, None

    @final
    def sum(self, values):
        total = np.array(values, np.float64)
        mpi.all_reduce(torch.from_numpy(total))
        return total

    @final
    def close(self):
        pass

    @final
    def evaluate(self, batches):
        # The server has no shard.
        return Totals(0.0, 0.0, 0.0) if self.serves else steps.evaluate(self.model, batches, self.device)

    @final
    def state(self, with_optimizer_state=True):
        if not with_optimizer_state:
            return states.gather(self.module, None)
        state = states.gather(self.module, self.optimizer) if self.serves else None
        return mpi.world().bcast(state, self.ranks.size - 1)

    @final
    def restore(self, state):
        """As states.restore; the optimizer state is the server's. Training begins anew, with all workers."""
        parameters = {name: array for name, array in state.items() if "/" not in name}
        states.restore(self.module, self.optimizer, state if self.serves else parameters)
        self.staleness, self.left_out, self.failure = [], [], None

    @final
    def memory(self):
        return _memory_of_server(self) if self.serves else memory.at_points(self.module, self.optimizer)


@contextlib.contextmanager
def _memory_of_server(trainer):
    """The server has no passes, and holds the same at each of the points."""
    held_at = {}
    yield held_at
    held_at |= dict.fromkeys(POINTS, memory.held_by(list(trainer.module.parameters()), trainer.optimizer))


def communication(trainer):
    """How to measure its communication: a worker's messages to the server and back. The server itself has no profile."""

    def without_communication():
        return replaced((trainer, "exchanges", False), (Remote, "step", lambda _: None))

    def profiled(train):
        if trainer.serves:
            train()
            return ProfiledCommunication(float("nan"), {}, {})
        remote = trainer.optimizer
        remote.seconds, remote.num_steps = 0.0, 0
        train()
        size_bytes = remote.num_steps * process_group.size_of(trainer.module.parameters())
        operations = dict.fromkeys(("send", "receive"), (remote.num_steps, size_bytes))
        return ProfiledCommunication(remote.seconds, operations, {})

    return Communication(
        without_communication, profiled, lambda num_bytes: process_group.plain_all_reduce(num_bytes, trainer.device, mpi.all_reduce)
    )
