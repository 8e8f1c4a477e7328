import deepspeed
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

# This extension would be compiled at the first start, for a minute.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
CONFIG = {
    "train_micro_batch_size_per_gpu": 8,
    "gradient_accumulation_steps": 1,
    "gradient_clipping": 1.0,
    "zero_optimization": {"stage": 1},
}


class Pairs(Dataset):
    def __init__(self, num_pairs, seed):
        draws = torch.Generator().manual_seed(seed)
        self.left, self.right = torch.randn(2, num_pairs, 8, generator=draws)

    def __len__(self):
        return len(self.left)

    def __getitem__(self, index):
        return self.left[index], self.right[index], (self.left[index] @ self.right[index] > 0).float()


class Matcher(nn.Module):
    def __init__(self):
        super().__init__()
        self.tower = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16))
        self.score = nn.Bilinear(16, 16, 1)

    def forward(self, left, right):
        return self.score(self.tower(left), self.tower(right)).squeeze(1)


def main():
    deepspeed.init_distributed("gloo")
    torch.manual_seed(8)
    model = Matcher()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    engine, optimizer, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=CONFIG)
    train_set, eval_set = Pairs(256, seed=0), Pairs(64, seed=1)
    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, batch_size=engine.train_micro_batch_size_per_gpu(), sampler=sampler)
    criterion = nn.BCEWithLogitsLoss()
    for epoch in range(2):
        engine.train()
        sampler.set_epoch(epoch)
        for left, right, target in loader:
            loss = criterion(engine(left, right), target)
            engine.backward(loss)
            engine.step()
        engine.eval()
        with torch.no_grad():
            error = sum(criterion(engine(left, right), target) for left, right, target in DataLoader(eval_set, 32)) / 2
        if engine.global_rank == 0:
            print(f"epoch {epoch}: {error.item():.3f}")


if __name__ == "__main__":
    main()
