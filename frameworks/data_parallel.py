"""PyTorch's DataParallel: one process that computes on all GPUs of a node, each with a part of the batch."""  # backend

from torch.nn import DataParallel  # backend

from common.backends import Backend
from common.process.ranks import from_environment
from common.training.program import main
from frameworks.shared.pytorch import data_parallel, pytorch  # backend

# The copies of a compiled module would all compute with the parameters of the first.
BACKEND = Backend(one_rank=True, by_default=False, change="wrap in DataParallel")  # backend


class Trainer:
    def __init__(self, settings):
        self.ranks = from_environment()
        self.device = pytorch.pick_device(settings, self.ranks)
        self.accumulate = settings.accumulate
        self.module = self.model = pytorch.build(settings, self.device, self.ranks)
        self.optimizer = pytorch.optimizer_for(settings, self.module)
        self.model = DataParallel(self.module, data_parallel.gpus(self.device))  # backend

    @staticmethod
    def device_problem(device):
        return pytorch.device_problem(device) or data_parallel.problem(device)  # backend

    def describe_device(self):
        # It computes on all GPUs.
        return pytorch.describe_device(self.device)._replace(product=None)  # backend

    def train_epoch(self, batches, observe):
        self.model.train()
        for micro_batches, learning_rate in pytorch.steps(batches, self.accumulate, self.device):
            pytorch.set_learning_rate(self.optimizer, learning_rate)
            self.optimizer.zero_grad()
            losses = []
            for inputs, targets, weights, is_last in micro_batches:
                loss = pytorch.weighted_loss(self.model(inputs), targets, weights)
                loss.backward()
                losses.append(loss.detach())
            self.optimizer.step()
            observe(sum(losses))

    def evaluate(self, batches):
        return pytorch.evaluate(self.model, batches, self.device)

    def sum(self, values):
        return values  # backend

    def state(self, with_optimizer_state=True):
        return pytorch.state(self.module, self.optimizer if with_optimizer_state else None)

    def restore(self, state):
        pytorch.restore(self.module, self.optimizer, state)

    def memory(self):
        return pytorch.memory(self.module, self.optimizer)

    def communication(self):
        return None  # backend

    def close(self):
        pass  # backend


if __name__ == "__main__":
    main(Trainer, __file__)
