"""The training loop and its clock, the same for every backend's Trainer."""

import functools
import hashlib
import json
import math
import os
import resource
import time
from dataclasses import dataclass

import numpy as np

from common import config, workloads
from common.config import Settings
from common.cost import parallelism
from common.data import sharding, storage_use
from common.data.samples import Dataset, Samples, counted
from common.errors import Diverged
from common.meter import Meter
from common.model import families, schedules, weights
from common.process import energy, gpus
from common.process.turns import Turns
from common.process.watchdog import Place, Watchdog
from common.progress import Progress, format_line, reading
from common.record import records
from common.record.definition import Record
from common.trainer import NO_LOSS, POINTS, Batch, Totals, by_rank
from common.training import agreement, checkpoints

PROGRESS_INTERVAL_SECONDS = 1.0
# DDP rebuilds its buckets in the second step, and the last one shows how long a step takes.
NUM_WARMUP_STEPS = 3
# Keys of the record that only some backends measure, by attributes of their Trainers.
OF_A_TRAINER = ("staleness", "left_out")
# Settings that ranks may have different values of, such as folders and names.
OF_A_NODE = {*config.with_role(config.Role.MAY_DIFFER), "checkpoint_dir"} - {*config.TRAINING_SETTINGS}
REMEDY = "lower --learning-rate, or give more --warmup-epochs"


def prepare(trainer, settings, record, heartbeat=lambda: None):
    """Warms the trainer up and sets the initial parameters, which must be the same on all ranks. Returns the Turns of the run.

    Every step is a heartbeat: a large model takes minutes for all of them.
    """
    expect_same_settings(trainer, settings)
    if not settings.share_gpu:
        gpus.expect_own(trainer)
    gpus.expect_precision(settings.precision, trainer.describe_device())
    workload = workloads.workload_of(settings)
    # Steps and evaluation on zeros: compilation, first allocations and buckets belong to initialization, not to training.
    zeros = _zeros(workload.model, record.local_batch, settings.precision)
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
    record.num_nodes = int(by_rank(trainer, trainer.ranks.local_rank == 0).sum())
    record.pids_by_rank = by_rank(trainer, os.getpid()).astype(int).tolist()
    return Turns(trainer, np.diff(ends)[-1], record.pids_by_rank)


def train(trainer, settings, load, record, workload_digest, watchdog, turns):
    """Trains until the target is reached or all epochs are done; writes every result into the record as soon as it is known.

    The clock starts before the data is read. Loading, training and evaluation are on it; it is stopped only for the turns of other
    runs and for the comparison of replicas, which only Tandem makes. The time to solution ends with the evaluation that first
    reaches the target. `load(on_progress)` reads the data; `workload_digest(data)` is its digest; every step is a heartbeat of
    `watchdog`.

    Returns the batches of the last epoch, for measurements after training, or None if no epoch was trained.
    """
    ranks = trainer.ranks
    clock, joules = _start(trainer, record, turns)
    watchdog.heartbeat()
    data = _load(trainer, load, record, clock, watchdog)
    num_samples, global_batch = len(data.train), record.global_batch
    num_steps = workloads.num_steps(settings, num_samples, global_batch)
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
        _resume(trainer, files, record, clock)
    batches, place = None, parallelism.place(ranks.rank, ranks.size, record.data_parallel_degree)
    for epoch in range(files.about.epochs, settings.epochs):
        order = sharding.Epoch(num_samples, global_batch, settings.last_batch, settings.seed, epoch, data.train.streamed)
        indices, sample_weights = sharding.training_shard(order, place, data.train.num_losses)
        batches = _Batches(data.train, indices[:num_steps], sample_weights[:num_steps], learning_rates[epoch], settings, watchdog)
        use.begin_epoch()
        watchdog.begin(Place(epoch + 1, 1, num_steps))
        begun = clock.now()
        report = _reporter(ranks, settings, record, epoch, num_steps, clock, watchdog)
        losses, ends = _train_epoch(trainer, batches, clock, report, turns)
        trained = clock.now()
        if settings.target is not None:
            _evaluate(trainer, data, settings, record, clock, watchdog)
        report(num_steps, losses[-1], shows=True)
        record.learning_rates += learning_rates[epoch].tolist()
        _record_times(record, begun, ends, trained)
        with clock.pause("checks"):
            _check(trainer, losses, record, epoch)
        ended = epoch + 1 == settings.epochs or (record.reached and settings.stop_at_target)
        if settings.checkpoint_dir:
            files.keep(epoch + 1, record.accuracy, ended)
        if ended:
            break
        turns.end()
    records.update(record, use.of_record() | files.of_record() | energy.total(trainer, joules.now()))
    _record_use(trainer, record, turns, clock)
    return batches


def _start(trainer, record, turns):
    """(the clock of a run, the Meter of this rank's energy), which all ranks start together."""
    joules = Meter(energy.begin(trainer.ranks, record.pids_by_rank))
    # Barrier: opening NVML delays the first rank of a node.
    trainer.sum(np.zeros(1))
    gpus.begin_memory(trainer)
    clock = Meter(time.perf_counter)
    turns.meters += [clock, joules]
    return clock, joules


def _load(trainer, load, record, clock, watchdog):
    """Reads the data, of which all ranks must have the same."""
    data = load(_reading(trainer.ranks, watchdog))
    record.load_seconds = clock.now()
    # Barrier: waiting for a rank that reads longer is on the clock.
    trainer.sum(np.zeros(1))
    with clock.pause("checks"):
        expect_same_data(trainer, data)
    return data


def _resume(trainer, files, record, clock):
    """Resumes from a checkpoint, if there is one; all ranks must have the same."""
    files.resume()
    record.resumed_after_epochs = files.about.epochs
    with clock.pause("checks"):
        expect_same_checkpoint(trainer, files.about)


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


def _check(trainer, losses, record, epoch):
    """Checks the losses and parameters of an epoch. Raises Diverged and OutOfSync on every rank."""
    try:
        expect_finite(trainer, losses, record, epoch)
        compare_replicas(trainer, record, f"after epoch {epoch + 1}")
    except Diverged:
        # What predicts by NaN has not reached a target, and its speed is that of no training.
        record.reached = None if record.target is None else False
        record.time_to_solution_seconds = record.samples_per_second = None
        raise


def compare_replicas(trainer, record, when):
    """Compares a digest of all parameters across ranks. Raises OutOfSync on every rank if they differ, Diverged if one is not finite."""
    state = trainer.state(with_optimizer_state=False)
    digest = weights.digest(state)
    differs, diverged = agreement.differs(trainer, digest, (not all(map(_is_finite, state.values())),))
    # NaN has many bit patterns, so that replicas which have diverged may differ.
    if diverged:
        raise Diverged(f"the parameters are not finite {when}, though the losses are; {REMEDY}")
    record.in_sync = not differs
    record.parameter_digests.append(digest.hex())
    if differs:
        agreement.expect_same(trainer, digest, f"have different parameters {when}", "the replicas are out of sync")


def _is_finite(values: np.ndarray) -> bool:
    # Minimum and maximum are NaN where a value is, and take no memory.
    return bool(np.isfinite([values.min(), values.max()]).all())


def expect_same_settings(trainer, settings: Settings) -> None:
    """Raises OutOfSync on every rank if the ranks train with different settings, as those that were started by hand may do."""
    compared = {name: value for name, value in config.as_json(settings).items() if name not in OF_A_NODE}
    agreement.expect_same(trainer, _digest(compared), "have different settings", "start all ranks with the same command")


def expect_same_data(trainer, data: Dataset) -> None:
    """Raises OutOfSync on every rank if the ranks have read different data."""
    agreement.expect_same(trainer, _digest(data.digest), "have read different data", "give every node the same files in --data-dir")


def expect_same_checkpoint(trainer, about: checkpoints.About) -> None:
    """Raises OutOfSync on every rank if the ranks resume after different epochs."""
    agreement.expect_same(trainer, _digest(about), "resume from different checkpoints", "give a --checkpoint-dir that all nodes share")


def _digest(value) -> bytes:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).digest()


def expect_finite(trainer, losses: np.ndarray, record: Record, epoch: int) -> None:
    """Adds the losses of an epoch to the record. Raises Diverged on every rank if one is not finite, or that of the evaluation.

    Sums over the ranks have what is not finite on any of them.
    """
    mean, has_trained = _mean_over_ranks(trainer, losses)
    record.losses += mean.tolist()
    wrong = np.flatnonzero(~np.isfinite(mean) & has_trained)
    if len(wrong):
        step = wrong[0]
        raise Diverged(f"the loss of step {step + 1} of epoch {epoch + 1} is {mean[step]}, the first that is not finite; {REMEDY}")
    if record.eval_losses and not math.isfinite(record.eval_losses[-1]):
        raise Diverged(f"the loss of the evaluation after epoch {epoch + 1} is {record.eval_losses[-1]}; {REMEDY}")


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
    """(the mean of the losses of each step over the ranks that trained in it, whether there is one). All ranks call this."""
    trained = losses != NO_LOSS
    total, num_trained = trainer.sum(np.array([np.where(trained, losses, 0.0), trained], dtype=np.float64))
    with np.errstate(invalid="ignore"):
        return total / num_trained, num_trained > 0


def _record_times(record, begun, ends, trained):
    """Adds the times of an epoch to the record: its beginning, the ends of its steps and its own, in seconds on the clock."""
    record.step_seconds += np.diff(ends, prepend=begun).tolist()
    record.train_seconds.append(trained - begun)
    record.samples_per_second = record.samples_per_epoch * len(record.train_seconds) / sum(record.train_seconds)


def _evaluate(trainer, data, settings, record, clock, watchdog):
    """Evaluates all held-out samples over all ranks; sets the time to solution when the target is first reached."""
    begun = clock.now()
    place = parallelism.place(trainer.ranks.rank, trainer.ranks.size, record.data_parallel_degree)
    indices, sample_weights = sharding.evaluation_shard(len(data.test), settings.evaluation_batch_size, place)
    batches = _Batches(data.test, indices, sample_weights, np.zeros(len(indices)), settings, watchdog)
    # Ranks that share a model evaluate the same samples, so each counts as often; or one of them has the totals, and the others zeros.
    totals = Totals(*trainer.sum(np.array(trainer.evaluate(batches), dtype=np.float64)).tolist())
    evaluated = clock.now()
    accuracy = totals.num_correct / totals.num_losses
    # NaN has predictions too.
    if accuracy >= settings.target and not record.reached and math.isfinite(totals.loss):
        record.reached = True
        # The epochs before a checkpoint were on another clock.
        if not record.resumed_after_epochs:
            record.time_to_solution_seconds = evaluated
    record.eval_seconds.append(evaluated - begun)
    record.eval_losses.append(totals.loss / totals.num_losses)
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
