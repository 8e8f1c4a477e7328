"""Runs a backend broken on purpose: python -m tests.sabotage BACKEND SABOTAGE PARAMETERS.npz [the backend's arguments].

The sabotages are what fair comparison has to catch. `none` breaks nothing. Rank 0 saves the final parameters.
"""

import importlib
import sys

import numpy as np

from common import sharding, weights
from common.program import main
from common.ranks import from_environment


def no_all_reduce(backend):
    """Every rank trains alone."""
    if hasattr(backend, "DistributedDataParallel"):
        backend.DistributedDataParallel = lambda net: net
    elif hasattr(backend.hvd, "DistributedGradientTape"):
        backend.hvd.DistributedGradientTape = lambda tape, op: tape
    else:
        backend.hvd.DistributedOptimizer = lambda optimizer, *_, **__: optimizer


def summed_gradients(backend):
    """Gradients are added up over the ranks and not divided by their number."""
    if hasattr(backend, "DistributedDataParallel"):
        wrap = backend.DistributedDataParallel

        def wrapped(net):
            model = wrap(net)
            model.register_comm_hook(None, lambda _, bucket: _all_reduced(backend, bucket))
            return model

        backend.DistributedDataParallel = wrapped
    elif hasattr(backend.hvd, "DistributedGradientTape"):
        tape_of = backend.hvd.DistributedGradientTape
        backend.hvd.DistributedGradientTape = lambda tape, op: tape_of(tape, op=backend.hvd.Sum)
    else:
        distributed = backend.hvd.DistributedOptimizer
        backend.hvd.DistributedOptimizer = lambda optimizer, names, op: distributed(optimizer, names, op=backend.hvd.Sum)


def _all_reduced(backend, bucket):
    return backend.dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0])


def same_shard(_):
    """Every rank reads the shard of rank 0."""
    own = sharding.training_shard
    sharding.training_shard = lambda *arguments: own(*arguments[:5], 0, arguments[6])


def unlike_start(_):
    """Every rank starts from parameters of its own."""
    own = weights.draw
    weights.draw = lambda parameters, seed, precision: own(parameters, seed + from_environment().rank, precision)


def none(_):
    """Nothing is broken."""


def saving(trainer_class, path):
    """The class with a `close` that saves the parameters first."""
    close = trainer_class.close

    def save_and_close(self):
        state = self.state()
        if self.ranks.rank == 0:
            np.savez(path, **{name: value for name, value in state.items() if "/" not in name})
        close(self)

    trainer_class.close = save_and_close
    return trainer_class


if __name__ == "__main__":
    name, sabotage, parameters_path = sys.argv[1:4]
    del sys.argv[1:4]
    module = importlib.import_module(f"frameworks.{name}")
    globals()[sabotage](module)
    main(saving(module.Trainer, parameters_path), module.__file__)
