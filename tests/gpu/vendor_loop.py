"""A training loop as PyTorch's tutorials have it, around our model, on one batch that is on the device already.

python -m tests.gpu.vendor_loop cuda transformer-base 64 20 bf16 fp32 prints {precision: samples per second} as one line of JSON.
"""

import contextlib
import json
import sys
import time

import numpy as np
import torch

from common import workloads
from common.config import Settings
from common.ranks.launcher_variables import Ranks
from frameworks.shared.pytorch import modules


def main(device, workload, batch_size, num_steps, *precisions):
    rates = (rate(torch.device(device), workload, int(batch_size), int(num_steps), precision) for precision in precisions)
    print(json.dumps(dict(zip(precisions, rates, strict=True))))


def rate(device, workload, batch_size, num_steps, precision):
    """Samples per second over the second half of twice as many steps."""
    if device.type == "cpu":
        torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    work = workloads.WORKLOADS[workload]
    module = modules.build(workloads.resolve(Settings(workload=workload), 1), device, Ranks())
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    kind = {"sgd": lambda of: torch.optim.SGD(of, lr=1e-3, momentum=0.9), "adam": lambda of: torch.optim.Adam(of, lr=1e-4)}[work.optimizer]
    optimizer = kind(module.parameters())
    inputs, targets = (torch.from_numpy(array).to(device) for array in batch(work.model, batch_size))
    autocast = torch.autocast(device.type, torch.bfloat16) if precision == "bf16" else contextlib.nullcontext()
    ends = []
    for _ in range(2):
        for _ in range(num_steps):
            optimizer.zero_grad()
            with autocast:
                logits = module(inputs)
            loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, -2), targets.flatten())
            loss.backward()
            optimizer.step()
        float(loss)
        ends.append(time.perf_counter())
    return batch_size * num_steps / (ends[1] - ends[0])


def batch(model, batch_size):
    """(inputs, targets) of one batch, drawn at random, of the types and shapes that training has."""
    zeros, draw = model.first_samples(batch_size, "fp32"), np.random.default_rng(0).integers
    return [draw(0, 10, array.shape).astype(array.dtype) for array in zeros[:2]]


if __name__ == "__main__":
    main(*sys.argv[1:])
