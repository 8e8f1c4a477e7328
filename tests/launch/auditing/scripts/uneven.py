"""Each rank reads its own files, some longer than others: Join lets those that are done follow the rest."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

NUM_ROWS = [130, 100, 90, 120]


def read(file):
    draws = torch.Generator().manual_seed(file)
    x = torch.randn(NUM_ROWS[file], 7, generator=draws)
    return x, x.abs().sum(1, keepdim=True)


def loader_of(files):
    rows = [read(file) for file in files]
    return DataLoader(TensorDataset(*map(torch.cat, zip(*rows, strict=True))), batch_size=10, shuffle=True)


def main(rank, world_size):
    torch.manual_seed(21)
    model = DDP(nn.Sequential(nn.Linear(7, 32), nn.ELU(), nn.LayerNorm(32), nn.Linear(32, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    train_loader = loader_of(range(rank, 3, world_size))
    valid_loader = loader_of([3])
    for epoch in range(2):
        model.train()
        with Join([model]):
            for x, y in train_loader:
                loss = nn.functional.smooth_l1_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        model.eval()
        with torch.inference_mode():
            error = sum(nn.functional.l1_loss(model.module(x), y, reduction="sum").item() for x, y in valid_loader) / NUM_ROWS[3]
        print(f"[{rank}] epoch {epoch}: {error:.3f}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    main(dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()
