"""The workloads: model, data, hyperparameters and target."""

import dataclasses
import hashlib
import json
from typing import NamedTuple

from common.config import TRAINING_SETTINGS, as_json, check
from common.conventions import CONVENTIONS
from common.data import sharding, tokens
from common.data.sharding import local_batch_of
from common.errors import UserError
from common.models import Cnn, Decoder, EncoderDecoder, ResNet50, parameters_of


class Workload(NamedTuple):
    """A model and the default settings to train it.

    The first of `datasets` is the default. A workload with `target` None is for throughput only: it has no accuracy and no time
    to solution.
    """

    model: Cnn | Decoder | EncoderDecoder | ResNet50
    datasets: tuple[str, ...]
    batch_size: int
    evaluation_batch_size: int
    epochs: int
    target: float | None
    optimizer: str
    learning_rates: dict[str, float]

    @property
    def parameters(self):
        return parameters_of(self.model)


TEXTS = ("pydoc", "tinystories", "xsum")

WORKLOADS = {
    "cnn": Workload(Cnn(), ("digits", "mnist"), 16, 90, 20, 0.97, "sgd", {"sgd": 0.004, "adam": 0.001}),
    "transformer": Workload(Decoder(64, 4, 2, 64), ("pydoc-types", *TEXTS), 8, 64, 20, 0.40, "adam", {"sgd": 0.05, "adam": 0.0015}),
    "transformer-lab": Workload(Decoder(288, 6, 6, 256), TEXTS, 8, 16, 12, 0.60, "adam", {"sgd": 0.05, "adam": 0.001}),
    "transformer-base": Workload(Decoder(512, 8, 6, 256), TEXTS, 8, 16, 12, 0.60, "adam", {"sgd": 0.05, "adam": 0.0005}),
    # Sizes of GPT-2 and, but for the number of heads, of GPT-3 XL; learning rates of Brown et al. 2020, arXiv:2005.14165, table 2.1. The
    # larger one is not tied, so that tensor_parallel and pipeline train it too: with bytes it would have 0.04 % fewer parameters.
    "transformer-gpt2": Workload(Decoder(768, 12, 12, 1024, tied=True), TEXTS, 8, 8, 1, None, "adam", {"sgd": 0.05, "adam": 0.0006}),
    "transformer-1b": Workload(Decoder(2048, 16, 24, 2048), TEXTS, 8, 8, 1, None, "adam", {"sgd": 0.05, "adam": 0.0002}),
    "transformer-alcf": Workload(EncoderDecoder(), ("random",), 32, 32, 1, None, "sgd", {"sgd": 0.01, "adam": 0.0001}),
    # 0.1 for a batch of 256: Goyal et al. 2017, arXiv:1706.02677, section 5.1.
    "resnet50": Workload(ResNet50(), ("random", "imagefolder"), 32, 32, 1, None, "sgd", {"sgd": 0.0125, "adam": 0.001}),
}


def workload_of(settings):
    """The Workload of the settings; with --tokenizer its model has the vocabulary of that file."""
    if settings.workload not in WORKLOADS:
        raise UserError(f"there is no workload {settings.workload!r}; choose from: {', '.join(WORKLOADS)}")
    workload = WORKLOADS[settings.workload]
    if settings.tokenizer is None:
        return workload
    if not hasattr(workload.model, "num_tokens"):
        raise UserError(f"--tokenizer is not for {settings.workload}, which has no tokens; leave it out")
    return workload._replace(model=workload.model._replace(num_tokens=tokens.vocabulary(settings.tokenizer).num_tokens))


def resolve(settings, degree):
    """The settings with every None replaced by the workload's default, at a data-parallel degree (common/parallelism.py).

    Raises UserError for invalid settings.
    """
    check(settings)
    workload = workload_of(settings)
    if settings.dataset is not None and settings.dataset not in workload.datasets:
        raise UserError(f"--dataset {settings.dataset} is not for {settings.workload}; choose from: {', '.join(workload.datasets)}")
    if settings.target is not None and workload.target is None:
        raise UserError(f"--target is not for {settings.workload}, which is for throughput only")
    own = {
        "dataset": workload.datasets[0],
        "batch_size": workload.batch_size,
        "evaluation_batch_size": workload.evaluation_batch_size,
        "epochs": workload.epochs,
        "target": workload.target,
        "optimizer": workload.optimizer,
        "learning_rate": workload.learning_rates[settings.optimizer or workload.optimizer],
        "learning_rate_factor": float(degree) if settings.scaling == "weak" else 1.0,
    }
    resolved = dataclasses.replace(settings, **{name: value for name, value in own.items() if getattr(settings, name) is None})
    local_batch(resolved, degree)
    return resolved


def global_batch(settings, degree):
    """Samples per step, of all micro-batches."""
    return settings.batch_size * settings.accumulate * (degree if settings.scaling == "weak" else 1)


def local_batch(settings, degree):
    """Samples per shard and step, a multiple of the number of micro-batches.

    Raises UserError if the samples of a micro-batch are not divisible by the data-parallel degree.
    """
    return settings.accumulate * local_batch_of(global_batch(settings, degree) // settings.accumulate, degree)


def num_steps(settings, num_samples, degree):
    """Steps of an epoch at a data-parallel degree. Raises UserError if there is none."""
    whole = sharding.num_steps(num_samples, global_batch(settings, degree), settings.last_batch)
    return min(whole, settings.steps_per_epoch or whole)


def digest(settings, data_digest):
    """SHA-256 of model, data, target, optimizer, batch size and precision: the same for all ranks, world sizes and backends.

    `settings`: as given, before `resolve`, which may set the learning rate factor to the number of ranks.
    """
    workload = workload_of(settings)
    factor = settings.learning_rate_factor
    resolved = dataclasses.replace(resolve(settings, 1), learning_rate_factor=factor)
    counted = TRAINING_SETTINGS if settings.schedule == "constant" else (*TRAINING_SETTINGS, "epochs")
    spec = {name: value for name, value in as_json(resolved).items() if name in counted}
    # The digests of records from before these settings stay as they are.
    spec = {name: value for name, value in spec.items() if (name, value) not in (("accumulate", 1), ("steps_per_epoch", None))}
    model = workload.model._asdict()
    if not model.get("tied"):
        # Nor do those from before this field of a model change.
        model.pop("tied", None)
    spec |= {"model": model, "parameters": workload.parameters, "conventions": CONVENTIONS, "data": data_digest}
    return hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()
