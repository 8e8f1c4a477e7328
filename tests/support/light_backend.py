"""A backend that computes nothing and needs no framework, for a copy of the checkout (LIGHT of tests/support/running.py)."""

import contextlib

import numpy as np

from common import trainer
from common.config import Settings
from common.declarations import Backend
from common.ranks import meeting
from common.ranks.gpus import Device
from common.ranks.launcher_variables import from_environment
from common.trainer import POINTS, Batches, Observe, TensorBytes, Totals
from common.training.program import main

BACKEND = Backend(needs_mpi=True)


class Trainer(trainer.Trainer):
    device_problems = (lambda device: None if device == "cpu" else "it computes nothing",)

    def __init__(self, settings: Settings) -> None:
        self.ranks, self.parameters = from_environment(), {}
        meeting.agree_on_master(self.ranks)
        self.world = meeting.joined(self.ranks).COMM_WORLD

    def describe_device(self) -> Device:
        return Device("cpu", None, None, None, None)

    def profiled(self, folder, schedule):
        return contextlib.nullcontext(lambda: None)

    def train_epoch(self, batches: Batches, observe: Observe) -> None:
        for batch in batches:
            observe(self.sum(np.array([batch.weights.sum()]))[0])

    def evaluate(self, batches: Batches) -> Totals:
        count = sum(batch.weights.sum() for batch in batches)
        return Totals(count, 0.0, count)

    def sum(self, values: np.ndarray) -> np.ndarray:
        return self.world.allreduce(values)

    def state(self, with_optimizer_state: bool = True) -> dict[str, np.ndarray]:
        return dict(self.parameters)

    def restore(self, state) -> None:
        self.parameters = dict(state)

    def memory(self):
        return contextlib.nullcontext(dict.fromkeys(POINTS, TensorBytes(0, 0, 0)))

    def communication(self) -> None:
        return None

    def close(self) -> None:
        pass


if __name__ == "__main__":
    main(Trainer, __file__)
