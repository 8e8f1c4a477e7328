"""Asynchronous SGD over MPI: the last rank is a parameter server, which applies the gradients of the others as they arrive."""

from common.config import Settings
from common.declarations import Backend
from common.trainer import Batches, Communication, Observe
from common.training.program import main
from frameworks.shared.pytorch import asynchronous_sgd, modules, steps

BACKEND = Backend(
    needs_mpi=True, approximate=True, by_default=False, num_servers=1,
    change="send gradients to a server, which has the optimizer",
)  # fmt: skip


class Trainer(asynchronous_sgd.ServerTrainer):
    device_problems = (*asynchronous_sgd.ServerTrainer.device_problems, asynchronous_sgd.device_problem)

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.module = self.model = modules.build(settings, self.device, self.ranks)
        self.optimizer = steps.optimizer_for(settings, self.module)
        if not self.serves:
            self.optimizer = asynchronous_sgd.Remote(self.module, self.ranks.size - 1)

    @asynchronous_sgd.asynchronous
    def train_epoch(self, batches: Batches, observe: Observe) -> None:
        self.model.train()
        for micro_batches, learning_rate in steps.in_micro_batches(batches, self.accumulate, self.device):
            steps.set_learning_rate(self.optimizer, learning_rate)
            self.optimizer.zero_grad()
            losses = []
            for inputs, targets, weights, is_last in micro_batches:
                loss = self.loss(inputs, targets, weights)
                loss.backward()
                losses.append(loss.detach())
            self.optimizer.step()
            observe(sum(losses))

    def communication(self) -> Communication:
        return asynchronous_sgd.communication(self)


if __name__ == "__main__":
    main(Trainer, __file__)
