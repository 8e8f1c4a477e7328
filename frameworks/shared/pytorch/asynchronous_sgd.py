"""A parameter server and its workers, over MPI: asynchronous SGD (Dean et al. 2012, Large Scale Distributed Deep Networks).

The last rank is the server. It applies the gradients of each worker as they arrive, and answers with the newest parameters.
"""

import contextlib
import functools
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeVar, cast, final

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from common.config import Settings
from common.errors import UserError
from common.model import weights
from common.ranks.meeting import joined
from common.trainer import NO_LOSS, POINTS, Batches, Communication, Observe, ProfiledCommunication, TensorBytes, Totals
from frameworks.shared.pytorch import mpi_tensors, process_group, states, steps, tensor_bytes
from frameworks.shared.pytorch.pytorch_trainer import PyTorchTrainer
from frameworks.shared.replaced import replaced

# A train_epoch of a ServerTrainer.
TrainEpoch = TypeVar("TrainEpoch", bound=Callable[..., None])
POLL_SECONDS = 1e-4


class Remote(torch.optim.Optimizer):
    """A worker's optimizer: a step, which takes no closure, sends the gradients to the server and fetches the newest parameters.

    `seconds`: time in exchanges, with the wait for the server; `num_steps`: their number.
    """

    def __init__(self, module: nn.Module, server: int) -> None:
        super().__init__(module.parameters(), {"lr": 0.0})
        self.server, self.seconds, self.num_steps = server, 0.0, 0

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        begun = time.perf_counter()
        (group,) = self.param_groups
        communicator = mpi_tensors.world()
        communicator.Send(np.array([group["lr"]], np.float64), self.server)
        values = parameters_to_vector([parameter.grad for parameter in group["params"]])
        communicator.Send(values.numpy(), self.server)
        communicator.Recv(values.numpy(), self.server)
        vector_to_parameters(values, group["params"])
        self.seconds += time.perf_counter() - begun
        self.num_steps += 1


def device_problem(device: str) -> str | None:
    """Returns why a parameter server cannot use `cpu` or `cuda`; None if it can."""
    return "the messages of a parameter server are in main memory" if device == "cuda" else None


def asynchronous(train_epoch: TrainEpoch) -> TrainEpoch:
    """Makes the train_epoch of one process that of a worker. The server serves; all have its parameters at the end of the epoch."""

    @functools.wraps(train_epoch)
    def epoch(trainer: Any, batches: Batches, observe: Observe) -> None:
        staleness = None
        if not trainer.serves:
            train_epoch(trainer, batches, observe)
        elif trainer.exchanges:
            staleness = serve(trainer, len(batches), observe)
        else:
            for _ in range(len(batches)):
                observe(NO_LOSS)
        if trainer.exchanges:
            synchronize(trainer, staleness)

    # functools.wraps keeps the signature.
    return cast("TrainEpoch", epoch)


def serve(trainer: "ServerTrainer", num_steps: int, observe: Observe) -> dict[int, int]:
    """Applies an epoch of updates; returns their number by staleness, the updates since the worker fetched its parameters."""
    from mpi4py import MPI

    communicator, status = mpi_tensors.world(), MPI.Status()
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
            communicator.Recv(learning_rate, MPI.ANY_SOURCE, status=status)
            worker = status.Get_source()
            communicator.Recv(values.numpy(), worker)
            staleness[num_updates - fetched[worker]] += 1
            update(trainer.optimizer, values, learning_rate.item(), num_workers)
            num_updates += 1
            communicator.Send(parameters_to_vector(parameters).detach().numpy(), worker)
            fetched[worker] = num_updates
        observe(NO_LOSS)
    return dict(sorted(staleness.items()))


def update(optimizer: torch.optim.Optimizer, gradients: torch.Tensor, learning_rate: float, num_workers: int) -> None:
    """Applies the gradients of one worker, divided so that those of all workers add up to the average, as in synchronous training."""
    steps.set_learning_rate(optimizer, learning_rate)
    gradients /= num_workers
    optimizer.step()


@torch.no_grad()
def synchronize(trainer: "ServerTrainer", staleness: dict[int, int] | None) -> None:
    """Gives all ranks the parameters, and what there is to record of the epoch."""
    communicator, server = mpi_tensors.world(), trainer.ranks.size - 1
    values = parameters_to_vector(trainer.module.parameters())
    communicator.Bcast(values.numpy(), server)
    vector_to_parameters(values, trainer.module.parameters())
    staleness_of_epoch: dict[int, int] = communicator.bcast(staleness, server)
    if trainer.staleness is not None:
        trainer.staleness.append({str(value): number for value, number in staleness_of_epoch.items()})


class ServerTrainer(PyTorchTrainer):
    """A backend whose last rank, which `serves`, has the optimizer."""

    @abstractmethod
    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        if reason := device_problem(self.device.type):
            raise UserError(f"{reason}; use --device cpu")
        joined(self.ranks)
        self.serves, self.exchanges, self.transport = self.ranks.rank == self.ranks.size - 1, True, "mpi"
        self.staleness: list[dict[str, int]] | None = None

    @final
    def sum(self, values: np.ndarray) -> np.ndarray:
        total = np.array(values, np.float64)
        mpi_tensors.all_reduce(torch.from_numpy(total))
        return total

    @final
    def close(self) -> None:
        pass

    @final
    def evaluate(self, batches: Batches) -> Totals:
        if self.serves:
            # It has no shard.
            return Totals.of([0.0] * (3 + self.criterion.num_sums))
        return steps.evaluate(self.model, batches, self.device, self.criterion)

    @final
    def state(self, with_optimizer_state: bool = True) -> dict[str, np.ndarray]:
        if not with_optimizer_state:
            return states.gather(self.module, None)
        state = states.gather(self.module, self.optimizer) if self.serves else None
        return mpi_tensors.world().bcast(state, self.ranks.size - 1)

    @final
    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Does as states.restore, with the optimizer state on the server. Training begins anew."""
        of_model = {name: array for name, array in state.items() if "/" not in name or name.startswith(weights.BUFFER)}
        states.restore(self.module, self.optimizer, state if self.serves else of_model)
        self.staleness = []

    @final
    def memory(self) -> AbstractContextManager[Mapping[str, TensorBytes]]:
        if self.serves:
            # It has no passes, and holds the same at each of the points.
            return contextlib.nullcontext(dict.fromkeys(POINTS, tensor_bytes.bytes_of(list(self.module.parameters()), self.optimizer)))
        return tensor_bytes.at_points(self.module, self.optimizer)


def communication(trainer: ServerTrainer) -> Communication:
    """Returns how to measure its communication: a worker's messages to the server and back. The server itself has no profile."""

    def without_communication() -> AbstractContextManager[None]:
        return replaced((trainer, "exchanges", False), (Remote, "step", lambda _: None))

    def profiled(train: Callable[[], None]) -> ProfiledCommunication:
        if trainer.serves:
            train()
            return ProfiledCommunication(float("nan"), {})
        remote = trainer.optimizer
        remote.seconds, remote.num_steps = 0.0, 0
        train()
        num_steps, num_bytes = remote.num_steps, remote.num_steps * process_group.size_of(trainer.module.parameters())
        return ProfiledCommunication(remote.seconds, {"send": (num_steps, num_bytes), "receive": (num_steps, num_bytes)})

    return Communication(without_communication, profiled)
