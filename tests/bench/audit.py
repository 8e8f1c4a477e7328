"""What launch/audit costs while it watches: python -m tests.bench.audit

Trains a CNN of 1.1 million parameters on images of 32 x 32 pixels under DDP with 2 ranks. The probe is silent in every other pair of steps.
Prints the median time of a step of both kinds in each run, and the median of the runs' ratios.
"""

import statistics
import sys
import tempfile
from pathlib import Path

from launch.auditing.watching import tandem_probe
from tests.launch.auditing.running import run

NUM_RUNS, NUM_STEPS, NUM_FIRST = 6, 68, 4
SCRIPT = f"""
import time
import torch
import torch.distributed as dist
from torch import nn
from launch.auditing.watching import tandem_probe

dist.init_process_group("gloo")
torch.manual_seed(0)
layers = []
for inputs, outputs in ((3, 64), (64, 128), (128, 256), (256, 256)):
    layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]
model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers, nn.Flatten(), nn.Linear(1024, 100)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for step in range({NUM_STEPS}):
    # As after a failure.
    tandem_probe.probe.failed = step % 4 >= 2
    images, labels = torch.randn(32, 3, 32, 32), torch.randint(100, (32,))
    start = time.perf_counter()
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
    seconds = time.perf_counter() - start
    if step >= {NUM_FIRST}:
        with open(f"{{dist.get_rank()}}-{{tandem_probe.probe.failed}}", "a") as file:
            print(seconds, file=file)
dist.destroy_process_group()
"""


def step_seconds() -> list[float]:
    """The median time of a step on rank 0, watched and not."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as observed:

        def install() -> None:
            vars(tandem_probe)["probe"] = tandem_probe.install(observed, NUM_STEPS)

        assert run(SCRIPT, 2, install, folder) == [0, 0]
        return [statistics.median(map(float, Path(folder, f"0-{is_silent}").read_text().split())) for is_silent in (False, True)]


def main() -> None:
    """Prints the times and the ratio."""
    ratios = []
    for number in range(NUM_RUNS):
        watched, plain = step_seconds()
        ratios.append(watched / plain)
        print(f"{number + 1}/{NUM_RUNS}: {1000 * plain:.0f} ms, watched {1000 * watched:.0f} ms", file=sys.stderr)
    print(f"ratio {statistics.median(ratios):.3f}, from {min(ratios):.3f} to {max(ratios):.3f}")


if __name__ == "__main__":
    main()
