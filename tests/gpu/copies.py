"""Copies of a batch to the GPU as frameworks/shared/pytorch/steps.py makes them, and from pageable memory, as one line of JSON."""

import json
import time
from statistics import median

import torch

from frameworks.shared.pytorch import steps

NUM_BYTES, NUM_REPEATS = 256 * 2**20, 10


def timed(copy):
    """(seconds until copy() returns, until it is done), medians."""
    times = []
    for _ in range(NUM_REPEATS):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        copied = copy()
        returned = time.perf_counter() - begun
        torch.cuda.synchronize()
        times.append((returned, time.perf_counter() - begun))
        del copied
    return [median(column) for column in zip(*times, strict=True)]


def main():
    device, batch = torch.device("cuda"), torch.zeros(NUM_BYTES, dtype=torch.uint8)
    pinned = batch.pin_memory()
    ways = {
        "pageable": lambda: batch.to(device, non_blocking=True),
        "pinned": lambda: pinned.to(device, non_blocking=True),
        "ours, with pinning": lambda: steps.on_device(batch, device),
    }
    measured = {"MiB": NUM_BYTES / 2**20}
    for name, copy in ways.items():
        returned, done = timed(copy)
        measured |= {f"{name} returns (ms)": 1000 * returned, f"{name} done (ms)": 1000 * done}
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
