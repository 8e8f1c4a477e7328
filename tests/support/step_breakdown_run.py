"""What is measured in a run in the place of its step breakdown (tests/support/fault_injection.py), and batches of random samples."""

import contextlib
import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

from common import workloads
from common.cost import parallelism
from common.model import weights
from common.training import checks, step_breakdown
from common.training.checks import OutOfSync
from tests.support.small_models import random_batch

NUM_STEPS = 2


def write(trainer, _batches, record, _end_turn):
    """Each rank writes RUN-RANK.json into the folder of the records, after a training.

    It has the `step_breakdown`; the `losses` in such steps with
    communication and without; whether the parameters are the same to the bit afterwards (`unchanged`); the ProfiledCommunication of
    steps that train `with_communication` and `without_communication`; and whether the ranks have the same parameters after the latter
    (`in_sync`).
    """
    settings, ranks = record.settings, trainer.ranks
    shard = parallelism.shard_of(ranks.rank, ranks.size, record.data_parallel_degree)
    # Others in each shard.
    batches = random_batches(settings, record.local_batch, 10 * shard.number)
    before = weights.digest(trainer.state(with_optimizer_state=False))
    breakdown = step_breakdown.measure(trainer, batches, NUM_STEPS)
    measured = {"step_breakdown": dataclasses.asdict(breakdown), "losses": []}
    communication = trainer.communication()
    for context in (contextlib.nullcontext, communication.without_communication):
        with context():
            losses = []
            trainer.train_epoch(step_breakdown.First(batches, NUM_STEPS), losses.append)
            measured["losses"].append(list(map(float, losses)))
    measured["unchanged"] = weights.digest(trainer.state(with_optimizer_state=False)) == before
    trainer.restore(weights.draw(workloads.workload_of(settings).parameters, settings.seed, settings.precision))
    replicas = SimpleNamespace(parameter_digests=[])

    def train():
        trainer.train_epoch(batches, float)

    measured["with_communication"] = communication.profiled(train)._asdict()
    checks.compare_replicas(trainer, replicas, "with communication")
    with communication.without_communication():
        measured["without_communication"] = communication.profiled(train)._asdict()
    with contextlib.suppress(OutOfSync):
        checks.compare_replicas(trainer, replicas, "without communication")
    measured["in_sync"] = replicas.in_sync
    Path(settings.results, f"{settings.run_id}-{ranks.rank}.json").write_text(json.dumps(measured))


def random_batches(settings, batch_size, seed=0):
    """Batches of random samples."""
    model = workloads.workload_of(settings).model
    return [random_batch(model, batch_size, settings.precision, seed + step)._replace(learning_rate=0.01) for step in range(NUM_STEPS)]
