"""Asynchronous SGD over MPI: the last rank is a parameter server, which applies the gradients of the others as they arrive."""  # backend

from common.backends import Backend
from common.process.ranks import from_environment
from common.training.program import main
from frameworks.shared.pytorch import parameter_server, pytorch  # backend

BACKEND = Backend(
    needs_mpi=True, can_compile=True, approximate=True, by_default=False, num_servers=1,
    change="send gradients to a server, which has the optimizer",
)  # fmt: skip  # backend


class Trainer:
    def __init__(self, settings):
        self.ranks = from_environment()
        self.device = pytorch.pick_device(settings, self.ranks)
        self.accumulate = settings.accumulate
        self.module = self.model = pytorch.build(settings, self.device, self.ranks)
        self.optimizer = pytorch.optimizer_for(settings, self.module)
        self.serves, self.exchanges, self.transport = parameter_server.begin(self.ranks, self.device), True, "mpi"  # backend
        self.staleness, self.left_out, self.failure = None, None, None  # backend
        if not self.serves:  # backend
            self.optimizer = parameter_server.Remote(self.module, self.ranks.size - 1)  # backend

    @staticmethod
    def device_problem(device):
        return pytorch.device_problem(device) or parameter_server.device_problem(device)  # backend

    def describe_device(self):
        return pytorch.describe_device(self.device)

    @parameter_server.asynchronous  # backend
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
        return parameter_server.evaluate(self, batches)  # backend

    def sum(self, values):
        return parameter_server.summed(values)  # backend

    def state(self, with_optimizer_state=True):
        return parameter_server.state(self, with_optimizer_state)  # backend

    def restore(self, state):
        parameter_server.restore(self, state)  # backend

    def memory(self):
        return parameter_server.memory(self)  # backend

    def communication(self):
        return parameter_server.communication(self)  # backend

    def close(self):
        pass  # backend


if __name__ == "__main__":
    main(Trainer, __file__)
