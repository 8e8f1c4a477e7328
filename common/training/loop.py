"""The training loop and its clock, the same for every backend's Trainer."""

import functools
import math
import os
import resource
import time
from dataclasses import dataclass

import numpy as np

from common import workloads
from common.config import Settings
from common.cost import parallelism
from common.data import sharding, storage_use
from common.data.samples import Samples, counted
from common.meter import Meter
from common.model import families, schedules, weights
from common.process import energy, gpus
from common.process.turns import Turns
from common.process.watchdog import Place, Watchdog
from common.progress import Progress, format_line, reading
from common.record import records
from common.trainer import NO_LOSS, POINTS, Batch, Totals, by_rank
from common.training import checkpoints, event_log

PROGRESS_INTERVAL_SECONDS = 1.0
# DDP rebuilds its buckets in the second step, and the last one shows how long a step takes.
NUM_WARMUP_STEPS = 3
# Keys of the record that only some backends measure, by attributes of their Trainers.
OF_A_TRAINER = ("staleness", "left_out")


class OutOfSync(Exception):
    """The replicas of the parameters differ between ranks."""


def prepare(trainer, settings, record, heartbeat=lambda: None):
    """Warms the trainer up and sets the initial parameters, which must be the same on all ranks. Returns the Turns of the run.

    Every step is a heartbeat: a large model takes minutes for all of them.
    """
    if not settings.share_gpu:
        gpus.expect_own(trainer)
    gpus.expect_precision(settings.precision, trainer.describe_device())
    workload = workloads.workload_of(settings)
    # Steps and evaluation on zeros: compilation, first allocations and buckets belong to initialization, not to training.
    zeros = _zeros(workload.model, workloads.local_batch(settings, record.data_parallel_degree), settings.precision)
    ends = []

    def observe(loss):
        # Waits for the device.
        float(loss)
        heartbeat()
        ends.append(time.perf_counter())

    trainer.train_epoch([zeros] * (NUM_WARMUP_STEPS - 1), observe)
    with trainer.memory() as held:
        trainer.train_epoch([zeros], observe)
    record.tensor_bytes_by_rank = {
        point: {name: by_rank(trainer, size).astype(int).tolist() for name, size in held[point]._asdict().items()} for point in POINTS
    }
    if workload.target is not None:
        # Two batch sizes make TensorFlow trace a function for any size, including that of the real evaluation batches.
        sizes = (settings.evaluation_batch_size, settings.evaluation_batch_size + 1)
        trainer.evaluate([_zeros(workload.model, size, settings.precision) for size in sizes])
    trainer.restore(weights.draw(workload.parameters, settings.seed, settings.precision))
    heartbeat()
    compare_replicas(trainer, record, "before training")
    crowded, nodes = trainer.sum(np.array([record.oversubscribed, trainer.ranks.local_rank == 0], dtype=np.float64))
    record.oversubscribed, record.num_nodes = bool(crowded), int(nodes)
    record.pids_by_rank = by_rank(trainer, os.getpid()).astype(int).tolist()
    return Turns(trainer, np.diff(ends)[-1], record.pids_by_rank)


def train(trainer, settings, load, record, workload_digest, watchdog, turns, log):
    """Trains until the target is reached or all epochs are done; writes every result into the record as soon as it is known.

    The clock starts before the data is read. Loading, training and evaluation are on it; it is stopped only for the turns of other
    runs and for the comparison of replicas, which only Tandem makes. The time to solution ends with the evaluation that first
    reaches the target. `load(on_progress)` reads the data; `workload_digest(data)` is its digest; every step is a heartbeat of
    `watchdog`. `log`: the MLLogger of the run.

    Returns the batches of the last epoch, for measurements after training, or None if no epoch was trained.
    """
    ranks = trainer.ranks
    clock, joules = _start(trainer, record, turns, log)
    watchdog.heartbeat()
    data = load(_reading(ranks, watchdog))
    record.load_seconds = clock.now()
    log.event("train_samples", len(data.train))
    log.event("eval_samples", len(data.test))
    num_samples, global_batch = len(data.train), workloads.global_batch(settings, record.data_parallel_degree)
    num_steps = workloads.num_steps(settings, num_samples, record.data_parallel_degree)
    learning_rates = schedules.learning_rates(
        settings.learning_rate, settings.learning_rate_factor, settings.warmup_epochs, settings.schedule, settings.epochs, num_steps
    )
    turns.begin(num_steps)
    _record_samples(record, num_samples, num_steps * global_batch)
    record.workload_digest = workload_digest(data)
    record.reached = None if settings.target is None else False
    use = storage_use.Recorder(trainer, data.train, settings, clock)
    about = checkpoints.About(0, None, record.workload_digest, settings.seed, global_batch, settings.learning_rate_factor)
    files = checkpoints.Checkpoints(trainer, settings, about)
    if settings.resume:
        files.resume()
        record.resumed_after_epochs = files.about.epochs
    batches, shard = None, parallelism.place(ranks.rank, ranks.size, record.data_parallel_degree)
    for epoch in range(files.about.epochs, settings.epochs):
        indices, sample_weights = sharding.training_shard(
            num_samples, global_batch, settings.last_batch, settings.seed, epoch, *shard, data.train.num_losses, data.train.streamed
        )
        batches = _Batches(data.train, indices[:num_steps], sample_weights[:num_steps], learning_rates[epoch], settings, watchdog)
        place = {"epoch_num": epoch + 1}
        use.begin_epoch()
        watchdog.begin(Place(epoch + 1, 1, num_steps))
        log.start("epoch_start", metadata=place)
        begun = clock.now()
        report = _reporter(ranks, settings, record, epoch, num_steps, clock, watchdog)
        losses, ends = _train_epoch(trainer, batches, clock, report, turns)
        trained = clock.now()
        log.end("epoch_stop", metadata=place)
        if settings.target is not None:
            _evaluate(trainer, data, settings, record, clock, watchdog, log, place)
        report(num_steps, losses[-1], shows=True)
        record.learning_rates += learning_rates[epoch].tolist()
        _record_times(record, begun, ends, trained)
        with clock.pause("checks"):
            record.losses += _mean_over_ranks(trainer, losses).tolist()
            compare_replicas(trainer, record, f"after epoch {epoch + 1}")
        ended = epoch + 1 == settings.epochs or (record.reached and settings.stop_at_target)
        if settings.checkpoint_dir:
            files.keep(epoch + 1, record.accuracy, ended)
        if ended:
            break
        turns.end()
    event_log.stop(log, "aborted")
    records.update(record, use.of_record() | files.of_record() | energy.total(trainer, joules.now()))
    _record_use(trainer, record, turns, clock)
    return batches


def _start(trainer, record, turns, log):
    """(the clock of a run, the Meter of this rank's energy), which all ranks start together."""
    joules = Meter(energy.begin(trainer.ranks, record.pids_by_rank))
    # Barrier: opening NVML delays the first rank of a node.
    trainer.sum(np.zeros(1))
    gpus.begin_memory(trainer)
    clock = Meter(time.perf_counter)
    log.end("init_stop")
    log.start("run_start")
    turns.meters += [clock, joules]
    return clock, joules


def _record_samples(record, num_samples, num_in_batches):
    """Adds to the record the samples in an epoch, from those of the data and the places in the batches of an epoch."""
    used = min(num_samples, num_in_batches)
    record.samples_per_epoch, record.samples_dropped_per_epoch = used, num_samples - used
    record.samples_padded_per_epoch = num_in_batches - used


def _record_use(trainer, record, turns, clock):
    """Adds to the record what the training has taken so far. All ranks call this, before additional steps add to it."""
    records.update(record, {name: list(values) for name in OF_A_TRAINER if (values := getattr(trainer, name, None)) is not None})
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    record.peak_memory_bytes_by_rank = by_rank(trainer, peak_bytes).astype(int).tolist()
    record.peak_memory_bytes = max(record.peak_memory_bytes_by_rank)
    record.num_turns, record.steps_per_turn, record.turns_of_others_seconds = turns.num_ended, turns.num_steps, clock.paused["turns"]
    record.check_seconds = clock.paused["checks"]
    records.update(record, gpus.memory_by_rank(trainer))


def compare_replicas(trainer, record, when):
    """Compares a digest of all parameters across ranks. Raises OutOfSync on every rank if they differ.

    Integers are equal on all ranks if and only if their sum is `size` times each rank's own value. The digest is summed as eight
    32-bit integers, which is exact in float64.
    """
    digest = weights.digest(trainer.state(with_optimizer_state=False))
    numbers = np.frombuffer(digest, np.uint32).astype(np.float64)
    differs = (trainer.sum(numbers) != trainer.ranks.size * numbers).any()
    record.in_sync = bool(trainer.sum(np.array([differs], dtype=np.float64))[0] == 0)
    record.parameter_digests.append(digest.hex())
    if not record.in_sync:
        raise OutOfSync(f"the parameters of the ranks differ {when}: the replicas are out of sync")


def _train_epoch(trainer, batches, clock, report, turns):
    """(losses, end times) of the steps on this rank."""
    losses, ends = [], []

    def observe(loss):
        losses.append(loss)
        ends.append(clock.now())
        report(len(losses), loss)
        if turns.num_steps and len(losses) % turns.num_steps == 0 and len(losses) < len(batches):
            # Converting the loss waits for the device, so the work of this turn is done within it.
            float(loss)
            turns.end()

    trainer.train_epoch(batches, observe)
    # As above: the end of the epoch, and of its last step, includes all of its work.
    numbers = np.array([float(loss) for loss in losses])
    ends[-1] = clock.now()
    return numbers, ends


def _mean_over_ranks(trainer, losses):
    """The mean of the losses of each step over the ranks that trained in it. All ranks call this."""
    trained = losses != NO_LOSS
    total, num_trained = trainer.sum(np.array([np.where(trained, losses, 0.0), trained], dtype=np.float64))
    with np.errstate(invalid="ignore"):
        return total / num_trained


def _record_times(record, begun, ends, trained):
    """Adds the times of an epoch to the record: its beginning, the ends of its steps and its own, in seconds on the clock."""
    record.step_seconds += np.diff(ends, prepend=begun).tolist()
    record.train_seconds.append(trained - begun)
    record.samples_per_second = record.samples_per_epoch * len(record.train_seconds) / sum(record.train_seconds)


def _evaluate(trainer, data, settings, record, clock, watchdog, log, place):
    """Evaluates all held-out samples over all ranks; sets the time to solution when the target is first reached.

    `place`: the epoch, as the event log has it, which ends where the target is first reached.
    """
    log.start("eval_start", metadata=place)
    begun = clock.now()
    shard = parallelism.place(trainer.ranks.rank, trainer.ranks.size, record.data_parallel_degree)
    indices, sample_weights = sharding.evaluation_shard(len(data.test), settings.evaluation_batch_size, *shard)
    batches = _Batches(data.test, indices, sample_weights, np.zeros(len(indices)), settings, watchdog)
    # Ranks that share a model evaluate the same samples, so each counts as often; or one of them has the totals, and the others zeros.
    totals = Totals(*trainer.sum(np.array(trainer.evaluate(batches), dtype=np.float64)).tolist())
    evaluated = clock.now()
    accuracy = totals.num_correct / totals.count
    log.event("eval_accuracy", accuracy, metadata=place)
    log.end("eval_stop", metadata=place)
    if accuracy >= settings.target and not record.reached:
        record.reached = True
        # The epochs before a checkpoint were on another clock.
        if not record.resumed_after_epochs:
            record.time_to_solution_seconds = evaluated
        event_log.stop(log, "success")
    record.eval_seconds.append(evaluated - begun)
    record.eval_losses.append(totals.loss / totals.count)
    record.accuracies.append(accuracy)
    record.accuracy = accuracy


@dataclass(frozen=True)
class _Batches:
    """The batches of an epoch, created on demand."""

    samples: Samples
    indices: np.ndarray
    sample_weights: np.ndarray
    learning_rates: np.ndarray
    settings: Settings
    watchdog: Watchdog

    def __len__(self):
        return len(self.indices)

    def __iter__(self):
        precision = self.settings.precision
        input_type = families.input_type(workloads.workload_of(self.settings).model, precision)
        of_steps = zip(self.samples.batches(self.indices), self.sample_weights, self.learning_rates, strict=True)
        for (inputs, picked), weight, learning_rate in of_steps:
            self.watchdog.heartbeat()
            counts = counted(picked)
            # The sample's weight; 0 for a target that does not count.
            loss_weights = (counts * weight.reshape(-1, *[1] * (counts.ndim - 1))).astype(weights.DTYPES[precision])
            targets = picked.astype(np.int64) if np.issubdtype(picked.dtype, np.integer) else picked
            yield Batch(inputs.astype(input_type, copy=False), np.maximum(targets, 0), loss_weights, float(learning_rate))


def _zeros(model, batch_size, precision):
    """A batch of zeros with the shapes and types of real batches."""
    inputs = np.zeros((batch_size, *model.input_shape), families.input_type(model, precision))
    targets = np.zeros((batch_size, *model.target_shape), np.int64 if model.whole_targets else weights.DTYPES[precision])
    counts = counted(targets)
    return Batch(inputs, targets, (counts / counts.size).astype(weights.DTYPES[precision]))


def _reading(ranks, watchdog):
    """The on_progress of common/data/datasets.py: a heartbeat, and on rank 0 lines with the progress."""
    show = reading(functools.partial(print, flush=True) if ranks.rank == 0 else lambda _: None)

    def on_progress(*done_of_all):
        watchdog.heartbeat()
        show(*done_of_all)

    return on_progress


def _reporter(ranks, settings, record, epoch, num_steps, clock, watchdog):
    """A function of (step, loss): updates the watchdog and, on rank 0, prints the progress, at most once per second unless `shows`."""
    printed = -math.inf

    def report(step, loss, shows=False):
        nonlocal printed
        watchdog.begin(Place(epoch + 1, step + 1, num_steps))
        now = clock.now()
        if ranks.rank == 0 and (shows or now - printed >= PROGRESS_INTERVAL_SECONDS):
            printed = now
            print(format_line(Progress(epoch + 1, settings.epochs, step, num_steps, float(loss), record.accuracy, now)), flush=True)

    return report
