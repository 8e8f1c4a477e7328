"""The program that every backend is: its command line, its record and its exit status around the one loop."""

import dataclasses
import functools
import json
import os
import shlex
import sys
import time
import traceback
from pathlib import Path

import numpy as np

from common import account, allocator, binding, datasets, elastic, loop, records, stalls, variants, workloads
from common.config import Settings, parse
from common.errors import UserError
from common.ranks import from_environment

SECONDS_TO_TELL = 2.0


def main(trainer_class, file):
    """Trains with a backend's Trainer as the arguments say and writes the record; `file` is the backend's own file.

    Exit status 0: trained, whether or not the target was reached; 1: failed; 2: a mistake in the arguments, the data or
    the launch; 130: interrupted.
    """
    import_seconds, entered = process_age_seconds(), time.perf_counter()
    backend = Path(file).stem
    ranks = record = path = watch = None
    try:
        ranks = from_environment()
        given = parse(
            Settings, f"python -m frameworks.{backend}", f"Trains a workload with the backend {backend} and writes the record of the run."
        )
        settings, load, record, path = begin(backend, given, ranks, import_seconds, entered)
        watch = stalls.Watch(settings.stall_limit, functools.partial(end_standstill, ranks.rank, record, path))
        prepare_process(ranks, settings, record)
        then = afterwards(settings)
        trainer = trainer_class(settings)
        watch.goes_on()
        record["library_configuration"] = getattr(trainer, "configuration", None)
        # Before training: the first rank to leave Horovod ends MPI on all of them.
        record["environment"]["mpi"] = records.mpi_library()
        loop.prepare(trainer, settings, record)
        record["init_seconds"] = time.perf_counter() - entered
        # With it a rank that is killed can be named.
        write(path, record)
        batches = loop.train(trainer, settings, load, record, lambda data: workloads.digest(given, data.digest), watch)
        if then and batches:
            # Should something happen to the run from here on, what was measured is kept.
            write(path, record)
            then(trainer, batches, record)
        finish(trainer, record, path)
        status = 0
    except (Exception, KeyboardInterrupt) as problem:
        elastic.begin_anew_after(problem)
        status, error = describe(problem, watch.place if watch else None)
        if record:
            record |= {"status": "failed", "error": error}
    if path and status:
        records.write(path, record)
    if status:
        tell(status, error, ranks)
    leave(status)


def begin(backend, given, ranks, import_seconds, entered):
    """(whole settings, the reader of the data, the record, its path) of a run whose arguments stand; rank 0 has a path, and has written it.

    `entered` is when `main` was, by time.perf_counter.
    """
    if given.trace and "LD_PRELOAD" not in os.environ:
        raise UserError("--trace is for a matrix; a single run is traced by LD_PRELOAD, see launch/trace/README.md")
    name = variants.name_of(backend, given)
    settings = workloads.resolve(given, ranks.size)
    settings = dataclasses.replace(settings, machine=records.machine_name(settings))
    load = datasets.loader(settings)
    launch = launch_of(backend, ranks)
    record = records.new(name, settings, ranks, launch, records.environment() if ranks.rank == 0 else {})
    record["import_seconds"] = import_seconds
    if launch["launched_at"]:
        # The start of a process is known to 10 ms only, and some launchers take less.
        record["launch_seconds"] = max(0.0, time.time() - launch["launched_at"] - import_seconds - (time.perf_counter() - entered))
    folder, path = records.folder(settings), None
    if ranks.rank == 0:
        make_folders(folder, settings.snapshot_dir)
        path = folder / f"{records.run_name(name, settings, ranks.size)}.json"
        records.write(path, record)
    return settings, load, record, path


def prepare_process(ranks, settings, record):
    """Binds this process to its cores and tells its allocator what to keep."""
    cores = choose_cores(ranks, settings, record)
    if settings.bind:
        binding.bind(cores)
    if settings.allocator == "keep":
        record["environment"]["allocator_keeps"] = allocator.keep_large_buffers()


def afterwards(settings):
    """What is done with an epoch's batches when all has been measured: with a timeline an epoch is profiled, else the account is measured.

    None for a run that is traced, or wants no account. Raises UserError where the ranks could not know the run's name, or there may be
    nothing left to train.
    """
    if settings.timeline and settings.resume:
        raise UserError("--timeline profiles a run that trains from its start; leave out --resume")
    if settings.timeline:
        from launch.trace import profiling

        folder = records.make_trace_folder(settings, "--timeline")
        return lambda trainer, batches, _: profiling.profile_epoch(folder, trainer, batches)
    return functools.partial(account.keep, settings) if settings.account and not settings.trace else None


def end_standstill(rank, record, path, place, seconds):
    """Ends this rank, which stands still; its watch calls this."""
    if path:
        records.write(path, record | {"status": "failed", "error": str(stalls.Standstill(rank, place, seconds))})
    stalls.leave(stalls.Standstill(rank, place, seconds))


def make_folders(of_records, of_snapshots):
    """Makes the folders that the run will write to; that of snapshots may be None."""
    records.make_folder(of_records)
    if of_snapshots:
        records.make_folder(of_snapshots, "snapshots", "--snapshot-dir")


def write(path, record):
    """Writes the record, on the rank that has a path."""
    if path:
        records.write(path, record)


def finish(trainer, record, path):
    """Writes the record of a run that has come to its end, and leaves the process group."""
    record["status"] = "ok"
    if path:
        records.write(path, record)
        print(f"record: {path}", flush=True)
    # The first rank to leave Horovod may take the others down with it: none leaves before the record is written.
    trainer.sum(np.zeros(1))
    trainer.close()


def tell(status, error, ranks):
    """Prints the one line that says what ended the run on this rank; of an interruption the first rank alone tells. `ranks` may be None."""
    first = ranks is None or ranks.rank == 0
    if status == 2 and not first:
        # A mistake that all ranks make is told once: the launcher ends the others when rank 0 has told it and left. It would end
        # rank 0 as soon as another has left.
        time.sleep(SECONDS_TO_TELL)
    if first or status in (1, 2):
        where = f"rank {ranks.rank}: " if ranks and (status == 1 or not first) else ""
        print(f"error: {where}{error}", file=sys.stderr, flush=True)


def leave(status):
    """Ends this process at once, without taking the interpreter down around the threads of libraries.

    After a success only MPI is left to be ended. Taking the interpreter down would abort some runs that are over: Gloo's
    threads let go of their last tensors late, and need the interpreter for it. After a failure it would wait in
    MPI_Finalize for ranks that wait for this one; this way the launcher ends them all.
    """
    if not status and "mpi4py.MPI" in sys.modules:
        from mpi4py import MPI

        if MPI.Is_initialized() and not MPI.Is_finalized():
            MPI.Finalize()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def describe(problem, place):
    """(exit status, one line) for what ended a run, with its place, if known. A traceback is printed for what is not the user's doing."""
    if isinstance(problem, UserError):
        return 2, str(problem)
    if isinstance(problem, KeyboardInterrupt):
        return 130, "interrupted"
    traceback.print_exc()
    return 1, f"{place}: {type(problem).__name__}: {problem}" if place else f"{type(problem).__name__}: {problem}"


def launch_of(backend, ranks):
    """What started this run: as launch/matrix.py told in TANDEM_LAUNCH, else as it looks from here."""
    seen = {
        "launcher": ranks.source,
        "command": shlex.join(["python", "-m", f"frameworks.{backend}", *sys.argv[1:]]),
        "launched_at": None,
    }
    return seen | json.loads(os.environ.get("TANDEM_LAUNCH", "{}"))


def choose_cores(ranks, settings, record):
    """The cores of this rank; notes in the record which those are and whether ranks must share them."""
    allowed, total = os.sched_getaffinity(0), os.cpu_count()
    cores = binding.cores_for(allowed, ranks.local_rank, settings.threads)
    record["environment"]["cores_of_rank_0"] = sorted(cores if settings.bind else allowed)
    record["oversubscribed"] = binding.oversubscribed(allowed, ranks.local_size, settings.threads, total)
    return cores


def process_age_seconds():
    """Seconds since this process was started, to 10 ms (proc(5): starttime, in clock ticks since boot)."""
    started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started
