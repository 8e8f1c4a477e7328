"""The one training loop and the one stopwatch; drives any backend's Trainer and never asks which one it has."""

import math
import os
import resource
import time
from dataclasses import dataclass

import numpy as np

from common import energy, schedules, sharding, snapshots, weights, workloads
from common.datasets import counted
from common.progress import Progress, format_line
from common.stalls import Watch
from common.trainer import Batch, Totals, by_rank

PROGRESS_INTERVAL_SECONDS = 1.0


class OutOfSync(Exception):
    """The replicas of the parameters differ between ranks."""


def prepare(trainer, settings, record):
    """Gets a trainer ready for the clock: warmed up, at the initial parameters, the same ones on every rank."""
    workload = workloads.workload_of(settings)
    # One step and some evaluation on made-up samples: compiling and first allocations belong to the start, not to training.
    trainer.train_epoch([_made_up(workload.model, workloads.local_batch(settings, trainer.ranks.size), settings.precision)], float)
    if workload.target is not None:
        # Of two sizes: what TensorFlow has traced for them holds for the size that the shards of an evaluation have.
        sizes = (settings.evaluation_batch_size, settings.evaluation_batch_size + 1)
        trainer.evaluate([_made_up(workload.model, size, settings.precision) for size in sizes])
    trainer.restore(weights.draw(workload.parameters, settings.seed, settings.precision))
    compare_replicas(trainer, record, "before training")
    crowded, nodes = trainer.sum(np.array([record["oversubscribed"], trainer.ranks.local_rank == 0], dtype=np.float64))
    record["oversubscribed"], record["nodes"] = bool(crowded), int(nodes)
    record["pids_by_rank"] = by_rank(trainer, os.getpid()).astype(int).tolist()


def train(trainer, settings, load, record, workload_digest, watch):
    """Trains until the target is met or the epochs are over; every number goes into the record as soon as it is known.

    The clock starts before the data is touched and is never stopped: loading, training, evaluation and the comparison
    of replicas are on it. The time to solution is read at the end of the evaluation that first meets the target.
    `load` reads the data; `workload_digest` gives the digest for it; the stalls.Watch is told of every step. Returns the batches of the
    last epoch, with which more steps may be looked at; None where a snapshot left nothing to train.
    """
    ranks = trainer.ranks
    joules = energy.begin(ranks, record["pids_by_rank"])
    # The barrier from which all ranks start their clocks: to open NVML takes the first rank of a node a while.
    trainer.sum(np.zeros(1))
    started = time.perf_counter()
    watch.goes_on()
    data = load()
    record["load_seconds"] = time.perf_counter() - started
    num_samples, global_batch = len(data.train_inputs), workloads.global_batch(settings, ranks.size)
    num_steps = sharding.num_steps(num_samples, global_batch, settings.last_batch)
    rates = schedules.learning_rates(
        settings.learning_rate, settings.rate_factor, settings.warmup_epochs, settings.schedule, settings.epochs, num_steps
    )
    used = min(num_steps * global_batch, num_samples)
    record["samples_per_epoch"] = used
    record["samples_dropped_per_epoch"] = num_samples - used
    record["samples_padded_per_epoch"] = num_steps * global_batch - used
    record["workload_digest"] = workload_digest(data)
    # Without a target there is nothing to reach, and no accuracy to evaluate.
    record["reached"] = None if settings.target is None else False
    counts = counted(data.train_targets).reshape(num_samples, -1).sum(axis=1)
    about = snapshots.About(0, None, record["workload_digest"], settings.seed, global_batch, settings.rate_factor)
    if settings.resume:
        about = snapshots.resume(trainer, settings, about)
        record["resumed_after_epochs"] = about.epochs
    batches = None
    for epoch in range(about.epochs, settings.epochs):
        indices, sample_weights = sharding.training_shard(
            num_samples, global_batch, settings.last_batch, settings.seed, epoch, ranks.rank, ranks.size, counts
        )
        batches = _Batches(data.train_inputs, data.train_targets, indices, sample_weights, rates[epoch], settings.precision, watch)
        watch.at(epoch + 1, 1, num_steps)
        begun = time.perf_counter()
        losses, ends = _train_epoch(trainer, batches, _reporter(ranks, settings, record, epoch, num_steps, started, watch))
        trained = time.perf_counter()
        if settings.target is not None:
            _evaluate(trainer, data, settings, record, started, watch)
        record["losses"] += (trainer.sum(losses) / ranks.size).tolist()
        record["learning_rates"] += rates[epoch].tolist()
        record["step_seconds"] += np.diff(ends, prepend=begun).tolist()
        record["train_seconds"].append(trained - begun)
        record["samples_per_second"] = used * len(record["train_seconds"]) / sum(record["train_seconds"])
        if ranks.rank == 0:
            elapsed_seconds = time.perf_counter() - started
            done = Progress(epoch + 1, settings.epochs, num_steps, num_steps, losses[-1], record["accuracy"], elapsed_seconds)
            print(format_line(done), flush=True)
        compare_replicas(trainer, record, f"after epoch {epoch + 1}")
        ended = epoch + 1 == settings.epochs or (record["reached"] and settings.stop_at_target)
        if settings.snapshot_dir:
            about = snapshots.keep(trainer, settings, about._replace(epochs=epoch + 1), record["accuracy"], ended)
        if ended:
            break
    record |= energy.total(trainer, joules)
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    record["peak_memory_bytes_by_rank"] = by_rank(trainer, peak_bytes).astype(int).tolist()
    record["peak_memory_bytes"] = max(record["peak_memory_bytes_by_rank"])
    return batches


def compare_replicas(trainer, record, when):
    """Compares a digest of all parameters over the ranks. Raises OutOfSync, on every rank, where they differ.

    The sum of equal whole numbers is their multiple, and where it is each rank's own multiple they are equal; both are
    exact in float64, since a digest travels as eight numbers of 32 bits.
    """
    digest = weights.digest(trainer.state(with_slots=False))
    numbers = np.frombuffer(digest, np.uint32).astype(np.float64)
    differs = (trainer.sum(numbers) != trainer.ranks.size * numbers).any()
    record["in_sync"] = bool(trainer.sum(np.array([differs], dtype=np.float64))[0] == 0)
    record["parameter_digests"].append(digest.hex())
    if not record["in_sync"]:
        raise OutOfSync(f"the parameters of the ranks differ {when}: this backend did not train one model")


def _train_epoch(trainer, batches, report):
    """This rank's loss of each step, and when each step ended."""
    losses, ends = [], []

    def observe(loss):
        losses.append(loss)
        ends.append(time.perf_counter())
        report(len(losses), loss)

    trainer.train_epoch(batches, observe)
    # A loss that is still being computed on a device becomes a number here, so the epoch, and its last step, end when its work has ended.
    numbers = np.array([float(loss) for loss in losses])
    ends[-1] = time.perf_counter()
    return numbers, ends


def _evaluate(trainer, data, settings, record, started, watch):
    """Evaluates on all held-out samples, over all ranks, and stops the clock where that meets the target for the first time."""
    begun = time.perf_counter()
    ranks = trainer.ranks
    indices, sample_weights = sharding.evaluation_shard(len(data.test_inputs), settings.evaluation_batch_size, ranks.rank, ranks.size)
    batches = _Batches(data.test_inputs, data.test_targets, indices, sample_weights, np.zeros(len(indices)), settings.precision, watch)
    totals = Totals(*trainer.sum(np.array(trainer.evaluate(batches), dtype=np.float64)).tolist())
    evaluated = time.perf_counter()
    accuracy = totals.num_correct / totals.count
    if accuracy >= settings.target and not record["reached"]:
        record["reached"] = True
        # What was trained before a snapshot was on another clock.
        if not record["resumed_after_epochs"]:
            record["time_to_solution_seconds"] = evaluated - started
    record["eval_seconds"].append(evaluated - begun)
    record["eval_losses"].append(totals.loss / totals.count)
    record["accuracies"].append(accuracy)
    record["accuracy"] = accuracy


@dataclass(frozen=True)
class _Batches:
    """The batches of an epoch, each made when it is asked for, and their number."""

    inputs: np.ndarray
    targets: np.ndarray
    indices: np.ndarray
    sample_weights: np.ndarray
    rates: np.ndarray
    precision: str
    watch: Watch

    def __len__(self):
        return len(self.indices)

    def __iter__(self):
        for mine, weight, rate in zip(self.indices, self.sample_weights, self.rates, strict=True):
            self.watch.goes_on()
            picked = self.targets[mine]
            counts = counted(picked)
            # The weight of its sample, or 0 where a target does not count.
            loss_weights = (counts * weight.reshape(-1, *[1] * (counts.ndim - 1))).astype(weights.DTYPES[self.precision])
            yield Batch(_widened(self.inputs[mine]), np.maximum(_widened(picked), 0), loss_weights, float(rate))


def _widened(array):
    """Whole numbers, kept small in memory, as all frameworks take them."""
    return array.astype(np.int64) if np.issubdtype(array.dtype, np.integer) else array


def _made_up(model, batch_size, precision):
    """A batch of samples of zeros in the shapes and types of a model's real ones."""
    kinds = {True: np.int64, False: weights.DTYPES[precision]}
    inputs = np.zeros((batch_size, *model.input_shape), kinds[model.whole_inputs])
    targets = np.zeros((batch_size, *model.target_shape), kinds[model.whole_targets])
    counts = counted(targets)
    return Batch(inputs, targets, (counts / counts.size).astype(weights.DTYPES[precision]))


def _reporter(ranks, settings, record, epoch, num_steps, started, watch):
    """A function of (step, loss) that tells the watch and prints, on rank 0, at once and then each second, how far the run is."""
    told = -math.inf

    def report(step, loss):
        nonlocal told
        watch.at(epoch + 1, step + 1, num_steps)
        now = time.perf_counter()
        if ranks.rank == 0 and now - told >= PROGRESS_INTERVAL_SECONDS:
            told = now
            print(
                format_line(Progress(epoch + 1, settings.epochs, step, num_steps, float(loss), record["accuracy"], now - started)),
                flush=True,
            )

    return report
