"""Two ranks that train with Horovod under horovodrun, or with DDP under torchrun: `-m tests.support.leaving_horovodrun LIBRARY FOLDER`.

Rank 0 prints the parameters, and how many all-reduces a step has by HOROVOD_TIMELINE or by PyTorch's profiler. Under torchrun rank 1 is
killed once after the first step of three. DDP makes its buckets anew after the first step of a process.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

import horovod.torch as hvd
import torch
import torch.distributed as dist

from tests.support.leaving_horovod import RANK, batches, model, sgd, trained, with_ddp, with_horovod


def horovod(_):
    hvd.init()
    module = model()
    parameters = trained(module, with_horovod(module))
    # A thread writes the timeline, and its end is lost where shutdown() comes at once.
    time.sleep(3)
    hvd.shutdown()
    timeline = Path(os.environ["HOROVOD_TIMELINE"]).read_text() if RANK == 0 else "[]"
    assert "MEMCPY_IN_FUSION_BUFFER" not in timeline
    return parameters, sum(event.get("name") == "ALLREDUCE" for event in json.loads(timeline)) / len(batches())


def ddp(folder):
    dist.init_process_group("gloo")
    module = model()
    optimizer, wrapped, checkpoint = sgd(module), with_ddp(module, bucket_cap_mb=1e-6), folder / "checkpoint"
    num_steps = 0
    if checkpoint.exists():
        num_steps, parameters, state = torch.load(checkpoint)
        module.load_state_dict(parameters)
        optimizer.load_state_dict(state)
    for batch in batches()[num_steps:]:
        with torch.profiler.profile() as profiler:
            parameters = trained(module, optimizer, wrapped, [batch])
        num_steps += 1
        if RANK == 0:
            torch.save((num_steps, module.state_dict(), optimizer.state_dict()), folder / "part")
            os.replace(folder / "part", checkpoint)
        dist.barrier()
        if num_steps == 1 and RANK == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    return parameters, sum(event.name == "gloo:all_reduce" for event in profiler.events())


def main() -> None:
    parameters, num_reduced = {"horovod": horovod, "ddp": ddp}[sys.argv[1]](Path(sys.argv[2]))
    if RANK == 0:
        print(*parameters.tolist(), num_reduced)


if __name__ == "__main__":
    main()
