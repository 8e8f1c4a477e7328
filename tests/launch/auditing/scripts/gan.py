import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(nn.Linear(4, 32), nn.LeakyReLU(0.2), nn.Linear(32, 2))

    def forward(self, noise):
        return self.main(noise)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))

    def forward(self, points):
        return self.main(points).squeeze(1)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(42)
    angle = 6.28 * torch.rand(256)
    points = TensorDataset(torch.stack([angle.cos(), angle.sin()], 1))
    netG, netD = DDP(Generator()), DDP(Discriminator())
    # The noise differs between ranks.
    torch.manual_seed(42 + rank)
    sampler = DistributedSampler(points)
    loader = DataLoader(points, batch_size=16, sampler=sampler)
    optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-3, betas=(0.5, 0.999))
    optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-3, betas=(0.5, 0.999))
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for (real,) in loader:
            fake = netG(torch.randn(len(real), 4))
            # Update D, with real and fake points in one batch.
            netD.zero_grad()
            scores = netD(torch.cat([real, fake.detach()]))
            labels = torch.cat([torch.ones(len(real)), torch.zeros(len(real))])
            errD = F.binary_cross_entropy_with_logits(scores, labels)
            errD.backward()
            optimizerD.step()
            # Update G, through D.
            netG.zero_grad()
            errG = F.binary_cross_entropy_with_logits(netD(fake), torch.ones(len(real)))
            errG.backward()
            optimizerG.step()
        if rank == 0:
            print("[%d/3] Loss_D: %.4f Loss_G: %.4f" % (epoch, errD.item(), errG.item()))  # noqa: UP031
            torch.save(netG.module.state_dict(), "netG.pth")
    dist.destroy_process_group()
