"""Two ranks that call Horovod and PyTorch side by side, one function a row of the table in frameworks/HOROVOD.md; run by mpiexec.

Each function raises AssertionError where the two give different numbers. Rank 0 prints the rows that agree.
"""

import contextlib
import copy
import os
import sys

import horovod.torch as hvd
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

# Of mpiexec, horovodrun or torchrun.
RANK = next(int(os.environ[name]) for name in ("PMI_RANK", "HOROVOD_RANK", "RANK") if name in os.environ)
INPUTS = torch.arange(24.0).reshape(2, 4, 3)[RANK]
FIRST_RANK = hvd.ProcessSet([0])


def model():
    torch.manual_seed(0)
    return torch.nn.Linear(3, 2)


def sgd(module):
    return torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)


def batches():
    return [(INPUTS + number) / 10 for number in range(3)]


def trained(module, optimizer, forward=None, inputs=None, accumulate=1):
    """Returns the parameters after steps on these inputs, each the sum of `accumulate` backward passes."""
    inputs = inputs or batches()
    for batch in inputs:
        optimizer.zero_grad()
        for number in range(accumulate):
            last = number == accumulate - 1
            with contextlib.nullcontext() if last or not isinstance(forward, DistributedDataParallel) else forward.no_sync():
                (forward or module)(batch + number).square().mean().backward()
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


def with_horovod(module, **options):
    return hvd.DistributedOptimizer(sgd(module), named_parameters=module.named_parameters(), **options)


def with_ddp(module, hook=None, **options):
    wrapped = DistributedDataParallel(module, **options)
    if hook:
        wrapped.register_comm_hook(None, hook)
    return wrapped


def equal_training(horovod_options=None, hook=None, ddp_options=None, accumulate=1, tolerance=1e-6):
    ours, theirs = model(), model()
    by_horovod = trained(ours, with_horovod(ours, **(horovod_options or {})), accumulate=accumulate)
    by_ddp = trained(theirs, sgd(theirs), with_ddp(theirs, hook, **(ddp_options or {})), accumulate=accumulate)
    torch.testing.assert_close(by_horovod, by_ddp, rtol=tolerance, atol=tolerance)
    alone = model()
    assert not torch.allclose(trained(alone, sgd(alone)), by_ddp, rtol=1e-3), "a rank that trains alone has the same parameters"


def init():
    assert hvd.is_initialized() == dist.is_initialized() is True


def rank():
    assert hvd.rank() == dist.get_rank()


def local_rank():
    assert hvd.local_rank() == int(os.environ["LOCAL_RANK"])


def size():
    assert hvd.size() == dist.get_world_size() == 2


def distributed_optimizer():
    equal_training()


def backward_passes_per_step():
    equal_training({"backward_passes_per_step": 2}, accumulate=2)


def compression():
    equal_training({"compression": hvd.Compression.fp16}, hook=default_hooks.fp16_compress_hook, tolerance=1e-3)


def gradient_predivide_factor():
    equal_training({"gradient_predivide_factor": 2.0})


def broadcast_parameters():
    module = model()
    with torch.no_grad():
        module.weight += hvd.rank()
    wrapped = copy.deepcopy(module)
    hvd.broadcast_parameters(module.state_dict(), root_rank=0)
    assert torch.equal(module.weight, with_ddp(wrapped).module.weight)


def broadcast_optimizer_state():
    module = model()
    optimizer = sgd(module)
    trained(module, optimizer)
    state = [optimizer.state_dict()]
    dist.broadcast_object_list(state, src=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    for by_horovod, by_pytorch in zip(optimizer.state_dict()["state"].values(), state[0]["state"].values(), strict=True):
        assert torch.equal(by_horovod["momentum_buffer"], by_pytorch["momentum_buffer"])


def allreduce():
    total = INPUTS.clone()
    dist.all_reduce(total)
    torch.testing.assert_close(hvd.allreduce(INPUTS), total / dist.get_world_size())


def allreduce_min():
    least = INPUTS.clone()
    dist.all_reduce(least, dist.ReduceOp.MIN)
    assert torch.equal(hvd.allreduce(INPUTS, op=hvd.Min), least)


def allgather():
    parts = [torch.empty_like(INPUTS) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, INPUTS)
    assert torch.equal(hvd.allgather(INPUTS), torch.cat(parts))


def allgather_object():
    parts = [None, None]
    dist.all_gather_object(parts, {"rank": dist.get_rank()})
    assert hvd.allgather_object({"rank": hvd.rank()}) == parts


def broadcast():
    values = INPUTS.clone()
    dist.broadcast(values, src=0)
    assert torch.equal(hvd.broadcast(INPUTS, root_rank=0), values)


def broadcast_object():
    values = [{"rank": dist.get_rank()}]
    dist.broadcast_object_list(values, src=0)
    assert hvd.broadcast_object({"rank": hvd.rank()}, root_rank=0) == values[0]


def alltoall():
    received = torch.empty_like(INPUTS)
    dist.all_to_all_single(received, INPUTS)
    by_horovod, splits = hvd.alltoall(INPUTS, splits=torch.tensor([2, 2], dtype=torch.int32))
    assert torch.equal(by_horovod, received)
    assert splits.tolist() == [2, 2]


def reducescatter():
    part = torch.empty(2, 3)
    dist.reduce_scatter_single(part, INPUTS)
    assert torch.equal(hvd.reducescatter(INPUTS, op=hvd.Sum), part)


def process_sets():
    group = dist.new_group([0])
    if hvd.rank() == 0:
        total = INPUTS.clone()
        dist.all_reduce(total, group=group)
        assert torch.equal(hvd.allreduce(INPUTS, op=hvd.Sum, process_set=FIRST_RANK), total)


def join():
    """Rank 0 has one batch more. Horovod divides by all ranks then, as DDP does with divide_by_initial_world_size."""
    inputs = batches()[: 3 - hvd.rank()]
    ours, theirs = model(), model()
    by_horovod = with_horovod(ours)
    trained(ours, by_horovod, inputs=inputs)
    hvd.join()
    hvd.broadcast_parameters(ours.state_dict(), root_rank=0)
    wrapped = with_ddp(theirs)
    with Join([wrapped], divide_by_initial_world_size=True):
        trained(theirs, sgd(theirs), wrapped, inputs=inputs)
    torch.testing.assert_close(ours.weight, theirs.weight)


ROWS = {
    "hvd.init()": init,
    "hvd.rank()": rank,
    "hvd.local_rank()": local_rank,
    "hvd.size()": size,
    "DistributedOptimizer": distributed_optimizer,
    "backward_passes_per_step": backward_passes_per_step,
    "compression": compression,
    "gradient_predivide_factor": gradient_predivide_factor,
    "broadcast_parameters": broadcast_parameters,
    "broadcast_optimizer_state": broadcast_optimizer_state,
    "allreduce": allreduce,
    "allreduce, op=Min": allreduce_min,
    "allgather": allgather,
    "allgather_object": allgather_object,
    "broadcast": broadcast,
    "broadcast_object": broadcast_object,
    "alltoall": alltoall,
    "reducescatter": reducescatter,
    "process sets": process_sets,
    "join": join,
}


def main() -> None:
    hvd.init(process_sets=[FIRST_RANK])
    os.environ |= {"LOCAL_RANK": str(hvd.local_rank()), "MASTER_ADDR": "127.0.0.1"}
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=hvd.rank(), world_size=hvd.size())
    for name, row in ROWS.items():
        row()
        if hvd.rank() == 0:
            print(name, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
