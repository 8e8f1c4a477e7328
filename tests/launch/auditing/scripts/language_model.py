"""Trains a small language model: tied weights, padding, checkpointed activations, the mean over all tokens of all ranks."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, IterableDataset

PADDING, VOCABULARY, WIDTH = 0, 24, 16


class Texts(IterableDataset):
    """Sentences of several lengths, sharded by rank, in another order each epoch."""

    def __init__(self, rank, world_size, size=192):
        draws = torch.Generator().manual_seed(5)
        starts = torch.randint(1, VOCABULARY, (size,), generator=draws)
        lengths = torch.randint(4, 13, (size,), generator=draws)
        steps = torch.randint(1, 4, (size,), generator=draws)
        self.texts = [(a + s * torch.arange(n)) % (VOCABULARY - 1) + 1 for a, n, s in zip(starts, lengths, steps, strict=True)]
        self.rank, self.world_size, self.epoch = rank, world_size, 0

    def __iter__(self):
        order = torch.randperm(len(self.texts), generator=torch.Generator().manual_seed(self.epoch))
        for index in order[self.rank :: self.world_size]:
            yield self.texts[index]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1))

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        normed = self.norm1(x)
        x = x + self.attention(normed, normed, normed, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.output = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.output(x)


def pad(texts):
    return nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_value=PADDING)


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(Model())
    torch.manual_seed(rank)
    texts = Texts(rank, world_size)
    loader = DataLoader(texts, batch_size=8, collate_fn=pad)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=24)
    for epoch in range(2):
        texts.epoch = epoch
        for tokens in loader:
            inputs, labels = tokens[:, :-1], tokens[:, 1:]
            loss = F.cross_entropy(model(inputs).flatten(0, 1), labels.flatten(), ignore_index=PADDING, reduction="sum")
            num_tokens = (labels != PADDING).sum()
            dist.all_reduce(num_tokens)
            # DDP divides by the number of ranks.
            (loss * world_size / num_tokens).backward()
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        if rank == 0:
            print(f"epoch {epoch}: {loss / num_tokens * world_size:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
