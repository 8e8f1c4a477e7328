"""How fast a large Horovod timeline is read and merged, and in how much memory.

python -m tests.bench.timeline 400
"""

import resource
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from common.tracing import chrome, horovod_timeline
from launch.trace import timeline
from tests.bench import shared

TENSORS_PER_BUFFER = 8
NUM_TENSORS = 160
NUM_RANKS = 8


def events(number, start):
    """The text of the events of one buffer, the number-th of a training, and when it ends."""
    pids = [number * TENSORS_PER_BUFFER % NUM_TENSORS + tensor + 1 for tensor in range(TENSORS_PER_BUFFER)]
    parts = [f'{{"ph": "i", "name": "CYCLE_START", "ts": {start}, "s": "g"}}']
    ts = start
    for pid in pids:
        parts.append(f'{{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": {ts}, "pid": {pid}}}')
        parts += [f'{{"ph": "X", "name": "{rank}", "ts": {ts + 10 * rank}, "pid": {pid}, "dur": 0}}' for rank in range(NUM_RANKS)]
        ts += 100
        parts.append(f'{{"ph": "E", "ts": {ts}, "pid": {pid}}}')
    parts += [f'{{"ph": "B", "name": "ALLREDUCE", "ts": {ts}, "pid": {pid}}}' for pid in pids]
    for activity in ("MEMCPY_IN_FUSION_BUFFER", "MPI_ALLREDUCE", "MEMCPY_OUT_FUSION_BUFFER"):
        parts += [f'{{"ph": "B", "name": "{activity}", "ts": {ts + 1}, "pid": {pid}}}' for pid in pids]
        ts += 50
        parts += [f'{{"ph": "E", "ts": {ts}, "pid": {pid}}}' for pid in pids]
    parts += [f'{{"ph": "E", "ts": {ts + 1}, "pid": {pid}, "args": {{"dtype": "float32", "shape": "[512, 512]"}}}}' for pid in pids]
    return ",".join(parts), ts + 2


def generate(path, size_bytes):
    """Writes a timeline of about this size, and returns how many buffers it has."""
    with open(path, "w") as file:
        file.write('[\n{"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros":1795283289401788}},\n')
        for pid in range(1, NUM_TENSORS + 1):
            file.write(f'{{"name": "process_name", "ph": "M", "pid": {pid}, "args": {{"name": "gradient/layer{pid}/weight"}}}},\n')
        number = start = 0
        while file.tell() < size_bytes:
            text, start = events(number, start)
            file.write(f",{text}" if number else text)
            number += 1
        file.write("]")
    return number


@dataclass(frozen=True)
class Arguments:
    """How large the timeline is."""

    megabytes: Annotated[float, tyro.conf.Positional]


def run(arguments):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / horovod_timeline.FILE
        num_buffers = generate(path, arguments.megabytes * 1e6)
        size = path.stat().st_size / 1e6
        print(f"{size:.0f} MB, {num_buffers} buffers of {TENSORS_PER_BUFFER} tensors, {NUM_RANKS} ranks")
        begun = time.perf_counter()
        summary = horovod_timeline.summarize(horovod_timeline.read(chrome.events(path)))
        seconds = time.perf_counter() - begun
        assert summary.tensors_per_buffer == {str(TENSORS_PER_BUFFER): num_buffers}
        print(f"summed up in {seconds:.1f} s ({size / seconds:.0f} MB/s), at most {_peak_mib():.0f} MiB")
        begun = time.perf_counter()
        gathered = timeline.gather(folder)
        seconds = time.perf_counter() - begun
        merged = (Path(folder) / gathered.trace).stat().st_size / 1e6
        print(f"merged and checked in {seconds:.1f} s, at most {_peak_mib():.0f} MiB")
        print(f"{gathered.num_events} events in {merged:.0f} MB, {len(gathered.problems)} problems")


def _peak_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    shared.main(run, Arguments, __file__, __doc__)
