"""The main program of every backend: command line, record and exit status around the training loop."""

import dataclasses
import functools
import json
import os
import re
import shlex
import signal
import sys
import time
from pathlib import Path

import numpy as np

from common import backends, config, workloads
from common.command_line import parse
from common.cost import memory_estimate, parallelism
from common.data import datasets
from common.errors import RunError, UserError
from common.process import agent_errors, arrival, binding, ending, gpus, inherited, node_memory, noise, signals, watchdog
from common.process.ranks import from_environment
from common.record import records
from common.training import loop, placement, step_breakdown, throughput

# What TANDEM_LAUNCH may have.
LAUNCH_TYPES = {"launcher": str, "command": str, "launched_at": float, "ignored_variables": dict, "settings": dict}
# The name of a library that traces MPI, Tandem's or IBM's, in LD_PRELOAD.
TRACING_LIBRARY = re.compile(r"(tandem|mpi)trace[^/: ]*\.so")


def main(trainer_class, file):
    """Trains with a backend's Trainer and writes the record; `file` is the backend's file.

    Exit status 0: training completed, whether or not the target was reached; 1: failed or diverged; 2: invalid arguments, data or launch;
    130: interrupted.
    """
    import_seconds, entered = process_age_seconds(), time.perf_counter()
    backend = Path(file).stem
    ranks = record = path = dog = None
    try:
        ranks = from_environment()
        arrival.check(sys.argv)
        description = f"Train a workload with the backend {backend} and write the record of the run."
        given = parse(config.Settings, f"python -m frameworks.{backend}", description, left_out=config.not_for(config.SINGLE_RUN))
        requested = dataclasses.replace(given, **settings_around())
        settings, load, record, path = begin(backend, requested, ranks, import_seconds, entered)
        signals.on_end(functools.partial(end_by_signal, record, path))
        dog = watchdog.begin(settings.watchdog_timeout, ranks.rank, functools.partial(end_hang, record, path), settings.join_timeout)
        cores = prepare_process(ranks, settings, record)
        run_afterwards = afterwards(settings)
        on_gpu = settings.device != "cpu" and trainer_class.device_problem("cuda") is None
        memory_estimate.expect_room(record.backend, settings, ranks.size, ranks.local_size, "cuda" if on_gpu else "cpu")
        trainer = trainer_class(settings)
        dog.heartbeat()
        if path:
            record.environment |= gpus.describe(trainer.describe_device())
        record.transport = getattr(trainer, "transport", None)
        record.library_configuration = getattr(trainer, "configuration", None)
        # Read before training: Horovod's shutdown on any rank ends MPI on all ranks.
        record.environment["mpi"] = records.mpi_library()
        turns = loop.prepare(trainer, settings, record, dog.heartbeat)
        record.environment["cores_by_rank"], record.oversubscribed = placement.of_ranks(trainer, settings, cores)
        record.init_seconds = time.perf_counter() - entered
        # The record now has the process IDs by which the matrix identifies a killed rank.
        write(path, record)
        # The run is ready; its first turn begins when those beside it are ready too.
        turns.end()
        noise_of_machine = noise.begin(trainer, turns)
        batches = loop.train(trainer, settings, load, record, lambda data: workloads.digest(requested, data.digest), dog, turns)
        record.machine_noise = noise_of_machine()
        throughput.add_to_record(trainer, settings, record)
        if run_afterwards and batches:
            # Saves the measurements before anything else can fail.
            write(path, record)
            run_afterwards(trainer, batches, record, turns.end)
        finish(trainer, record, path)
        status = 0
    except (Exception, KeyboardInterrupt) as problem:
        all_are_here = isinstance(problem, RunError)
        status, error = ending.describe_failure(problem, dog.place if dog else None)
        if record:
            record.status, record.error = problem.status if all_are_here else "failed", error
        write(path, record)
        if all_are_here:
            # Barrier: the first rank to leave may end the others, so rank 0 must have written the record.
            trainer.sum(np.zeros(1))
        ending.leave_with_others(problem, status, error, ranks, dog)
        ending.report_failure(status, error, ranks)
    ending.leave(status)


def begin(backend, requested, ranks, import_seconds, entered):
    """Returns (resolved settings, function that reads the data, record, path of the record) of a run; the path is None except on rank 0.

    Rank 0 has written the record when this returns. `entered`: time.perf_counter() at the start of `main`. Raises UserError for
    invalid settings.
    """
    name = backends.name_of(backend, requested)
    degree = parallelism.degree(name, requested, ranks.size)
    settings = workloads.resolve(requested, degree)
    plan = workloads.batch_plan(settings, degree)
    settings = dataclasses.replace(settings, machine=records.machine_name(settings.machine))
    load = datasets.loader(settings, plan)
    launch = launch_of(backend, ranks)
    record = records.new(name, settings, ranks, plan, launch, records.environment() if ranks.rank == 0 else {})
    record.import_seconds = import_seconds
    if launch["launched_at"]:
        # Process start times have a resolution of 10 ms, and some launchers take less.
        record.launch_seconds = max(0.0, time.time() - launch["launched_at"] - import_seconds - (time.perf_counter() - entered))
    folder, path = records.folder(settings), None
    if ranks.rank == 0:
        records.make_folder(folder)
        if settings.checkpoint_dir:
            records.make_folder(settings.checkpoint_dir, "checkpoints", "--checkpoint-dir")
        record.environment["ignored_variables"] = launch["ignored_variables"] | inherited.removed
        if inherited.removed:
            print(inherited.describe(inherited.removed), file=sys.stderr, flush=True)
        path = folder / f"{records.run_name(name, settings, ranks.size)}.json"
        try:
            records.write(path, record)
        except OSError as error:
            raise UserError(f"cannot write the record {path} ({error.strerror}); give another name with --run-id") from None
    return settings, load, record, path


def prepare_process(ranks, settings, record):
    """Binds this process to its cores and configures its allocator. Returns the cores."""
    inherited.expect_unbound()
    cores = choose_cores(ranks, settings, record)
    if settings.bind:
        binding.bind(cores)
    if settings.allocator == "keep":
        record.environment["allocator_keeps"] = node_memory.keep_large_buffers()
    return cores


def choose_cores(ranks, settings, record):
    """Returns the cores of this rank, among those that it was started on; all of these where it is not bound. Records their NUMA nodes."""
    cores = inherited.CORES
    if settings.bind:
        cores = binding.cores_for(cores, ranks.local_rank, config.cores_per_rank(settings), binding.core_of_threads())
    record.environment["numa_nodes_of_rank_0"] = binding.numa_nodes(cores)
    return cores


def launch_of(backend, ranks):
    """Launcher, command and start time of this run: from TANDEM_LAUNCH if launch/matrix.py set it, else from this process."""
    launch = {
        "launcher": ranks.source,
        "command": shlex.join(["python", "-m", f"frameworks.{backend}", *sys.argv[1:]]),
        "launched_at": None,
        "ignored_variables": {},
    }
    return launch | launch_told()


def settings_around() -> dict:
    """Returns the settings of this run that no command line of it has: those of its matrix, or `trace` where a library traces MPI."""
    traced = TRACING_LIBRARY.search(os.environ.get("LD_PRELOAD", ""))
    return ({"trace": "mpi"} if traced else {}) | launch_told().get("settings", {})


def launch_told() -> dict:
    """What launch/matrix.py tells its runs in TANDEM_LAUNCH; empty without it. Raises UserError where another has set it."""
    text = os.environ.get("TANDEM_LAUNCH") or "{}"
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        told = None
    is_launch = isinstance(told, dict) and all(isinstance(value, LAUNCH_TYPES.get(name, ())) for name, value in told.items())
    if not is_launch or not told.get("settings", {}).keys() <= config.not_for(config.SINGLE_RUN).keys():
        raise UserError(f"TANDEM_LAUNCH is {text[:60]!r}; launch/matrix.sh sets it for its runs; unset it")
    return told


def process_age_seconds():
    """Seconds since this process started, with a resolution of 10 ms (proc(5): starttime, in clock ticks since boot)."""
    started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


def afterwards(settings):
    """The function to call with the last epoch's batches after training: a profiled epoch with --timeline, else the step breakdown.

    None for a traced run and with --no-step-breakdown. Raises UserError for --timeline with --resume, which may leave nothing to
    train, or without --run-id, which the ranks need to agree on a folder.
    """
    if settings.timeline and settings.resume:
        raise UserError("--timeline cannot be combined with --resume")
    if settings.timeline:
        from common.tracing import profiling

        folder = records.make_trace_folder(settings, "--timeline")
        return lambda trainer, batches, *_: profiling.profile_epoch(folder, trainer, batches)
    return functools.partial(step_breakdown.add_to_record, settings) if settings.step_breakdown and not settings.trace else None


def end_hang(record, path, hang):
    """Records the hang of this rank and ends the process. Called by the watchdog."""
    record.status, record.error = "failed", str(hang)
    write(path, record)
    watchdog.leave(hang)


def end_by_signal(record, path, number):
    """Records that a signal ends this rank, and ends the process. Called by the thread that hears of signals."""
    if record.status == "started":
        record.status, record.error = "failed", agent_errors.read() or f"ended by {number.name} ({signal.strsignal(number)})"
        write(path, record)
    ending.leave_by_signal(number, is_rank_0=path is not None)


def write(path, record):
    """Writes the record; only rank 0 has a path."""
    if path:
        records.write(path, record)


def finish(trainer, record, path):
    """Writes the record of a completed run and leaves the process group."""
    record.status = "ok"
    write(path, record)
    if path:
        print(f"record: {path}", flush=True)
    # Barrier: the first rank to shut Horovod down may end the others, so rank 0 must have written the record.
    trainer.sum(np.zeros(1))
    trainer.close()
