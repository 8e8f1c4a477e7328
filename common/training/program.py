"""The main program of every backend: command line, record and exit status around the training loop."""

import contextlib
import dataclasses
import functools
import gc
import json
import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Callable, Set
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, final

import numpy as np

from common import apart, backends, config, workloads
from common.command_line import parse
from common.config import Settings
from common.cost import parallelism, state_memory
from common.data import datasets
from common.data.samples import Dataset
from common.declarations import PYTHON, SHELL_PYTHON
from common.errors import RunError, UserError
from common.ranks import binding, ending, machine, messages, watchdog
from common.ranks.launcher_variables import Ranks, expect_planned, expect_variables, from_environment, values_by_rank
from common.ranks.watchdog import Hang, Late, Watchdog
from common.record import definition, environment, files
from common.record.definition import Record
from common.trainer import Batches, Trainer
from common.training import checks, loop, speed, step_breakdown
from common.training.clock import Turns

# The keys that TANDEM_LAUNCH may have.
LAUNCH_TYPES = {"launcher": str, "command": str, "launched_at": float, "ignored_variables": dict, "settings": dict}
# The name of a library that traces MPI, Tandem's or IBM's, in LD_PRELOAD.
TRACING_LIBRARY = re.compile(r"(tandem|mpi)trace[^/: ]*\.so")
# Measures a run after its training, from the batches of its last epoch; the last argument ends a turn.
Afterwards = Callable[[Trainer, Batches, Record, Callable[[], object]], object]


class Launch(NamedTuple):
    """How a run was launched. `launched_at` is in seconds since 1970, and None outside a matrix.

    `settings` are those of the run that its command line does not have.
    """

    launcher: str
    command: str
    launched_at: float | None
    ignored_variables: dict[str, str]
    settings: dict[str, Any]


@final
@dataclasses.dataclass
class SoFar:
    """What exists of a run so far, for its end by a failure."""

    ranks: Ranks | None = None
    record: Record | None = None
    path: Path | None = None
    watchdog: Watchdog | None = None
    trainer: Trainer | None = None


def main(trainer_class: type[Trainer], file: str) -> NoReturn:
    """Trains with a backend's Trainer and writes the record; `file` is the backend's file.

    Exit status 0: training completed, whether or not the target was reached; 1: failed or diverged; 2: invalid arguments, data or launch;
    130: interrupted.
    """
    import_seconds, entered = process_age_seconds(), time.perf_counter()
    apart.begin()
    so_far = SoFar()
    try:
        run(trainer_class, Path(file).stem, so_far, import_seconds, entered)
    except BaseException as problem:
        # A help ends so, and so may a model in its forward pass.
        if isinstance(problem, SystemExit) and not so_far.record:
            raise
        fail(problem, so_far)
    ending.leave()


def run(trainer_class: type[Trainer], backend: str, so_far: SoFar, import_seconds: float, entered: float) -> None:
    """Runs a training from its command line to its complete record. `entered` is the time.perf_counter() at the start of `main`."""
    ranks = so_far.ranks = from_environment()
    expect_planned(ranks)
    requested, launch = read_command_line(backend, ranks)
    settings, load, record, path = begin(backend, requested, ranks, launch, import_seconds, entered)
    so_far.record, so_far.path = record, path
    dog = so_far.watchdog = watch(settings, ranks, record, path)
    cores = prepare_process(ranks, settings)
    run_afterwards = afterwards(settings)
    # What has been imported stays: no collection during training looks through it. A framework imports a part with its first optimizer.
    gc.freeze()
    trainer = so_far.trainer = make_trainer(trainer_class, settings, ranks, record)
    gc.enable()
    dog.heartbeat()
    describe(trainer, record, is_rank_0=path is not None)
    turns = prepare(trainer, settings, record, cores, dog.heartbeat)
    record.init_seconds = time.perf_counter() - entered
    # The record now has the process IDs by which the matrix identifies a killed rank.
    write(path, record)
    # The run is ready; its first turn begins when the runs of its group are ready too.
    turns.end()
    speeds = speed.speeds_by_rank(trainer)
    batches = loop.train(trainer, settings, load, record, lambda data: workloads.digest(requested, data.digest), dog, turns)
    record.machine_noise = speed.machine_noise(speeds, speed.speeds_by_rank(trainer))
    speed.add_throughput(trainer, settings, record)
    if run_afterwards and batches:
        # Saves the measurements before anything else can fail.
        write(path, record)
        run_afterwards(trainer, batches, record, turns.end)
    finish(trainer, record, path)


def read_command_line(backend: str, ranks: Ranks) -> tuple[Settings, Launch]:
    """Returns the settings of the command line and of the launch, which is the other part."""
    expect_variables(sys.argv)
    description = f"Train a workload with the backend {backend} and write the record of the run."
    left_out = config.not_for(config.SINGLE_RUN) | backends.settings_of_others(backend)
    parsed = parse(Settings, f"{SHELL_PYTHON} -m frameworks.{backend}", description, left_out=left_out, helps=workloads.help_of_settings())
    launch = launch_of(backend, ranks)
    settings = dataclasses.replace(parsed, **launch.settings)
    if path := workloads.located(workloads.source_of(settings))["model"]:
        # A process goes to the folder of a user's file, in which its relative paths begin.
        paths = {name: value.absolute() for name, value in vars(settings).items() if isinstance(value, Path)}
        settings = dataclasses.replace(settings, **paths, model=path)
    return settings, launch


def watch(settings: Settings, ranks: Ranks, record: Record, path: Path | None) -> Watchdog:
    """Lets signals and hangs of this rank end the run with their error in the record. Returns the watchdog."""
    ending.on_signal(functools.partial(end_by_signal, record, path, ranks.rank))
    return watchdog.begin(settings.watchdog_timeout, ranks.rank, functools.partial(end_hang, record, path), settings.join_timeout)


def make_trainer(trainer_class: type[Trainer], settings: Settings, ranks: Ranks, record: Record) -> Trainer:
    """Joins the ranks and makes the model. Raises UserError where the memory does not suffice."""
    on_gpu = settings.device != "cpu" and trainer_class.device_problem("cuda") is None
    state_memory.expect_room(record.backend, settings, ranks.size, ranks.local_size, "cuda" if on_gpu else "cpu")
    return trainer_class(settings)


def describe(trainer: Trainer, record: Record, is_rank_0: bool) -> None:
    """Adds the device and the libraries of the trainer to the record, before training: Horovod's shutdown on any rank ends MPI on all."""
    device = trainer.describe_device()
    record.environment.device = device.type
    if is_rank_0:
        record.environment.gpu = environment.describe_gpu(device)
    record.transport, record.library_configuration = trainer.transport, trainer.configuration
    record.environment.mpi = environment.mpi_library()


def prepare(trainer: Trainer, settings: Settings, record: Record, cores: Set[int], heartbeat: Callable[[], object]) -> Turns:
    """Warms the trainer up, then checks and records where the ranks run, when every library has started its threads."""
    turns = loop.prepare(trainer, settings, record, heartbeat)
    cores_by_rank, record.oversubscribed = checks.check_cores(trainer, settings, cores)
    record.environment.cores_by_rank = list(cores_by_rank)
    places = values_by_rank(trainer, (record.environment.host, binding.numa_nodes_of(cores_by_rank[trainer.ranks.rank])))
    record.environment.host_by_rank, record.environment.numa_nodes_by_rank = map(list, zip(*places, strict=True))
    return turns


def fail(problem: BaseException, so_far: SoFar) -> NoReturn:
    """Records and reports a failure, as far as the run has come, and leaves."""
    status, error = ending.describe_failure(problem, so_far.watchdog.position if so_far.watchdog else None)
    if so_far.record:
        so_far.record.status = problem.status if isinstance(problem, RunError) else "failed"
        so_far.record.error = error
        write_last(so_far.path, so_far.record)
    if isinstance(problem, RunError) and so_far.trainer:
        # Barrier: the first rank to leave may end the others, so rank 0 must have written the record.
        so_far.trainer.sum(np.zeros(1))
    ending.leave_failed(problem, status, error, so_far.ranks)


def begin(
    backend: str, requested: Settings, ranks: Ranks, launch: Launch, import_seconds: float, entered: float
) -> tuple[Settings, Callable[..., Dataset], Record, Path | None]:
    """Checks the settings and makes the record of a run. Raises UserError for invalid settings.

    Returns the resolved settings, a function that reads the data, the record, and the record's path on rank 0.
    """
    name = backends.name_of(backend, requested)
    degree = parallelism.degree(name, requested, ranks.size)
    settings = workloads.resolve(requested, degree)
    plan = workloads.batch_plan(settings, degree)
    settings = dataclasses.replace(settings, machine=files.machine_name(settings.machine))
    load = datasets.loader(settings)
    record = definition.new(name, settings, ranks, plan, launch._asdict(), environment.describe(of_record=ranks.rank == 0))
    record.import_seconds = import_seconds
    if launch.launched_at:
        # Process start times have a resolution of 10 ms, and some launchers take less.
        record.launch_seconds = max(0.0, time.time() - launch.launched_at - import_seconds - (time.perf_counter() - entered))
    record.environment.ignored_variables = launch.ignored_variables | binding.removed_variables
    if ranks.rank:
        return settings, load, record, None
    folder = files.folder(settings)
    files.make_folder(folder)
    if settings.checkpoint_dir:
        files.make_folder(settings.checkpoint_dir, "checkpoints", "--checkpoint-dir")
    if binding.removed_variables:
        print(binding.describe_ignored(binding.removed_variables), file=sys.stderr, flush=True)
    path = folder / f"{files.run_name(name, settings, ranks.size)}.json"
    try:
        files.write(path, record)
    except OSError as error:
        raise UserError(
            f"cannot write the record {path} ({error.strerror}); give another folder with --results, or a shorter name"
        ) from None
    return settings, load, record, path


def prepare_process(ranks: Ranks, settings: Settings) -> Set[int]:
    """Configures the allocator of this process and binds it. Returns its cores: without a binding those of its start."""
    binding.expect_unbound()
    machine.keep_large_buffers()
    if not settings.bind:
        return binding.INHERITED_CORES
    cores = binding.cores_for(binding.INHERITED_CORES, ranks.local_rank, config.cores_per_rank(settings), binding.core_of_threads())
    binding.bind(cores)
    return cores


def launch_of(backend: str, ranks: Ranks) -> Launch:
    """Describes the launch of this run: by TANDEM_LAUNCH if launch/matrix.py has set it, else by this process.

    A run is traced where a library that is loaded traces MPI, unless its matrix says otherwise.
    """
    command, by_matrix = shlex.join([PYTHON, "-m", f"frameworks.{backend}", *sys.argv[1:]]), launch_by_matrix()
    is_traced = TRACING_LIBRARY.search(os.environ.get("LD_PRELOAD", ""))
    settings = ({"trace": "mpi"} if is_traced else {}) | by_matrix.get("settings", {})
    return Launch(ranks.source, command, None, {}, {})._replace(**by_matrix | {"settings": settings})


def launch_by_matrix() -> dict[str, Any]:
    """Reads the fields of a Launch from TANDEM_LAUNCH, which launch/matrix.py sets for its runs; none without it.

    Raises UserError where the variable has another value.
    """
    text = os.environ.get("TANDEM_LAUNCH") or "{}"
    refusal = UserError(f"TANDEM_LAUNCH is {text[:60]!r}; launch/matrix.sh sets it for its runs; unset it")
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        raise refusal from None
    if not isinstance(fields, dict) or not all(isinstance(value, LAUNCH_TYPES.get(name, ())) for name, value in fields.items()):
        raise refusal
    settings, ignored = (fields.get(name, {}) for name in ("settings", "ignored_variables"))
    is_known = settings.keys() <= config.not_for(config.SINGLE_RUN).keys()
    if not is_known or not all(isinstance(text, str | None) for text in [*settings.values(), *ignored.values()]):
        raise refusal
    return fields


def process_age_seconds() -> float:
    """Returns the seconds since this process started, with a resolution of 10 ms (proc(5): starttime, in clock ticks since boot)."""
    started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


def afterwards(settings: Settings) -> Afterwards | None:
    """Returns the function to call after training: a profiled epoch with --timeline, else the step breakdown.

    It is None for a traced run and with --no-step-breakdown. Raises UserError for --timeline with --resume, which may leave nothing to
    train, or without --run-id, which the ranks need to agree on a folder.
    """
    if settings.timeline and settings.resume:
        raise UserError("--timeline cannot be combined with --resume")
    if settings.timeline:
        folder = files.make_trace_folder(settings, "--timeline")
        return lambda trainer, batches, *_: step_breakdown.profile_epoch(folder, trainer, batches)
    return step_breakdown.add_to_record if settings.step_breakdown and not settings.trace else None


def end_hang(record: Record, path: Path | None, hang: Hang | Late) -> None:
    """Records the hang of this rank and ends the process. The watchdog calls this."""
    record.status, record.error = "failed", str(hang)
    write_last(path, record)
    ending.leave_hung(hang)


def end_by_signal(record: Record, path: Path | None, rank: int, number: signal.Signals) -> None:
    """Records that a signal ends this rank, and ends the process. The thread that receives signals calls this."""
    if record.status == "started":
        record.status, record.error = (
            "failed",
            ending.first_error_under_torchrun() or f"ended by {number.name} ({signal.strsignal(number)})",
        )
        write_last(path, record)
    ending.leave_by_signal(number, rank)


def write(path: Path | None, record: Record) -> None:
    """Writes the record; only rank 0 has a path."""
    if path:
        files.write(path, record)


def write_last(path: Path | None, record: Record) -> None:
    """Writes the record of a run that has failed, as where the disk is not full: the matrix has the cause from the rank's message too."""
    with contextlib.suppress(OSError):
        write(path, record)


def finish(trainer: Trainer, record: Record, path: Path | None) -> None:
    """Writes the record of a completed run and leaves the process group."""
    record.status = "ok"
    write(path, record)
    if path:
        print(f"record: {path}", flush=True)
    # Barrier: the first rank to shut Horovod down may end the others, so rank 0 must have written the record.
    trainer.sum(np.zeros(1))
    trainer.close()
    if path:
        messages.send(messages.RankEnded(None))
