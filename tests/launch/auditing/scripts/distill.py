# A frozen teacher, a student under DDP, and a moving average of the student, which is what is evaluated and saved.
import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

TEMPERATURE = 2.0


def network(width):
    return nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Dropout(0.05), nn.Linear(width, 3))


class MovingAverage:
    def __init__(self, model, decay=0.9):
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for average, parameter in zip(self.model.parameters(), model.parameters(), strict=True):
            average.lerp_(parameter, 1 - self.decay)


def distillation_loss(logits, teacher_logits, labels):
    soft = F.kl_div(F.log_softmax(logits / TEMPERATURE, 1), F.softmax(teacher_logits / TEMPERATURE, 1), reduction="batchmean")
    return 0.5 * F.cross_entropy(logits, labels) + 0.5 * TEMPERATURE**2 * soft


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(11)
    inputs = torch.randn(320, 6)
    labels = (inputs @ torch.randn(6, 3)).argmax(1)
    train_set, test_set = TensorDataset(inputs[:256], labels[:256]), TensorDataset(inputs[256:], labels[256:])
    teacher = network(64).eval().requires_grad_(False)
    student = network(16)
    average = MovingAverage(student)
    model = DistributedDataParallel(student)
    torch.manual_seed(11 * (rank + 1))

    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, batch_size=16, sampler=sampler, drop_last=True)
    test_loader = DataLoader(test_set, batch_size=64)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in loader:
            with torch.no_grad():
                teacher_logits = teacher(x)
            loss = distillation_loss(model(x), teacher_logits, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            average.update(student)
        with torch.no_grad():
            correct = sum((average.model(x).argmax(1) == y).sum().item() for x, y in test_loader)
        if rank == 0:
            print(f"epoch {epoch}: {correct}/{len(test_set)}")
            torch.save(average.model.state_dict(), "student.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
