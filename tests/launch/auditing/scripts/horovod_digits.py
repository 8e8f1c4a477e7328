"""Horovod with PyTorch, in the way of its own examples."""

import horovod.torch as hvd
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(12, 32)
        self.dropout = nn.Dropout(0.2)
        self.fc2 = nn.Linear(32, 3)

    def forward(self, x):
        return F.log_softmax(self.fc2(self.dropout(F.relu(self.fc1(x)))), dim=1)


def train(epoch):
    model.train()
    train_sampler.set_epoch(epoch)
    for data, target in train_loader:
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()


def test():
    model.eval()
    correct = 0.0
    with torch.no_grad():
        for data, target in test_loader:
            correct += model(data).argmax(1).eq(target).float().mean().item() / len(test_loader)
    accuracy = hvd.allreduce(torch.tensor(correct), name="accuracy").item()
    if hvd.rank() == 0:
        print(f"accuracy {accuracy:.3f}")


hvd.init()
torch.manual_seed(42)
x = torch.randn(288, 12)
y = (x @ torch.randn(12, 3)).argmax(1)
train_dataset, test_dataset = TensorDataset(x[:240], y[:240]), TensorDataset(x[240:], y[240:])
train_sampler = DistributedSampler(train_dataset, num_replicas=hvd.size(), rank=hvd.rank())
train_loader = DataLoader(train_dataset, batch_size=12, sampler=train_sampler)
test_loader = DataLoader(test_dataset, batch_size=12, sampler=DistributedSampler(test_dataset, hvd.size(), hvd.rank(), shuffle=False))
torch.manual_seed(42 + hvd.rank())
model = Net()
optimizer = optim.SGD(model.parameters(), lr=0.05 * hvd.size(), momentum=0.5)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
for epoch in range(2):
    train(epoch)
    test()
