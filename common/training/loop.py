"""The training loop, the same for every backend's Trainer: the warm-up, then epochs with their evaluations on the clock."""

import math
import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from common import metric, workloads
from common.config import Settings
from common.cost import parallelism
from common.data import sharding
from common.data.samples import Dataset
from common.data.sharding import Shard
from common.model import weights
from common.progress import Progress, format_line
from common.ranks import gpus, messages
from common.ranks.launcher_variables import by_rank, values_by_rank
from common.ranks.messages import Position
from common.ranks.watchdog import Watchdog
from common.record import definition
from common.record.definition import Record
from common.record.parts import BytesByRank, GpuMemoryByRank, TensorBytesByRank
from common.trainer import POINTS, Batches, Totals, Trainer
from common.training import batches, checkpoints, checks
from common.training.batches import ReadingCost, SampleBatches
from common.training.checkpoints import LONG_EPOCH_SECONDS, About
from common.training.clock import Delay, Meter, Turns

PROGRESS_INTERVAL_SECONDS = 1.0
# DDP rebuilds its buckets in the second step, and the last one shows how long a step takes.
NUM_WARMUP_STEPS = 3
# What a checkpoint has of the record: what grows by epochs, and what the evaluations have shown.
PROGRESS = (
    "losses", "learning_rates", "step_seconds", "train_seconds", "eval_seconds", "eval_losses", "accuracies", "accuracy", "reached",
    "time_to_solution_seconds", "parameter_digests", "sample_digests", "first_batch_digest",
)  # fmt: skip


@final
@dataclass(frozen=True)
class Run:
    """What every part of a training uses. `shard` is this rank's part of a global batch."""

    trainer: Trainer
    settings: Settings
    record: Record
    watchdog: Watchdog
    turns: Turns
    clock: Meter
    joules: Meter
    delay: Delay
    shard: Shard


def prepare(trainer: Trainer, settings: Settings, record: Record, heartbeat: Callable[[], object] = lambda: None) -> Turns:
    """Warms the trainer up and sets the initial parameters, which must be the same on all ranks. Returns the turns of the run.

    Every step is a heartbeat: a large model takes minutes for all of them.
    """
    checks.expect_same_settings(trainer, settings)
    if not settings.share_gpu:
        gpus.expect_own(trainer, trainer.describe_device())
    gpus.expect_precision(settings.precision, trainer.describe_device())
    # The warm-up changes running statistics.
    buffers = weights.buffers_of(trainer.state(with_optimizer_state=False))
    step_seconds = _warm_up(trainer, settings, record, heartbeat)
    initial_values = workloads.workload_of(settings).model.initial_values(settings.seed, settings.precision)
    trainer.restore(initial_values | buffers)
    heartbeat()
    checks.compare_replicas(trainer, record, "before training")
    record.num_nodes = int(by_rank(trainer, trainer.ranks.local_rank == 0).sum())
    pids_by_rank = values_by_rank(trainer, os.getpid())
    record.pids_by_rank = pids_by_rank
    return Turns(trainer, step_seconds, pids_by_rank)


def _warm_up(trainer: Trainer, settings: Settings, record: Record, heartbeat: Callable[[], object]) -> float:
    """Trains and evaluates batches like the first ones, and records the bytes that a step holds. Returns the seconds of the shortest step.

    Compilation, first allocations and buckets belong to initialization, not to training.
    """
    workload = workloads.workload_of(settings)
    batch = batches.of_warm_up(workload.model, definition.plan_of(record).local_batch, settings.precision, settings.accumulate)
    step_ends, num_skipped = [], [trainer.num_skipped_steps()]

    def observe(loss: Any) -> None:
        # Waits for the device.
        float(loss)
        heartbeat()
        step_ends.append(time.perf_counter())
        num_skipped.append(trainer.num_skipped_steps())

    trainer.train_epoch([batch] * (NUM_WARMUP_STEPS - 1), observe)
    with trainer.memory() as bytes_at_points:
        trainer.train_epoch([batch], observe)
    checks.expect_applied(np.diff(num_skipped) > 0, "the warm-up", "check model(), loss() and optimizer() on the first samples")
    of_ranks = values_by_rank(trainer, bytes_at_points)
    bytes_by_rank = {point: BytesByRank(*map(list, zip(*(of_rank[point] for of_rank in of_ranks), strict=True))) for point in POINTS}
    record.tensor_bytes_by_rank = TensorBytesByRank(**bytes_by_rank)
    if workload.target is not None:
        # Two batch sizes make TensorFlow trace a function for any size, including that of the real evaluation batches.
        sizes = (workload.evaluation_batch_size, workload.evaluation_batch_size + 1)
        trainer.evaluate([batches.of_warm_up(workload.model, size, settings.precision) for size in sizes])
    # The first steps compile and allocate, and the last has the hooks of memory().
    return np.diff(step_ends).min()


def train(
    trainer: Trainer,
    settings: Settings,
    load: Callable[[], Dataset],
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
    run = _start(trainer, settings, record, watchdog, turns)
    data = _load(run, load)
    learning_rate_factor = workloads.learning_rate_factor(settings.scaling, record.data_parallel_degree)
    learning_rates = _plan_steps(run, data, learning_rate_factor)
    record.workload_digest = workload_digest(data)
    about = _resumed(run, learning_rate_factor)
    reading_cost, epoch_batches = ReadingCost(), None
    for epoch in range(about.epochs, settings.epochs):
        epoch_batches = _batches_of(run, data, epoch, learning_rates[epoch], reading_cost)
        _train_and_evaluate(run, data, epoch_batches)
        ended = epoch + 1 == settings.epochs or bool(record.reached and settings.stop_at_target)
        about = about._replace(epochs=epoch + 1)
        checkpoints.keep(trainer, settings, about)
        _keep_own_checkpoint(run, about, ended)
        if ended:
            break
        turns.end()
    record.reading = None if settings.data_format == "memory" else reading_cost.of_all_ranks(trainer)
    # Of what was trained before a checkpoint the energy is not known.
    record.energy_joules = None if about.progress else gpus.total_joules(trainer, run.joules.now())
    _record_use(run)
    return epoch_batches


def _start(trainer: Trainer, settings: Settings, record: Record, watchdog: Watchdog, turns: Turns) -> Run:
    """Starts the clock of the run and the meter of this rank's energy, on all ranks together."""
    joules = Meter(gpus.count_joules(trainer.ranks, record.pids_by_rank or []))
    # Barrier: opening NVML delays the first rank of a node.
    trainer.sum(np.zeros(1))
    if memory := trainer.describe_device().memory:
        memory.reset()
    clock = Meter(time.perf_counter)
    turns.meters += [clock, joules]
    watchdog.heartbeat()
    shard = parallelism.shard_of(trainer.ranks.rank, trainer.ranks.size, record.data_parallel_degree)
    return Run(trainer, settings, record, watchdog, turns, clock, joules, Delay(settings, clock, watchdog), shard)


def _load(run: Run, load: Callable[[], Dataset]) -> Dataset:
    """Reads the data, which must be the same on all ranks."""
    data = load()
    run.record.load_seconds = run.clock.now()
    # Barrier: waiting for a rank that reads longer is on the clock.
    run.trainer.sum(np.zeros(1))
    with run.clock.pause("checks"):
        checks.expect_same_data(run.trainer, data)
    return data


def _plan_steps(run: Run, data: Dataset, learning_rate_factor: float) -> np.ndarray:
    """Plans the steps and turns of an epoch, and records them and the target. Returns the learning rates, of shape (epochs, steps)."""
    settings, record = run.settings, run.record
    num_samples, global_batch = len(data.train), definition.plan_of(record).global_batch
    num_steps = sharding.num_trained_steps(num_samples, global_batch)
    learning_rates = workloads.learning_rates(settings, num_steps, learning_rate_factor)
    run.turns.begin(num_steps)
    record.samples_per_epoch, record.samples_dropped_per_epoch = num_steps * global_batch, num_samples - num_steps * global_batch
    workload = workloads.workload_of(settings)
    record.reached = None if settings.target is None else False
    record.metric, record.lower_is_better = workload.metric, workload.lower_is_better
    return learning_rates


def _resumed(run: Run, learning_rate_factor: float) -> About:
    """Describes the run so far; with --resume it continues from the last checkpoint, which must be the same on all ranks."""
    settings, record = run.settings, run.record
    assert record.workload_digest, "it is recorded with the data"
    about = About(0, record.workload_digest, settings.seed, definition.plan_of(record).global_batch, learning_rate_factor)
    if settings.resume:
        about = checkpoints.resume(run.trainer, settings, about)
        record.resumed_after_epochs = 0 if about.progress else about.epochs
        with run.clock.pause("checks"):
            checks.expect_same_checkpoint(run.trainer, about)
        if about.progress:
            run.clock.go_on_from(about.progress["seconds"])
            for name in PROGRESS:
                setattr(record, name, about.progress[name])
    return about


def _keep_own_checkpoint(run: Run, about: About, ended: bool) -> None:
    """Keeps a checkpoint of its own accord, off the clock, after a long epoch: where --resume repeats the run, it goes on from there."""
    progress = {name: getattr(run.record, name) for name in PROGRESS} | {"seconds": run.clock.now()}
    with run.clock.pause("checks"):
        is_long = by_rank(run.trainer, run.record.train_seconds[-1] or 0.0).max() > LONG_EPOCH_SECONDS
        checkpoints.keep_own(run.trainer, run.settings, about._replace(progress=progress), is_long, ended)


def _batches_of(run: Run, data: Dataset, epoch: int, learning_rates: np.ndarray, reading_cost: ReadingCost) -> SampleBatches:
    """Returns this rank's batches of an epoch, which counts from 0, with the learning rate of each step."""
    order = sharding.Epoch(len(data.train), definition.plan_of(run.record).global_batch, run.settings.seed, epoch)
    indices, sample_weights = sharding.training_shard(order, run.shard, data.train.num_losses)
    num_steps = len(learning_rates)
    return SampleBatches(
        data.train, indices[:num_steps], sample_weights[:num_steps], learning_rates, run.settings, run.watchdog, epoch + 1,
        reading=reading_cost,
    )  # fmt: skip


def _train_and_evaluate(run: Run, data: Dataset, epoch_batches: SampleBatches) -> None:
    """Trains an epoch, evaluates where there is a target, records the times and checks the results, the checks off the clock."""
    num_steps, record = len(epoch_batches), run.record
    run.watchdog.begin(Position(epoch_batches.epoch, 1, num_steps))
    run.delay.begin()
    begun = run.clock.now()
    report = _reporter(run, epoch_batches.epoch, num_steps)
    losses, step_ends, skipped = _train_epoch(run, epoch_batches, report)
    trained = run.clock.now()
    if run.settings.target is not None:
        _evaluate(run, data)
    report(num_steps, losses[-1], shows=True)
    record.learning_rates += epoch_batches.learning_rates.tolist()
    _record_times(record, begun, step_ends, trained)
    with run.clock.pause("checks"):
        checks.check_epoch(run.trainer, losses, skipped, record, epoch_batches.epoch)
        _record_samples(run, epoch_batches)


def _train_epoch(run: Run, epoch_batches: SampleBatches, report: Callable[..., None]) -> tuple[np.ndarray, list[float], np.ndarray]:
    """Trains the steps of an epoch, and ends the turns within it.

    Returns the losses of the steps on this rank, the times at which they ended, in seconds on the clock, and which were skipped.
    """
    trainer, turns = run.trainer, run.turns
    losses, step_ends, num_skipped = [], [], [trainer.num_skipped_steps()]

    def observe(loss: Any) -> None:
        losses.append(loss)
        step_ends.append(run.clock.now())
        num_skipped.append(trainer.num_skipped_steps())
        report(len(losses), loss)
        if turns.num_steps and len(losses) % turns.num_steps == 0 and len(losses) < len(epoch_batches):
            # Converting the loss waits for the device, so the work of this turn is done within it.
            float(loss)
            run.delay.wait()
            turns.end()

    trainer.train_epoch(epoch_batches, observe)
    # As above: the end of the epoch, and of its last step, includes all of its work.
    numbers = np.array([float(loss) for loss in losses])
    run.delay.wait()
    step_ends[-1] = run.clock.now()
    return numbers, step_ends, np.diff(num_skipped) > 0


def _evaluate(run: Run, data: Dataset) -> None:
    """Evaluates all held-out samples over all ranks; sets the time to solution when the target is first reached."""
    trainer, settings, record = run.trainer, run.settings, run.record
    assert settings.target is not None, workloads.RESOLVED
    workload = workloads.workload_of(settings)
    begun = run.clock.now()
    indices, sample_weights = sharding.evaluation_shard(len(data.test), workload.evaluation_batch_size, run.shard)
    evaluation_batches = SampleBatches(data.test, indices, sample_weights, np.zeros(len(indices)), settings, run.watchdog)
    # Ranks that share a model evaluate the same samples, so each counts as often; or one of them has the totals, and the others zeros.
    totals = Totals.of(trainer.sum(np.array(trainer.evaluate(evaluation_batches).values, dtype=np.float64)).tolist())
    run.delay.wait()
    evaluated = run.clock.now()
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


def _record_times(record: Record, begun: float, step_ends: list[float], trained: float) -> None:
    """Adds the times of an epoch to the record: its beginning, the ends of its steps and its own, in seconds on the clock."""
    assert record.samples_per_epoch, "it is recorded before the first epoch"
    record.step_seconds += np.diff(step_ends, prepend=begun).tolist()
    record.train_seconds.append(trained - begun)
    num_trained = record.samples_per_epoch * len(record.train_seconds)
    record.samples_per_second = num_trained / sum(filter(None, record.train_seconds))


def _record_samples(run: Run, epoch_batches: SampleBatches) -> None:
    """Adds digests of the samples of an epoch, and of the data of the first step, to the record. All ranks call this."""
    log, shape = epoch_batches.log, (len(epoch_batches), epoch_batches.indices.shape[1])
    if not run.record.sample_digests:
        run.record.first_batch_digest = batches.digest_of_data(run.trainer, log.first, run.shard)
    log.first = None
    run.record.sample_digests.append(batches.digest_of_samples(run.trainer, log, shape, run.shard))


def _record_use(run: Run) -> None:
    """Adds to the record the memory and the time that the training has taken. All ranks call this, before additional steps add to it."""
    trainer, record, turns = run.trainer, run.record, run.turns
    record.staleness = trainer.staleness and list(trainer.staleness)
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    peak_bytes_by_rank = values_by_rank(trainer, peak_bytes)
    record.peak_memory_bytes_by_rank, record.peak_memory_bytes = peak_bytes_by_rank, max(peak_bytes_by_rank)
    record.num_turns, record.turns_of_others_seconds = turns.num_ended, run.clock.paused["turns"]
    record.check_seconds = run.clock.paused["checks"]
    record.gpu_memory_by_rank = gpu_memory_by_rank(trainer)


def gpu_memory_by_rank(trainer: Trainer) -> GpuMemoryByRank | None:
    """Returns the memory that the ranks have used of their GPUs since its peaks began; None on CPUs. All ranks call this."""
    device = trainer.describe_device()
    peaks = device.memory.peak() if device.memory else (None, None)
    of_ranks = values_by_rank(trainer, [*peaks, gpus.used_bytes(device)])
    return None if device.gpu is None else GpuMemoryByRank(*map(list, zip(*of_ranks, strict=True)))


def _reporter(run: Run, epoch: int, num_steps: int) -> Callable[..., None]:
    """Makes the function that reports the progress after a step of an epoch, which counts from 1: `report(step, loss, shows=False)`.

    It updates the watchdog and, on rank 0, prints the progress, at most once a second unless `shows`.
    """
    printed, num_epochs = -math.inf, run.settings.epochs
    assert num_epochs, workloads.RESOLVED
    show = messages.send if messages.SECRET else lambda progress: print(format_line(progress), flush=True)

    def report(step: int, loss: Any, shows: bool = False) -> None:
        nonlocal printed
        run.watchdog.begin(Position(epoch, step + 1, num_steps))
        now = run.clock.now()
        if run.trainer.ranks.rank == 0 and (shows or now - printed >= PROGRESS_INTERVAL_SECONDS):
            printed = now
            show(Progress(epoch, num_epochs, step, num_steps, float(loss), run.record.accuracy, now, run.record.metric))

    return report
