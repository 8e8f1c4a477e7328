"""Workloads under settings: their defaults, batches, steps and digest."""

import dataclasses
import hashlib
import json
import math

import numpy as np

from common import tokens
from common.batch_plan import BatchPlan, plan_batch
from common.config import TRAINING_SETTINGS, Settings, as_json, check
from common.errors import UserError
from common.model.conventions import CONVENTIONS
from common.model.schedules import CONSTANT
from common.model.weights import DTYPES
from common.model.workload_table import WORKLOADS, Workload


def workload_of(settings: Settings) -> Workload:
    """Returns the workload of the settings. With --tokenizer its model has the vocabulary of that file.

    Raises UserError for an unknown workload, and for --tokenizer with one that has no tokens.
    """
    if settings.workload not in WORKLOADS:
        raise UserError(f"there is no workload {settings.workload!r}; choose from: {', '.join(WORKLOADS)}")
    workload = WORKLOADS[settings.workload]
    if settings.tokenizer is None:
        return workload
    if not hasattr(workload.model, "num_tokens"):
        raise UserError(f"--tokenizer is not for {settings.workload}, which has no tokens; leave it out")
    return workload._replace(model=workload.model._replace(num_tokens=tokens.vocabulary(settings.tokenizer).num_tokens))


def gradient_bytes(settings: Settings) -> int:
    """Returns the bytes of the gradients of all parameters, which data parallelism all-reduces once a step."""
    parameters = workload_of(settings).parameters.values()
    return sum(math.prod(parameter.shape) for parameter in parameters) * np.dtype(DTYPES[settings.precision]).itemsize


def resolve(settings: Settings, degree: int) -> Settings:
    """Replaces every None by the workload's default, at a data-parallel degree (common/cost/parallelism.py).

    Raises UserError for invalid settings.
    """
    check(settings)
    workload = workload_of(settings)
    if settings.dataset is not None and settings.dataset not in workload.datasets:
        raise UserError(f"--dataset {settings.dataset} is not for {settings.workload}; choose from: {', '.join(workload.datasets)}")
    if settings.target is not None and workload.target is None:
        raise UserError(f"--target is not for {settings.workload}, which is for throughput only")
    defaults = workload.defaults(settings.optimizer) | {"learning_rate_factor": float(degree) if settings.scaling == "weak" else 1.0}
    resolved = dataclasses.replace(settings, **{name: value for name, value in defaults.items() if getattr(settings, name) is None})
    batch_plan(resolved, degree)
    return resolved


def batch_plan(settings: Settings, degree: int) -> BatchPlan:
    """Plans the batch of a step under the settings, resolved or not. Raises UserError where it cannot be divided."""
    return plan_batch(settings.batch_size or workload_of(settings).batch_size, settings.accumulate, settings.scaling, degree)


def digest(settings: Settings, data_digest: str) -> str:
    """Returns the SHA-256 of model, data, target, optimizer, batch size and precision: the same for all ranks, world sizes and backends.

    The settings are those that were given, since `resolve` may set the learning rate factor to the number of ranks.
    """
    workload = workload_of(settings)
    factor = settings.learning_rate_factor
    resolved = dataclasses.replace(resolve(settings, 1), learning_rate_factor=factor)
    counted = TRAINING_SETTINGS if resolved.schedule == CONSTANT else (*TRAINING_SETTINGS, "epochs")
    spec = {name: value for name, value in as_json(resolved).items() if name in counted}
    spec |= {"model": workload.model._asdict(), "parameters": workload.parameters, "conventions": CONVENTIONS, "data": data_digest}
    return hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()
