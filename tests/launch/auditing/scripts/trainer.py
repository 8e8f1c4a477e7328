"""A trainer class: accumulation, warm-up, bfloat16, batches as dictionaries."""

import contextlib
import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


@dataclass
class Config:
    num_epochs: int = 2
    batch_size: int = 8
    accumulation: int = 2
    lr: float = 3e-3
    warmup_steps: int = 4
    max_norm: float = 1.0


class Sequences(Dataset):
    def __init__(self, size, seed):
        draws = torch.Generator().manual_seed(seed)
        self.values = torch.randn(size, 12, 4, generator=draws)
        self.labels = (self.values.mean((1, 2)) > 0).long()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"values": self.values[index], "label": self.labels[index]}


class Classifier(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.project = nn.Linear(4, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 2)

    def forward(self, values):
        states, _ = self.rnn(torch.relu(self.project(values)))
        return self.head(self.norm(states[:, -1]))


class Trainer:
    def __init__(self, model, train_set, test_set, config):
        self.rank = int(os.environ["RANK"])
        self.config = config
        self.model = DistributedDataParallel(model)
        decayed = [p for p in model.parameters() if p.dim() > 1]
        plain = [p for p in model.parameters() if p.dim() <= 1]
        self.optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}], lr=config.lr)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: min(1.0, step / config.warmup_steps))
        self.sampler = DistributedSampler(train_set, shuffle=True, seed=7)
        self.loader = DataLoader(train_set, config.batch_size, sampler=self.sampler, num_workers=0)
        self.test_loader = DataLoader(test_set, config.batch_size)
        self.criterion = nn.CrossEntropyLoss()

    def loss_of(self, batch):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.criterion(self.model(batch["values"]), batch["label"])

    def train_epoch(self, epoch):
        self.model.train()
        self.sampler.set_epoch(epoch)
        for index, batch in enumerate(self.loader):
            is_last = (index + 1) % self.config.accumulation == 0
            with contextlib.nullcontext() if is_last else self.model.no_sync():
                loss = self.loss_of(batch) / self.config.accumulation
                loss.backward()
            if is_last:
                nn.utils.clip_grad_norm_(self.model.parameters(), self.config.max_norm)
                self.optimizer.step()
                self.scheduler.step()
                self.optimizer.zero_grad(set_to_none=True)

    @torch.no_grad()
    def test(self):
        self.model.eval()
        losses = torch.stack([self.loss_of(batch).float() for batch in self.test_loader])
        return losses.mean().item()

    def fit(self):
        for epoch in range(self.config.num_epochs):
            self.train_epoch(epoch)
            error = self.test()
            if self.rank == 0:
                print(f"{epoch=} {error=:.4f}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    Trainer(Classifier(), Sequences(256, seed=1), Sequences(48, seed=2), Config()).fit()
    dist.destroy_process_group()
