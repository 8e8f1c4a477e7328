"""The table of workloads, and each under settings: its sizes, defaults, batches, learning rates and digest."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from common.command_line import Help, flag
from common.config import SHARE, TRAINING_SETTINGS, Settings, as_json, check
from common.errors import UserError
from common.model import cnn, conventions, decoder, model_file, resnet, user_model
from common.model.decoder import Decoder
from common.model.description import Model, Workload
from common.model.weights import DTYPES

RESOLVED = "the settings are resolved"
WORKLOADS = {**cnn.WORKLOADS, **decoder.WORKLOADS, **resnet.WORKLOADS}
# The workloads of a matrix that names none.
BY_DEFAULT = ("cnn", "transformer")

# The field of a Transformer that each setting changes.
SIZES = {"layers": "num_layers", "width": "width", "heads": "num_heads", "context": "context"}
CONSTANT = "constant"
# Each gives the factor of the learning rate by the progress of the epochs after warm-up, from 0 to 1.
SCHEDULES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    CONSTANT: np.ones_like,
    "cosine": lambda progress: 0.5 * (1 + np.cos(np.pi * progress)),
}


def help_of_settings() -> dict[str, Help]:
    """Returns what the help has of the settings whose values and defaults are the workloads'."""
    targeted = [name for name, workload in WORKLOADS.items() if workload.target is not None]
    throughput = ", ".join(name for name in WORKLOADS if name not in targeted)
    defaults = {
        name: "; ".join(f"{workload}: {WORKLOADS[workload].describe_default(name)}" for workload in BY_DEFAULT)
        for name in WORKLOADS[Settings.workload].defaults()
    }
    of_workload = Help(f"Workload: {', '.join(targeted)}; for throughput only: {throughput}; or a file, as --model takes.")
    return {"workload": of_workload} | {name: Help(default=f"(default: {text})") for name, text in defaults.items()}


def workload_of(settings: Settings) -> Workload:
    """Returns the workload of the settings. Raises UserError for an unknown one, a mistake in a file, and sizes that its model has not."""
    workload = described(source_of(settings), settings.model_args)
    sizes = {name: size for name in SIZES if (size := getattr(settings, name)) is not None}
    return workload._replace(model=resized(workload.model, sizes, workload.name))


def source_of(settings: Settings) -> str:
    """Returns what the settings train: a name in the table of workloads, or a file."""
    return settings.model or settings.workload


def located(source: str) -> dict[str, str | None]:
    """Returns the settings that say what is trained: the name of a workload, and the whole path of its file where it is not in the table.

    Raises UserError where it is neither in the table nor a file.
    """
    if source in WORKLOADS:
        return {"workload": source, "model": None}
    path = model_file.located(source, WORKLOADS)
    return {"workload": path.stem, "model": str(path)}


def described(source: str, arguments: str | None = None) -> Workload:
    """Returns a workload of the table, or that of a file whose model() takes these arguments. Raises UserError as `located` does."""
    if source not in WORKLOADS:
        return user_model.workload(str(located(source)["model"]), arguments)
    if arguments is not None:
        raise UserError(f"--model-args is for the model() of a file, and {source} has none; leave it out")
    return WORKLOADS[source]._replace(name=source)


def resized(model: Model, sizes: Mapping[str, int], workload: str) -> Model:
    """Returns the model of a workload with these SIZES.

    Raises UserError for a size that the model has not, and where its heads do not divide its width.
    """
    if not sizes:
        return model
    if not isinstance(model, Decoder):
        name = flag(next(iter(sizes)))
        raise UserError(f"{name} is not for {workload}, whose model has no such size; leave it out, or choose another workload")
    changed = dataclasses.replace(model, **{SIZES[name]: size for name, size in sizes.items()})
    # Rotary embeddings turn pairs of numbers.
    if changed.width % (2 * changed.num_heads):
        raise UserError(f"--width {changed.width} is not an even width for each of {changed.num_heads} heads; choose other --heads")
    return changed


def gradient_bytes(settings: Settings) -> int:
    """Returns the bytes of the gradients of all parameters, which data parallelism all-reduces once a step."""
    return workload_of(settings).num_parameters * np.dtype(DTYPES[settings.precision]).itemsize


def num_optimizer_states(settings: Settings) -> float:
    """Returns the number of tensors of the parameters' shapes that the optimizer keeps: Adam's two moments, or the velocity of SGD."""
    workload = workload_of(settings)
    if (of_model := workload.model.optimizer_states) is not None:
        return of_model
    if (settings.optimizer or workload.optimizer) == "adam":
        return 2
    return 1 if settings.momentum else 0


def resolve(settings: Settings, degree: int) -> Settings:
    """Replaces every None by the workload's default, at a data-parallel degree (common/cost/parallelism.py).

    Raises UserError for invalid settings.
    """
    check(settings)
    workload = workload_of(settings)
    if settings.dataset is not None and settings.dataset not in workload.datasets:
        raise UserError(f"--dataset {settings.dataset} is not for {workload.name}; choose from: {', '.join(workload.datasets)}")
    if settings.target is not None and workload.target is None:
        raise UserError(f"--target is not for {workload.name}, which is for throughput only")
    if workload.metric == "accuracy" and settings.target is not None and (problem := SHARE.problem(settings.target)):
        raise UserError(f"--target is {settings.target:g}; {problem}")
    for name, function in workload.decided.items():
        if getattr(settings, name) != getattr(Settings, name):
            article = "an" if function == "optimizer" else "a"
            raise UserError(f"{flag(name)} is not for {workload.name}, which has {article} {function}(); leave it out")
    settings = dataclasses.replace(settings, **located(source_of(settings)))
    defaults = workload.defaults(settings.optimizer)
    resolved = dataclasses.replace(settings, **{name: value for name, value in defaults.items() if getattr(settings, name) is None})
    batch_plan(resolved, degree)
    return resolved


def scheduled_rates(base: float, scale: float, warmup_epochs: float, schedule: str, num_epochs: int, steps_per_epoch: int) -> np.ndarray:
    """Returns the learning rate of every step of a run, of shape (num_epochs, steps_per_epoch).

    The learning rate rises linearly from `base` to `scale * base` during `warmup_epochs`. After that it stays there (`constant`)
    or falls to 0 at the end of the run (`cosine`). Linear scaling and gradual warm-up: Goyal et al. 2017,
    arXiv:1706.02677, sections 2.1 and 2.2. Cosine: Loshchilov and Hutter 2017, arXiv:1608.03983, eq. 5, without restarts.
    """
    started = np.arange(num_epochs * steps_per_epoch).reshape(num_epochs, steps_per_epoch) / steps_per_epoch
    finished = started + 1 / steps_per_epoch
    scheduled = np.full_like(started, base * scale)
    if num_epochs > warmup_epochs:
        scheduled *= SCHEDULES[schedule](np.clip((started - warmup_epochs) / (num_epochs - warmup_epochs), 0, 1))
    if warmup_epochs:
        ramp = base * (1 + (scale - 1) * np.minimum(finished / warmup_epochs, 1))
        scheduled = np.where(started < warmup_epochs, ramp, scheduled)
    return scheduled


def learning_rate_factor(scaling: str, degree: int) -> float:
    """Returns the factor by which warm-up scales the learning rate, at a data-parallel degree."""
    return float(degree) if scaling == "weak" else 1.0


def learning_rates(settings: Settings, num_steps: int, scale: float) -> np.ndarray:
    """Returns the learning rate of every step of a run with this number of steps in an epoch, of shape (epochs, num_steps).

    Warm-up scales it by `scale`, also that of a file's own schedule.
    """
    learning_rate = settings.learning_rate
    num_epochs, warmup_epochs, optimizer = settings.epochs, settings.warmup_epochs, settings.optimizer
    assert learning_rate, RESOLVED
    assert num_epochs, RESOLVED
    assert optimizer, RESOLVED
    of_model = workload_of(settings).model.scheduled_rates(learning_rate, optimizer, num_epochs * num_steps)
    if of_model is None:
        return scheduled_rates(learning_rate, scale, warmup_epochs, settings.schedule, num_epochs, num_steps)
    scaled = scheduled_rates(1.0, scale, warmup_epochs, CONSTANT, num_epochs, num_steps)
    return np.reshape(of_model, scaled.shape) * scaled


class BatchPlan(NamedTuple):
    """The numbers of samples in a step: of all shards, of one shard, and of one micro-batch of a shard; and the number of shards."""

    global_batch: int
    local_batch: int
    micro_batch: int
    degree: int


def batch_plan(settings: Settings, degree: int) -> BatchPlan:
    """Plans the batch of a step under the settings, resolved or not, at a data-parallel degree (common/cost/parallelism.py).

    The batch size is that of a micro-batch: of each shard under weak scaling, of all shards under strong scaling. Raises UserError where
    the shards of a micro-batch would not be equal.
    """
    batch_size, accumulate = settings.batch_size or workload_of(settings).batch_size, settings.accumulate
    of_all_shards = batch_size * degree if settings.scaling == "weak" else batch_size
    if of_all_shards % degree:
        raise UserError(
            f"a global batch of {of_all_shards} is not divisible into {degree} equal shards; make --batch-size a multiple of {degree}"
        )
    micro_batch = of_all_shards // degree
    return BatchPlan(of_all_shards * accumulate, micro_batch * accumulate, micro_batch, degree)


def digest(settings: Settings, data_digest: str) -> str:
    """Returns the SHA-256 of model, data, target, optimizer, batch size and precision: the same for all ranks, world sizes and backends.

    Settings at their default do not enter it, so that a new one leaves the digests of earlier records as they are.
    """
    workload = workload_of(settings)
    resolved = resolve(settings, 1)
    counted = TRAINING_SETTINGS if resolved.schedule == CONSTANT and "schedule" not in workload.decided else (*TRAINING_SETTINGS, "epochs")
    spec = {name: value for name, value in as_json(resolved).items() if name in counted and value != getattr(Settings, name)}
    spec |= {"model": workload.model.identity(), "parameters": workload.parameters, "conventions": conventions.VERSION, "data": data_digest}
    return hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()
