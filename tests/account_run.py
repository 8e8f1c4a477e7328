"""Measures the account of a backend, and what its ranks exchange meanwhile: python -m tests.account_run FOLDER BACKEND [arguments].

Each rank writes FOLDER/RANK.json: the `account`; what is Observed while it trains as always (`together`) and `alone`; and whether the
ranks have the same parameters after steps alone (`in_sync`).
"""

import contextlib
import importlib
import json
import math
import sys
from pathlib import Path

import numpy as np

from common import account, config, loop, program, weights, workloads
from common.ranks import from_environment
from common.trainer import Batch

NUM_STEPS = 4


def main():
    folder, name, *arguments = sys.argv[1:]
    sys.argv[1:] = arguments
    ranks = from_environment()
    settings = workloads.resolve(config.parse(config.Settings, name, ""), ranks.size)
    backend = importlib.import_module(f"frameworks.{name}")
    trainer = backend.Trainer(settings)
    record = {"oversubscribed": False, "parameter_digests": []}
    loop.prepare(trainer, settings, record)
    batches = own_batches(settings, ranks)
    found = {"account": account.measure(trainer, batches, NUM_STEPS, account.gradient_bytes(settings))}
    trainer.restore(weights.draw(workloads.workload_of(settings).parameters, settings.seed, settings.precision))
    communication = trainer.communication()

    def train():
        trainer.train_epoch(account.First(batches, NUM_STEPS), float)

    found["together"] = communication.observed(train)._asdict()
    loop.compare_replicas(trainer, record, "together")
    with communication.alone():
        found["alone"] = communication.observed(train)._asdict()
    with contextlib.suppress(loop.OutOfSync):
        loop.compare_replicas(trainer, record, "alone")
    found["in_sync"] = record["in_sync"]
    Path(folder, f"{ranks.rank}.json").write_text(json.dumps(found))
    trainer.sum(np.zeros(1))
    trainer.close()
    program.leave(0)


def own_batches(settings, ranks):
    """Batches of random samples, others on each rank."""
    model, size = workloads.workload_of(settings).model, workloads.local_batch(settings, ranks.size)
    stream, real = np.random.default_rng(ranks.rank), weights.DTYPES[settings.precision]

    def drawn(shape, whole):
        return stream.integers(0, 10, (size, *shape)) if whole else stream.random((size, *shape)).astype(real)

    each = np.full((size, *model.target_shape), 1 / (size * math.prod(model.target_shape)), real)
    return [
        Batch(drawn(model.input_shape, model.whole_inputs), drawn(model.target_shape, model.whole_targets), each, 0.01)
        for _ in range(NUM_STEPS)
    ]


if __name__ == "__main__":
    main()
