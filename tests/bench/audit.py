"""What launch/audit costs while it watches: python -m tests.bench.audit

Trains a CNN of 1.1 million parameters on images of 32 x 32 pixels under DDP with 2 ranks, in turn without and with the probe, and prints
the median time of a step of each, and the median ratio of neighbours.
"""

import statistics
import sys
import tempfile
from pathlib import Path

from launch.auditing.watching import tandem_probe
from tests.launch.auditing.running import run

NUM_PAIRS, NUM_STEPS = 6, 12
SCRIPT = f"""
import time
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
torch.manual_seed(0)
layers = []
for inputs, outputs in ((3, 64), (64, 128), (128, 256), (256, 256)):
    layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]
model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers, nn.Flatten(), nn.Linear(1024, 100)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
seconds = []
for step in range({NUM_STEPS}):
    images, labels = torch.randn(32, 3, 32, 32), torch.randint(100, (32,))
    start = time.perf_counter()
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
    seconds.append(time.perf_counter() - start)
with open(f"seconds-{{dist.get_rank()}}", "w") as file:
    print(*seconds[2:], file=file)
dist.destroy_process_group()
"""


def step_seconds(is_watched: bool) -> float:
    """The median time of a step on rank 0."""
    with tempfile.TemporaryDirectory() as folder:
        assert run(SCRIPT, 2, (lambda: tandem_probe.install(folder, NUM_STEPS)) if is_watched else None, folder) == [0, 0]
        return statistics.median(map(float, Path(folder, "seconds-0").read_text().split()))


def main() -> None:
    """Prints the times and the ratio."""
    pairs = []
    for number in range(NUM_PAIRS):
        order = (False, True) if number % 2 == 0 else (True, False)
        times = {is_watched: step_seconds(is_watched) for is_watched in order}
        pairs.append((times[False], times[True]))
        print(f"{number + 1}/{NUM_PAIRS}: {1000 * times[False]:.0f} ms, watched {1000 * times[True]:.0f} ms", file=sys.stderr)
    plain, watched = (statistics.median(times) for times in zip(*pairs, strict=True))
    ratio = statistics.median(watched / plain for plain, watched in pairs)
    print(f"a step: {1000 * plain:.0f} ms, watched {1000 * watched:.0f} ms; ratio {ratio:.3f}")


if __name__ == "__main__":
    main()
