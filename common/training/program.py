"""The main program of every backend: command line, record and exit status around the training loop."""

import functools
import time
from pathlib import Path

import numpy as np

from common import workloads
from common.command_line import parse
from common.config import Settings
from common.cost import memory_estimate
from common.errors import UserError
from common.process import elastic, ending, gpus, noise, watchdog
from common.process.ranks import from_environment
from common.record import records
from common.training import event_log, loop, starting, step_breakdown, throughput


def main(trainer_class, file):
    """Trains with a backend's Trainer and writes the record; `file` is the backend's file.

    Exit status 0: training completed, whether or not the target was reached; 1: failed; 2: invalid arguments, data or launch;
    130: interrupted.
    """
    import_seconds, entered = starting.process_age_seconds(), time.perf_counter()
    backend = Path(file).stem
    ranks = record = path = dog = None
    try:
        ranks = from_environment()
        requested = parse(
            Settings, f"python -m frameworks.{backend}", f"Train a workload with the backend {backend} and write the record of the run."
        )
        settings, load, record, path = starting.begin(backend, requested, ranks, import_seconds, entered)
        log = event_log.begin(event_log.path_for(path, settings))
        event_log.log_settings(log, record, import_seconds + time.perf_counter() - entered)
        dog = watchdog.Watchdog(settings.watchdog_timeout, ranks.rank, functools.partial(end_hang, record, path))
        starting.prepare_process(ranks, settings, record)
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
        record.init_seconds = time.perf_counter() - entered
        # The record now has the process IDs by which the matrix identifies a killed rank.
        write(path, record)
        # The run is ready; its first turn begins when those beside it are ready too.
        turns.end()
        noise_of_machine = noise.begin(trainer, turns)
        batches = loop.train(trainer, settings, load, record, lambda data: workloads.digest(requested, data.digest), dog, turns, log)
        record.machine_noise = noise_of_machine()
        throughput.add_to_record(trainer, settings, record)
        if run_afterwards and batches:
            # Saves the measurements before anything else can fail.
            write(path, record)
            run_afterwards(trainer, batches, record)
        finish(trainer, record, path)
        status = 0
    except (Exception, KeyboardInterrupt) as problem:
        all_are_here = isinstance(problem, loop.OutOfSync)
        elastic.restart_after(problem)
        status, error = ending.describe_failure(problem, dog.place if dog else None)
        if record:
            record.status, record.error = "failed", error
    if status:
        write(path, record)
        if all_are_here:
            # Barrier: the first rank to leave may end the others, so rank 0 must have written the record.
            trainer.sum(np.zeros(1))
        ending.report_failure(status, error, ranks)
    ending.leave(status)


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
        return lambda trainer, batches, _: profiling.profile_epoch(folder, trainer, batches)
    return functools.partial(step_breakdown.add_to_record, settings) if settings.step_breakdown and not settings.trace else None


def end_hang(record, path, hang):
    """Records the hang of this rank and ends the process. Called by the watchdog."""
    record.status, record.error = "failed", str(hang)
    write(path, record)
    watchdog.leave(hang)


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
