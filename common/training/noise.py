"""How fast the machine is just before and after training, and what disturbs a run: measured beside every run, off the clock."""

import os
import re
import resource
import time
from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np

from common.meter import Meter
from common.process import gpus, machine
from common.process.ranks import by_rank
from common.process.turns import Turns
from common.record.parts import MachineNoise
from common.trainer import Trainer

PRODUCT_SIZE = 384
# Larger copies are decided by where their pages happen to lie: on a quiet machine they varied by a factor of three.
COPY_BYTES = 2**21
NUM_WARMUPS = 20
KERNEL_SECONDS, SLICE_SECONDS = 0.15, 0.01
STAT, PRESSURE, FREQUENCY = Path("/proc/stat"), Path("/proc/pressure/cpu"), "/sys/devices/system/cpu/cpu{}/cpufreq/scaling_cur_freq"


def begin(trainer: Trainer, turns: Turns) -> Callable[[], MachineNoise]:
    """Measures the machine's speed now. Returns a function that measures it a second time and gives the noise in between.

    All ranks call both. What happens between the `turns` of the run is left out.
    """
    before, disturbed = speeds_by_rank(trainer), Meter(counters)
    turns.meters.append(disturbed)

    def end() -> MachineNoise:
        steal, pressure, switches, throttled = (by_rank(trainer, count) for count in disturbed.now())
        after = speeds_by_rank(trainer)
        products, copies, frequencies, gpu_clocks = np.stack([before.min(axis=1), after.min(axis=1)], axis=1).tolist()
        return MachineNoise(
            product_flops_per_second=products,
            copy_bytes_per_second=copies,
            frequency_hz=frequencies,
            steal_seconds=float(steal.sum()),
            pressure_seconds=float(pressure.max()),
            involuntary_switches_by_rank=switches.astype(int).tolist(),
            gpu_clock_hz=gpu_clocks,
            gpu_throttle_reasons=gpus.throttle_reasons(trainer, trainer.describe_device()),
            product_flops_per_second_by_rank=np.maximum(before[0], after[0]).tolist(),
            cpu_throttled_seconds=float(throttled.max()),
        )

    return end


def speeds_by_rank(trainer: Trainer) -> np.ndarray:
    """Measures how fast each rank is just now; all ranks measure at the same time, each on its own cores.

    The rows are floating point operations a second in a product of matrices, bytes a second in a copy, the lowest frequency of the cores
    in Hz, and the clock of the GPU in Hz; NaN where unknown.
    """
    trainer.sum(np.zeros(1))
    speeds_of_rank = (product_speed(), copy_speed(), frequency(os.sched_getaffinity(0)), gpus.clock_hz(trainer.describe_device()))
    return np.array([by_rank(trainer, speed) for speed in speeds_of_rank])


def product_speed(seconds: float = KERNEL_SECONDS) -> float:
    """Measures the floating point operations a second in products of matrices."""
    left, out = np.ones((PRODUCT_SIZE, PRODUCT_SIZE), np.float32), np.empty((PRODUCT_SIZE, PRODUCT_SIZE), np.float32)
    return 2 * PRODUCT_SIZE**3 * repeated(lambda: np.matmul(left, left, out), seconds)


def copy_speed(seconds: float = KERNEL_SECONDS) -> float:
    """Measures the bytes a second, read and written, in a copy."""
    source, target = np.ones(COPY_BYTES, np.uint8), np.ones(COPY_BYTES, np.uint8)
    return 2 * COPY_BYTES * repeated(lambda: np.copyto(target, source), seconds)


def repeated(action: Callable[[], object], seconds: float) -> float:
    """Measures how many times a second `action` runs: the median of slices of about SLICE_SECONDS, over about `seconds`."""
    # The first calls, which touch memory and start threads, are not measured.
    for _ in range(NUM_WARMUPS):
        action()
    begun = time.perf_counter()
    rates: list[float] = []
    while time.perf_counter() - begun < seconds:
        num_calls, slice_begun = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - slice_begun) < SLICE_SECONDS:
            action()
            num_calls += 1
        rates.append(num_calls / elapsed)
    return float(np.median(rates))


def frequency(cores: Collection[int]) -> float:
    """Reads the lowest frequency of the cores in Hz from Linux; NaN where Linux does not show it."""
    try:
        return 1000 * min(float(Path(FREQUENCY.format(core)).read_text()) for core in cores)
    except (OSError, ValueError):
        return float("nan")


def counters() -> np.ndarray:
    """Counts what has disturbed this rank so far.

    The values are seconds that the hypervisor took from its cores, seconds in which a process of the node waited for a core, involuntary
    context switches of its process, and seconds in which a CPU quota kept its control groups from running; NaN for what Linux does not
    show.
    """
    switches = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
    return np.array([steal_seconds(os.sched_getaffinity(0)), pressure_seconds(), switches, machine.throttled_seconds()])


def steal_seconds(cores: Collection[int], path: Path = STAT) -> float:
    """Reads the seconds since boot that the hypervisor has taken from these cores (proc(5): steal)."""
    try:
        ticks = [int(line.split()[8]) for line in path.read_text().splitlines() if line.split()[0] in {f"cpu{core}" for core in cores}]
        return sum(ticks) / os.sysconf("SC_CLK_TCK") if ticks else float("nan")
    except (OSError, ValueError, IndexError):
        return float("nan")


def pressure_seconds(path: Path = PRESSURE) -> float:
    """Reads the seconds since boot in which a process of the node waited for a core (Linux: Documentation/accounting/psi.rst)."""
    try:
        match = re.search(r"some .*total=(\d+)", path.read_text())
    except OSError:
        return float("nan")
    return int(match[1]) / 1e6 if match else float("nan")
