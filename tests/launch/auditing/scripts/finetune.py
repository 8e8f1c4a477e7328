"""Trains a new head and the last layers of a pretrained network, and stops early."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def pretrained():
    return nn.Sequential(nn.Linear(8, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU())


class Finetuned(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = pretrained()
        self.adapter = nn.Sequential(nn.Linear(24, 24), nn.ReLU())
        self.head = nn.Linear(24, 2)
        for parameter in self.backbone.parameters():
            parameter.requires_grad = False

    def train(self, mode=True):
        super().train(mode)
        # Its statistics stay those of the pretraining.
        self.backbone.eval()
        return self

    def forward(self, x):
        with torch.no_grad():
            features = self.backbone(x)
        return self.head(self.adapter(features))


def mean_over_ranks(value):
    value = value.detach().clone()
    dist.all_reduce(value)
    return value / dist.get_world_size()


def validate(model, loader, criterion):
    model.eval()
    with torch.no_grad():
        losses = [criterion(model(x), y) for x, y in loader]
    return mean_over_ranks(torch.stack(losses).mean())


def run():
    torch.manual_seed(2)
    x = torch.randn(300, 8)
    y = (x.pow(2).sum(1) > 7.5).long()
    train_set, valid_set = TensorDataset(x[:240], y[:240]), TensorDataset(x[240:], y[240:])
    model = DDP(Finetuned())
    sampler = DistributedSampler(train_set, drop_last=True)
    train_loader = DataLoader(train_set, batch_size=12, sampler=sampler)
    valid_loader = DataLoader(valid_set, batch_size=15, sampler=DistributedSampler(valid_set, shuffle=False))
    groups = [{"params": model.module.adapter.parameters(), "lr": 1e-3}, {"params": model.module.head.parameters(), "lr": 1e-2}]
    optimizer = torch.optim.AdamW(groups)
    scheduler = ReduceLROnPlateau(optimizer, patience=0)
    criterion = nn.CrossEntropyLoss()
    best, patience = float("inf"), 1
    for epoch in range(3):
        sampler.set_epoch(epoch)
        model.train()
        for inputs, targets in train_loader:
            loss = criterion(model(inputs), targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        validation_loss = validate(model, valid_loader, criterion).item()
        scheduler.step(validation_loss)
        if validation_loss < best:
            best = validation_loss
            if dist.get_rank() == 0:
                torch.save({"epoch": epoch, "model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, "best.pt")
        elif patience == 0:
            break
        else:
            patience -= 1


if __name__ == "__main__":
    dist.init_process_group("gloo")
    run()
    dist.destroy_process_group()
