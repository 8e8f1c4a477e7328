"""The training loop and its clock, the same for every backend's Trainer."""

import functools
import math
import os
import resource
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from common import metric, workloads
from common.config import Settings, computed_precision
from common.cost import parallelism
from common.data import sharding
from common.data.samples import Dataset
from common.data.sharding import DataParallel
from common.meter import Meter
from common.model import weights
from common.process import gpus, messages
from common.process.messages import Place
from common.process.ranks import Ranks, by_rank
from common.process.turns import Turns
from common.process.watchdog import Watchdog
from common.progress import Progress, format_line, reading
from common.record import records
from common.record.definition import Record
from common.record.parts import GpuMemoryByRank, HeldByRank, TensorBytesByRank
from common.trainer import POINTS, Batches, Totals, Trainer
from common.training import batches, checks, taken
from common.training.batches import ReadingCost, SampleBatches
from common.training.checkpoints import About, Checkpoints
from common.training.delays import Delay

PROGRESS_INTERVAL_SECONDS = 1.0
# DDP rebuilds its buckets in the second step, and the last one shows how long a step takes.
NUM_WARMUP_STEPS = 3

# It is called with the amount that is read and that of all the data.
OnProgress = Callable[[int, int], object]


class Report(Protocol):
    """Reports the progress after a step, at most once a second unless `shows`."""

    def __call__(self, step: int, loss: Any, shows: bool = False) -> None: ...


class TrainedEpoch(NamedTuple):
    """The losses of the steps of an epoch on this rank, the times at which they ended, in seconds on the clock, and which were skipped."""

    losses: np.ndarray
    step_ends: list[float]
    skipped: np.ndarray


def prepare(trainer: Trainer, settings: Settings, record: Record, heartbeat: Callable[[], object] = lambda: None) -> Turns:
    """Warms the trainer up and sets the initial parameters, which must be the same on all ranks. Returns the turns of the run.

    Every step is a heartbeat: a large model takes minutes for all of them.
    """
    checks.expect_same_settings(trainer, settings)
    if not settings.share_gpu:
        gpus.expect_own(trainer, trainer.describe_device())
    gpus.expect_precision(computed_precision(settings), trainer.describe_device())
    workload = workloads.workload_of(settings)
    # Compilation, first allocations and buckets belong to initialization, not to training.
    batch = batches.of_warm_up(workload.model, records.plan_of(record).local_batch, settings.precision)
    step_ends, num_skipped = [], [trainer.num_skipped_steps()]

    def observe(loss: Any) -> None:
        # Waits for the device.
        float(loss)
        heartbeat()
        step_ends.append(time.perf_counter())
        num_skipped.append(trainer.num_skipped_steps())

    # The warm-up changes running statistics.
    buffers = weights.buffers_of(trainer.state(with_optimizer_state=False))
    trainer.train_epoch([batch] * (NUM_WARMUP_STEPS - 1), observe)
    with trainer.memory() as held:
        trainer.train_epoch([batch], observe)
    checks.expect_applied(np.diff(num_skipped) > 0, "the warm-up", "check model(), loss() and optimizer() on the first samples")
    bytes_by_rank = {
        point: HeldByRank(**{name: by_rank(trainer, size).astype(int).tolist() for name, size in held[point]._asdict().items()})
        for point in POINTS
    }
    record.tensor_bytes_by_rank = TensorBytesByRank(**bytes_by_rank)
    if workload.target is not None:
        # Two batch sizes make TensorFlow trace a function for any size, including that of the real evaluation batches.
        sizes = (workload.evaluation_batch_size, workload.evaluation_batch_size + 1)
        trainer.evaluate([batches.of_warm_up(workload.model, size, settings.precision) for size in sizes])
    trainer.restore(workload.model.initial_values(settings.seed, settings.precision) | buffers)
    heartbeat()
    checks.compare_replicas(trainer, record, "before training")
    record.num_nodes = int(by_rank(trainer, trainer.ranks.local_rank == 0).sum())
    pids_by_rank = by_rank(trainer, os.getpid()).astype(int).tolist()
    record.pids_by_rank = pids_by_rank
    return Turns(trainer, np.diff(step_ends)[-1], pids_by_rank)


def train(
    trainer: Trainer,
    settings: Settings,
    load: Callable[[OnProgress], Dataset],
    record: Record,
    workload_digest: Callable[[Dataset], str],
    watchdog: Watchdog,
    turns: Turns,
) -> Batches | None:
    """Trains until the target is reached or all epochs are done; writes every result into the record as soon as it is known.

    The clock starts before the data is read. Loading, training and evaluation are on it; it is stopped only for the turns of other
    runs and for the comparison of replicas, which only Tandem makes. The time to solution ends with the evaluation that first
    reaches the target. Every step is a heartbeat of the watchdog.

    Returns the batches of the last epoch, for measurements after training, or None if no epoch was trained.
    """
    assert settings.epochs, workloads.RESOLVED
    ranks = trainer.ranks
    clock, joules = _start(trainer, record, turns)
    watchdog.heartbeat()
    delay = Delay(settings, clock, watchdog)
    data = _load(trainer, load, record, clock, watchdog)
    num_samples, global_batch = len(data.train), records.plan_of(record).global_batch
    num_steps = sharding.num_trained_steps(num_samples, global_batch)
    factor = workloads.learning_rate_factor(settings.scaling, record.data_parallel_degree)
    learning_rates = workloads.learning_rates(settings, num_steps, factor)
    turns.begin(num_steps)
    record.samples_per_epoch, record.samples_dropped_per_epoch = num_steps * global_batch, num_samples - num_steps * global_batch
    record.workload_digest = workload_digest(data)
    workload = workloads.workload_of(settings)
    record.reached = None if settings.target is None else False
    record.metric, record.lower_is_better = workload.metric, workload.lower_is_better
    about = About(0, None, record.workload_digest, settings.seed, global_batch, factor)
    files = Checkpoints(trainer, settings, about)
    if settings.resume:
        _resume(trainer, files, record, clock)
    reading_cost = ReadingCost()
    epoch_batches, place = None, parallelism.place(ranks.rank, ranks.size, record.data_parallel_degree)
    for epoch in range(files.about.epochs, settings.epochs):
        order = sharding.Epoch(num_samples, global_batch, settings.seed, epoch)
        indices, sample_weights = sharding.training_shard(order, place, data.train.num_losses)
        epoch_batches = SampleBatches(
            data.train, indices[:num_steps], sample_weights[:num_steps], learning_rates[epoch], settings, watchdog, epoch + 1,
            reading=reading_cost,
        )  # fmt: skip
        watchdog.begin(Place(epoch + 1, 1, num_steps))
        delay.begin()
        begun = clock.now()
        report = _reporter(ranks, settings.epochs, record, epoch, num_steps, clock, watchdog)
        losses, step_ends, skipped = _train_epoch(trainer, epoch_batches, clock, report, turns, delay)
        trained = clock.now()
        if settings.target is not None:
            _evaluate(trainer, data, settings, record, clock, watchdog, delay)
        report(num_steps, losses[-1], shows=True)
        record.learning_rates += learning_rates[epoch].tolist()
        _record_times(record, begun, step_ends, trained)
        with clock.pause("checks"):
            checks.check_epoch(trainer, losses, skipped, record, epoch)
            _record_taken(trainer, epoch_batches, place, record)
        ended = epoch + 1 == settings.epochs or bool(record.reached and settings.stop_at_target)
        files.keep(epoch + 1, record.accuracy, ended)
        if ended:
            break
        turns.end()
    record.checkpoint_io = files.io()
    record.reading = None if settings.data_format == "memory" else reading_cost.of_all_ranks(trainer)
    record.energy_joules = gpus.total_joules(trainer, joules.now())
    _record_use(trainer, record, turns, clock)
    return epoch_batches


def _record_taken(trainer: Trainer, epoch_batches: SampleBatches, place: DataParallel, record: Record) -> None:
    """Adds digests of the samples of an epoch, and of the data of the first step, to the record. All ranks call this."""
    used, shape = epoch_batches.taken, (len(epoch_batches), epoch_batches.indices.shape[1])
    if not record.sample_digests:
        record.first_batch_digest = taken.digest_of_data(trainer, used.first, place)
    used.first = None
    record.sample_digests.append(taken.digest_of_samples(trainer, used, shape, place))


def _start(trainer: Trainer, record: Record, turns: Turns) -> tuple[Meter[float], Meter[float]]:
    """Starts the clock of the run and the meter of this rank's energy, on all ranks together."""
    joules = Meter(gpus.count_joules(trainer.ranks, record.pids_by_rank or []))
    # Barrier: opening NVML delays the first rank of a node.
    trainer.sum(np.zeros(1))
    if memory := trainer.describe_device().memory:
        memory.reset()
    clock = Meter(time.perf_counter)
    turns.meters += [clock, joules]
    return clock, joules


def _load(trainer: Trainer, load: Callable[[OnProgress], Dataset], record: Record, clock: Meter[float], watchdog: Watchdog) -> Dataset:
    """Reads the data, which must be the same on all ranks."""
    data = load(_reading(trainer.ranks, watchdog))
    record.load_seconds = clock.now()
    # Barrier: waiting for a rank that reads longer is on the clock.
    trainer.sum(np.zeros(1))
    with clock.pause("checks"):
        checks.expect_same_data(trainer, data)
    return data


def _resume(trainer: Trainer, files: Checkpoints, record: Record, clock: Meter[float]) -> None:
    """Resumes from a checkpoint, if there is one, which must be the same on all ranks."""
    files.resume()
    record.resumed_after_epochs = files.about.epochs
    with clock.pause("checks"):
        checks.expect_same_checkpoint(trainer, files.about)


def _record_use(trainer: Trainer, record: Record, turns: Turns, clock: Meter[float]) -> None:
    """Adds to the record the memory and the time that the training has taken. All ranks call this, before additional steps add to it."""
    record.staleness = trainer.staleness and list(trainer.staleness)
    record.left_out = trainer.left_out
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    peak_bytes_by_rank = by_rank(trainer, peak_bytes).astype(int).tolist()
    record.peak_memory_bytes_by_rank, record.peak_memory_bytes = peak_bytes_by_rank, max(peak_bytes_by_rank)
    record.num_turns, record.steps_per_turn, record.turns_of_others_seconds = turns.num_ended, turns.num_steps, clock.paused["turns"]
    record.check_seconds = clock.paused["checks"]
    record.gpu_memory_by_rank = gpu_memory_by_rank(trainer)


def gpu_memory_by_rank(trainer: Trainer) -> GpuMemoryByRank | None:
    """Returns the memory that the ranks have used of their GPUs since its peaks began; None on CPUs. All ranks call this."""
    device = trainer.describe_device()
    peaks = device.memory.peak() if device.memory else (None, None)
    sizes_by_name: dict[str, list[int | None]] = {}
    names = ("peak_allocated_bytes", "peak_reserved_bytes", "used_bytes")
    for name, value in zip(names, (*peaks, gpus.used_bytes(device)), strict=True):
        sizes = by_rank(trainer, math.nan if value is None else value).tolist()
        sizes_by_name[name] = [None if math.isnan(size) else int(size) for size in sizes]
    return None if device.gpu is None else GpuMemoryByRank(**sizes_by_name)


def _train_epoch(trainer: Trainer, epoch_batches: Batches, clock: Meter[float], report: Report, turns: Turns, delay: Delay) -> TrainedEpoch:
    """Trains the steps of an epoch, and ends the turns within it."""
    losses, step_ends, num_skipped = [], [], [trainer.num_skipped_steps()]

    def observe(loss: Any) -> None:
        losses.append(loss)
        step_ends.append(clock.now())
        num_skipped.append(trainer.num_skipped_steps())
        report(len(losses), loss)
        if turns.num_steps and len(losses) % turns.num_steps == 0 and len(losses) < len(epoch_batches):
            # Converting the loss waits for the device, so the work of this turn is done within it.
            float(loss)
            delay.wait()
            turns.end()

    trainer.train_epoch(epoch_batches, observe)
    # As above: the end of the epoch, and of its last step, includes all of its work.
    numbers = np.array([float(loss) for loss in losses])
    delay.wait()
    step_ends[-1] = clock.now()
    return TrainedEpoch(numbers, step_ends, np.diff(num_skipped) > 0)


def _record_times(record: Record, begun: float, step_ends: list[float], trained: float) -> None:
    """Adds the times of an epoch to the record: its beginning, the ends of its steps and its own, in seconds on the clock."""
    assert record.samples_per_epoch, "it is recorded before the first epoch"
    record.step_seconds += np.diff(step_ends, prepend=begun).tolist()
    record.train_seconds.append(trained - begun)
    num_trained = record.samples_per_epoch * len(record.train_seconds)
    record.samples_per_second = num_trained / sum(filter(None, record.train_seconds))


def _evaluate(
    trainer: Trainer, data: Dataset, settings: Settings, record: Record, clock: Meter[float], watchdog: Watchdog, delay: Delay
) -> None:
    """Evaluates all held-out samples over all ranks; sets the time to solution when the target is first reached."""
    assert settings.target is not None, workloads.RESOLVED
    workload = workloads.workload_of(settings)
    begun = clock.now()
    place = parallelism.place(trainer.ranks.rank, trainer.ranks.size, record.data_parallel_degree)
    indices, sample_weights = sharding.evaluation_shard(len(data.test), workload.evaluation_batch_size, place)
    evaluation_batches = SampleBatches(data.test, indices, sample_weights, np.zeros(len(indices)), settings, watchdog)
    # Ranks that share a model evaluate the same samples, so each counts as often; or one of them has the totals, and the others zeros.
    totals = Totals.of(trainer.sum(np.array(trainer.evaluate(evaluation_batches).values, dtype=np.float64)).tolist())
    delay.wait()
    evaluated = clock.now()
    accuracy = workload.model.metric(totals.num_correct, totals.num_losses, totals.sums, math.isfinite(totals.loss))
    # NaN has predictions too.
    if metric.meets(accuracy, settings.target, record.lower_is_better) and not record.reached and math.isfinite(totals.loss):
        record.reached = True
        # The epochs before a checkpoint were on another clock.
        if not record.resumed_after_epochs:
            record.time_to_solution_seconds = evaluated
    record.eval_seconds.append(evaluated - begun)
    record.eval_losses.append(totals.loss / totals.num_losses)
    record.accuracies.append(accuracy)
    record.accuracy = accuracy


def _reading(ranks: Ranks, watchdog: Watchdog) -> OnProgress:
    """Makes the on_progress of common/data/datasets.py: a heartbeat, and on rank 0 lines with the progress."""
    show = reading(functools.partial(print, flush=True) if ranks.rank == 0 else lambda _: None)

    def on_progress(num_done: int, num_all: int) -> None:
        watchdog.heartbeat()
        show(num_done, num_all)

    return on_progress


def _reporter(ranks: Ranks, num_epochs: int, record: Record, epoch: int, num_steps: int, clock: Meter[float], watchdog: Watchdog) -> Report:
    """Makes the Report of an epoch, which updates the watchdog and, on rank 0, prints the progress."""
    printed = -math.inf
    show = messages.send if messages.are_read() else lambda progress: print(format_line(progress), flush=True)

    def report(step: int, loss: Any, shows: bool = False) -> None:
        nonlocal printed
        watchdog.begin(Place(epoch + 1, step + 1, num_steps))
        now = clock.now()
        if ranks.rank == 0 and (shows or now - printed >= PROGRESS_INTERVAL_SECONDS):
            printed = now
            show(Progress(epoch + 1, num_epochs, step, num_steps, float(loss), record.accuracy, now, record.metric))

    return report
