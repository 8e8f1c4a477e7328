"""The CNN and the data as examples for PyTorch write them."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = nn.functional.relu(self.conv1(x))
        x = nn.functional.relu(self.conv2(x))
        x = nn.functional.max_pool2d(x, 2)
        x = torch.flatten(x, 1)
        x = nn.functional.relu(self.fc1(x))
        return self.fc2(x)


def dataset(work):
    return TensorDataset(torch.from_numpy(work.inputs).unsqueeze(1), torch.from_numpy(work.targets))


def sampler_and_loader(work):
    data = dataset(work)
    sampler = DistributedSampler(data, num_replicas=work.ranks.size, rank=work.ranks.rank)
    return sampler, DataLoader(data, batch_size=work.settings.batch_size, sampler=sampler)
