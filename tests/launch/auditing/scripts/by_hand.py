#!/usr/bin/env python
# Gradients are averaged by hand, as in PyTorch's tutorial on writing distributed applications.
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.utils.data import DataLoader, Subset, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(5, 20)
        self.norm = nn.BatchNorm1d(20)
        self.fc2 = nn.Linear(20, 20)
        self.fc3 = nn.Linear(20, 3)

    def forward(self, x):
        x = F.relu(self.norm(self.fc1(x)))
        return F.log_softmax(self.fc3(F.relu(self.fc2(x))), dim=1)


def partition_dataset(rank, size):
    draws = torch.Generator().manual_seed(99)
    x = torch.randn(270, 5, generator=draws)
    y = x[:, :3].argmax(1)
    train, test = range(240), range(240, 270)
    indices = torch.randperm(len(train), generator=draws).tolist()[rank::size]
    dataset = TensorDataset(x, y)
    return DataLoader(Subset(dataset, indices), batch_size=12, shuffle=True), DataLoader(Subset(dataset, test), batch_size=30)


def broadcast_start(model):
    for tensor in [*model.parameters(), *model.buffers()]:
        dist.broadcast(tensor.data, src=0)


def average_gradients(model):
    size = float(dist.get_world_size())
    for param in model.parameters():
        dist.all_reduce(param.grad.data, op=dist.ReduceOp.SUM)
        param.grad.data /= size


def average_buffers(model):
    for buffer in model.buffers():
        if buffer.is_floating_point():
            dist.all_reduce(buffer)
            buffer.div_(dist.get_world_size())


def run(rank, size):
    torch.manual_seed(1234 + rank)
    train_set, test_set = partition_dataset(rank, size)
    model = Net()
    broadcast_start(model)
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    for epoch in range(2):
        epoch_loss = 0.0
        model.train()
        for data, target in train_set:
            optimizer.zero_grad()
            loss = F.nll_loss(model(data), target)
            epoch_loss += loss.item()
            loss.backward()
            average_gradients(model)
            optimizer.step()
        average_buffers(model)
        model.eval()
        with torch.no_grad():
            test_loss = sum(F.nll_loss(model(data), target).item() for data, target in test_set)
        print("Rank", rank, ", epoch", epoch, ":", epoch_loss / len(train_set), test_loss)


if __name__ == "__main__":
    dist.init_process_group("gloo", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
    run(dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()
