"""Measures the step breakdown of a backend, and what its ranks exchange meanwhile.

python -m tests.support.step_breakdown_run FOLDER BACKEND [arguments]

Each rank writes FOLDER/RANK.json: the `step_breakdown`; its `losses` in such steps with communication and without; whether the
parameters are the same to the bit afterwards (`unchanged`); the ProfiledCommunication of steps that train `with_communication` and
`without_communication`; and whether the ranks have the same parameters after the latter (`in_sync`).
"""

import contextlib
import importlib
import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from common import command_line, config, workloads
from common.cost import parallelism
from common.model import weights
from common.process import ending
from common.process.ranks import from_environment
from common.trainer import Batch
from common.training import loop, step_breakdown

NUM_STEPS = 4


def main():
    folder, name, *arguments = sys.argv[1:]
    sys.argv[1:] = arguments
    ranks = from_environment()
    given = command_line.parse(config.Settings, name, "")
    degree = parallelism.degree(name, given, ranks.size)
    settings = workloads.resolve(given, degree)
    backend = importlib.import_module(f"frameworks.{name}")
    trainer = backend.Trainer(settings)
    record = SimpleNamespace(oversubscribed=False, parameter_digests=[], data_parallel_degree=degree)
    loop.prepare(trainer, settings, record)
    batches = own_batches(settings, parallelism.place(ranks.rank, ranks.size, degree))
    # From parameters that have been trained.
    trainer.train_epoch(batches, float)
    before = weights.digest(trainer.state(with_optimizer_state=False))
    found = {"step_breakdown": step_breakdown.measure(trainer, batches, NUM_STEPS, workloads.gradient_bytes(settings))}
    communication = trainer.communication()
    found["losses"] = []
    for context in (contextlib.nullcontext, communication.without_communication):
        with context():
            losses = []
            trainer.train_epoch(step_breakdown.First(batches, NUM_STEPS), losses.append)
            found["losses"].append(list(map(float, losses)))
    found["unchanged"] = weights.digest(trainer.state(with_optimizer_state=False)) == before
    trainer.restore(weights.draw(workloads.workload_of(settings).parameters, settings.seed, settings.precision))

    def train():
        trainer.train_epoch(batches, float)

    found["with_communication"] = communication.profiled(train)._asdict()
    loop.compare_replicas(trainer, record, "with communication")
    with communication.without_communication():
        found["without_communication"] = communication.profiled(train)._asdict()
    with contextlib.suppress(loop.OutOfSync):
        loop.compare_replicas(trainer, record, "without communication")
    found["in_sync"] = record.in_sync
    Path(folder, f"{ranks.rank}.json").write_text(json.dumps(found))
    trainer.sum(np.zeros(1))
    trainer.close()
    ending.leave(0)


def own_batches(settings, place):
    """Batches of random samples, others in each shard."""
    model, size = workloads.workload_of(settings).model, workloads.local_batch(settings, place.degree)
    stream, real = np.random.default_rng(place.index), weights.DTYPES[settings.precision]

    def drawn(shape, whole):
        return stream.integers(0, 10, (size, *shape)) if whole else stream.random((size, *shape)).astype(real)

    each = np.full((size, *model.target_shape), 1 / (size * math.prod(model.target_shape)), real)
    return [
        Batch(drawn(model.input_shape, model.whole_inputs), drawn(model.target_shape, model.whole_targets), each, 0.01)
        for _ in range(NUM_STEPS)
    ]


if __name__ == "__main__":
    main()
