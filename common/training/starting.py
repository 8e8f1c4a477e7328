"""Start of a run: resolve the settings, create the record, bind the process to its cores."""

import dataclasses
import json
import os
import shlex
import sys
import time
from pathlib import Path

from common import backends, config, workloads
from common.cost import parallelism
from common.data import datasets
from common.errors import UserError
from common.process import binding, node_memory
from common.record import records


def begin(backend, requested, ranks, import_seconds, entered):
    """Returns (resolved settings, function that reads the data, record, path of the record) of a run; the path is None except on rank 0.

    Rank 0 has written the record when this returns. `entered`: time.perf_counter() at the start of `main`. Raises UserError for
    invalid settings.
    """
    if requested.trace and "LD_PRELOAD" not in os.environ:
        raise UserError("--trace is for a matrix; trace a single run with LD_PRELOAD, see launch/trace/README.md")
    name = backends.name_of(backend, requested)
    settings = workloads.resolve(requested, parallelism.degree(name, requested, ranks.size))
    settings = dataclasses.replace(settings, machine=records.machine_name(settings))
    load = datasets.loader(settings)
    launch = launch_of(backend, ranks)
    record = records.new(name, settings, ranks, launch, records.environment() if ranks.rank == 0 else {})
    record.import_seconds = import_seconds
    if launch["launched_at"]:
        # Process start times have a resolution of 10 ms, and some launchers take less.
        record.launch_seconds = max(0.0, time.time() - launch["launched_at"] - import_seconds - (time.perf_counter() - entered))
    folder, path = records.folder(settings), None
    if ranks.rank == 0:
        records.make_folder(folder)
        if settings.checkpoint_dir:
            records.make_folder(settings.checkpoint_dir, "checkpoints", "--checkpoint-dir")
        path = folder / f"{records.run_name(name, settings, ranks.size)}.json"
        records.write(path, record)
    return settings, load, record, path


def prepare_process(ranks, settings, record):
    """Binds this process to its cores and configures its allocator."""
    cores = choose_cores(ranks, settings, record)
    if settings.bind:
        binding.bind(cores)
    if settings.allocator == "keep":
        record.environment["allocator_keeps"] = node_memory.keep_large_buffers()


def choose_cores(ranks, settings, record):
    """The cores of this rank. Records them, and whether the node is oversubscribed."""
    allowed, core_of = os.sched_getaffinity(0), binding.core_of_threads()
    cores_per_rank = config.cores_per_rank(settings)
    cores = binding.cores_for(allowed, ranks.local_rank, cores_per_rank, core_of)
    recorded_cores = sorted(cores if settings.bind else allowed)
    record.environment |= {"cores_of_rank_0": recorded_cores, "numa_nodes_of_rank_0": binding.numa_nodes(recorded_cores)}
    total = binding.num_cores(range(os.cpu_count()), core_of)
    record.oversubscribed = binding.oversubscribed(allowed, ranks.local_size, cores_per_rank, total, core_of)
    return cores


def launch_of(backend, ranks):
    """Launcher, command and start time of this run: from TANDEM_LAUNCH if launch/matrix.py set it, else from this process."""
    launch = {
        "launcher": ranks.source,
        "command": shlex.join(["python", "-m", f"frameworks.{backend}", *sys.argv[1:]]),
        "launched_at": None,
    }
    return launch | json.loads(os.environ.get("TANDEM_LAUNCH", "{}"))


def process_age_seconds():
    """Seconds since this process started, with a resolution of 10 ms (proc(5): starttime, in clock ticks since boot)."""
    started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started
