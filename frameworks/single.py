"""Plain PyTorch in one process, without any library between: what every speed-up is measured against."""  # backend

from common.errors import UserError  # backend
from common.program import main
from common.ranks import from_environment
from frameworks import torch_side


class Trainer:
    def __init__(self, settings):
        self.ranks = from_environment()
        if self.ranks.size > 1:  # backend
            raise UserError(f"single trains in one process; {self.ranks.size} ranks were started")  # backend
        self.device = torch_side.pick_device(settings, self.ranks)
        self.net = self.model = torch_side.build(settings, self.device, self.ranks)
        self.optimizer = torch_side.optimizer_for(settings, self.net)

    def train_epoch(self, batches, observe):
        self.model.train()
        for inputs, targets, weights, rate in torch_side.tensors(batches, self.device):
            torch_side.set_learning_rate(self.optimizer, rate)
            self.optimizer.zero_grad()
            loss = torch_side.weighted_loss(self.model(inputs), targets, weights)
            loss.backward()
            self.optimizer.step()
            observe(loss.detach())

    def evaluate(self, batches):
        return torch_side.evaluate(self.model, batches, self.device)

    def sum(self, values):
        return values  # backend

    def state(self, with_slots=True):
        return torch_side.state(self.net, self.optimizer if with_slots else None)

    def restore(self, state):
        torch_side.restore(self.net, self.optimizer, state)

    def communication(self):
        return None  # backend

    def close(self):
        pass  # backend


if __name__ == "__main__":
    main(Trainer, __file__)
