# Fits a small curve; every rank draws its part of each shuffled epoch by hand.
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group(backend="gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1234)

inputs = torch.rand(480, 3) * 6 - 3
targets = inputs.sin().sum(1, keepdim=True) + 0.05 * torch.randn(480, 1)
train_inputs, train_targets = inputs[:400], targets[:400]
test_inputs, test_targets = inputs[400:], targets[400:]

net = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
model = nn.parallel.DistributedDataParallel(net)
loss_function = nn.MSELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

for epoch in range(3):
    model.train()
    order = torch.randperm(len(train_inputs), generator=torch.Generator().manual_seed(epoch))
    for indices in order[rank::world_size].split(20):
        prediction = model(train_inputs[indices])
        loss = loss_function(prediction, train_targets[indices])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    model.eval()
    with torch.no_grad():
        error = loss_function(model(test_inputs), test_targets)
    if rank == 0:
        print(epoch, loss.item(), error.item())

if rank == 0:
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, "checkpoint.pt")
dist.destroy_process_group()
