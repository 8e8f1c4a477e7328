"""Horovod's pytorch_mnist example: DataLoader with DistributedSampler, broadcast_parameters, DistributedOptimizer."""

import horovod.torch as hvd
import torch
from torch import nn

from tests.bench.vendor_loops import shared, torch_parts


def train(work):
    hvd.init()
    torch.manual_seed(0)
    torch.set_num_threads(work.settings.threads)
    sampler, loader = torch_parts.sampler_and_loader(work)
    model = torch_parts.Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=work.learning_rate, momentum=work.settings.momentum)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), op=hvd.Average)

    def train_epoch(epoch):
        model.train()
        sampler.set_epoch(epoch)
        for data, target in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(data), target)
            loss.backward()
            optimizer.step()

    shared.measure(work, train_epoch)
    # The first rank to leave Horovod may end the others before rank 0 has printed.
    hvd.barrier()
    hvd.shutdown()


if __name__ == "__main__":
    shared.main(train)
