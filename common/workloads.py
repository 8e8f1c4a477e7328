"""What is trained: the shapes of each model, its hyperparameters and its target."""

import dataclasses
import hashlib
import json
from typing import NamedTuple

from common.config import MATHEMATICS, as_json, check
from common.errors import UserError
from common.sharding import local_batch_of


class Workload(NamedTuple):
    """A model and how it is trained unless the settings say otherwise. Shapes as PyTorch has them: OIHW, (out, in)."""

    parameters: dict[str, tuple[int, ...]]
    input_shape: tuple[int, ...]
    num_classes: int
    dataset: str
    batch_size: int
    epochs: int
    target: float
    learning_rates: dict[str, float]


# The CNN of ALCF's tutorials, which is that of Horovod's and PyTorch's MNIST examples: 1,199,882 parameters.
CNN = Workload(
    parameters={
        "conv1.weight": (32, 1, 3, 3),
        "conv1.bias": (32,),
        "conv2.weight": (64, 32, 3, 3),
        "conv2.bias": (64,),
        "dense1.weight": (128, 64 * 12 * 12),
        "dense1.bias": (128,),
        "dense2.weight": (10, 128),
        "dense2.bias": (10,),
    },
    input_shape=(28, 28),
    num_classes=10,
    dataset="digits",
    batch_size=32,
    epochs=16,
    target=0.97,
    learning_rates={"sgd": 0.01, "adam": 0.001},
)

WORKLOADS = {"cnn": CNN}

# Where two frameworks have unlike defaults, what all backends here do: Adam's epsilon stands outside the square root
# (Kingma and Ba 2015, arXiv:1412.6980, algorithm 1), and all optimizer state starts at 0.
ADAM_BETAS = (0.9, 0.999)
ADAM_EPSILON = 1e-8
CNN_DROPOUT = (0.25, 0.5)


def workload_of(settings):
    if settings.workload not in WORKLOADS:
        raise UserError(f"there is no workload {settings.workload!r}; choose from: {', '.join(WORKLOADS)}")
    return WORKLOADS[settings.workload]


def resolve(settings, num_ranks):
    """The settings with every None filled in from the workload and the number of ranks. Raises UserError for what cannot be."""
    check(settings)
    workload = workload_of(settings)
    own = {
        "dataset": workload.dataset,
        "batch_size": workload.batch_size,
        "epochs": workload.epochs,
        "target": workload.target,
        "learning_rate": workload.learning_rates[settings.optimizer],
        "rate_factor": float(num_ranks) if settings.scaling == "weak" else 1.0,
    }
    resolved = dataclasses.replace(settings, **{name: value for name, value in own.items() if getattr(settings, name) is None})
    local_batch(resolved, num_ranks)
    return resolved


def global_batch(settings, num_ranks):
    return settings.batch_size * (num_ranks if settings.scaling == "weak" else 1)


def local_batch(settings, num_ranks):
    """Samples of one rank at each step. Raises UserError where the ranks cannot have equally many."""
    return local_batch_of(global_batch(settings, num_ranks), num_ranks)


def digest(settings, data_digest):
    """SHA-256 of what is trained: model, data, target, optimizer, batch, precision. Equal for all ranks, sizes and backends.

    `settings` are those the user gave, before `resolve`, where the rate factor may follow from the number of ranks.
    """
    workload = workload_of(settings)
    factor = settings.rate_factor
    resolved = dataclasses.replace(resolve(settings, 1), rate_factor=factor)
    counted = MATHEMATICS if settings.schedule == "constant" else (*MATHEMATICS, "epochs")
    spec = {name: value for name, value in as_json(resolved).items() if name in counted}
    spec |= {"parameters": workload.parameters, "data": data_digest}
    return hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()
