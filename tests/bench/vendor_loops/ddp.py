"""PyTorch's DDP tutorial: DataLoader with DistributedSampler, DDP, backward, step."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from common.process.rendezvous import agree_on_master
from tests.bench.vendor_loops import shared, torch_parts


def train(work):
    torch.set_num_threads(work.settings.threads)
    agree_on_master(work.ranks)
    dist.init_process_group("gloo", rank=work.ranks.rank, world_size=work.ranks.size)
    torch.manual_seed(0)
    sampler, loader = torch_parts.sampler_and_loader(work)
    model = DistributedDataParallel(torch_parts.Net())
    loss_fn = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=work.learning_rate, momentum=work.settings.momentum)

    def train_epoch(epoch):
        sampler.set_epoch(epoch)
        model.train()
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = loss_fn(model(inputs), targets)
            loss.backward()
            optimizer.step()

    shared.measure(work, train_epoch)
    dist.destroy_process_group()


if __name__ == "__main__":
    shared.main(train)
