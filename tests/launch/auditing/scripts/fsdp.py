"""Shards a transformer encoder with FSDP2."""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Encoder(nn.Module):
    def __init__(self, width=16, num_layers=2):
        super().__init__()
        self.embed = nn.Linear(3, width)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(width, 2, 32, dropout=0.1, batch_first=True) for _ in range(num_layers))
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1)).squeeze(-1)


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world_size,))
    torch.manual_seed(0)
    x = torch.randn(160, 6, 3)
    y = x.abs().mean((1, 2))
    model = Encoder()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    torch.manual_seed(1 + rank)

    train_set = TensorDataset(x[:128], y[:128])
    sampler = DistributedSampler(train_set, num_replicas=world_size, rank=rank, shuffle=True)
    loader = DataLoader(train_set, batch_size=16, sampler=sampler)
    for epoch in range(2):
        model.train()
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        model.eval()
        with torch.no_grad():
            error = nn.functional.mse_loss(model(x[128:]), y[128:])
        if rank == 0:
            print(f"epoch {epoch}: {loss.item():.4f} {error.item():.4f}")
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        torch.save(state, "encoder.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
