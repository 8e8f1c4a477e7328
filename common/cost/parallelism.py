"""How the ranks of a run share the work: the data-parallel degree of a backend, and why it cannot train a workload."""

import dataclasses
from collections.abc import Iterator

from common.backends import declaration_of, file_of
from common.command_line import flag
from common.config import Settings, check
from common.data.sharding import Shard
from common.declarations import Backend
from common.errors import UserError
from common.model.description import Model, parts_of
from common.workloads import WORKLOADS, batch_plan, located, source_of, workload_of


def shard_of(rank: int, num_ranks: int, degree: int) -> Shard:
    """Returns the shard of a rank. Consecutive ranks share a model, and so a shard. A server, which uses none, has the last one."""
    return Shard(min(rank // (num_ranks // degree), degree - 1), degree)


def degree(name: str, settings: Settings, num_ranks: int) -> int:
    """Returns the data-parallel degree of a backend, or a variant: the number of shards into which a global batch is cut.

    It is the number of ranks, without servers, over the number of those that share one model. Raises UserError where the backend cannot
    train the workload.
    """
    if reason := problem(name, settings, num_ranks):
        raise UserError(reason)
    backend = declaration_of(name)
    return (num_ranks - backend.num_servers) // _num_ranks_of_model(backend, settings, num_ranks)


def problem(name: str, settings: Settings, num_ranks: int) -> str | None:
    """Returns why a backend, or a variant, cannot train the workload of the settings at this number of ranks; None if it can.

    Raises UserError for invalid settings.
    """
    check(settings)
    settings = dataclasses.replace(settings, **located(source_of(settings)))
    return next(_problems(name, settings, workload_of(settings).model, num_ranks), None)


def _problems(name: str, settings: Settings, model: Model, num_ranks: int) -> Iterator[str]:
    """Yields the reasons, of which the first counts: what follows may not be computed."""
    backend, workload = declaration_of(name), settings.workload
    if backend.framework not in model.frameworks:
        yield f"{name} does not train {workload}: the model is {' and '.join(model.frameworks)}'s"
    if not trains(name, model):
        able = [able_name for able_name in WORKLOADS if trains(name, WORKLOADS[able_name].model)]
        yield f"{name} does not train {workload}; leave it out, or choose from the workloads {', '.join(able)}"
    unused = model.unused_parameters if name.partition("@")[2] in backend.same_parameters else {}
    if left_out := next((parameter for parameter, is_used in unused.items() if is_used), None):
        needed = f"{name} needs ranks that use the same parameters, and a step of {workload} may leave {left_out} out"
        yield f"{needed}; choose {file_of(name)}"
    if backend.one_rank and num_ranks > 1:
        yield f"{name} runs with one rank; {num_ranks} ranks were started"
    if num_ranks <= backend.num_servers:
        yield f"{name} takes at least {backend.num_servers + 1} ranks, of which {backend.num_servers} is a server; choose other sizes"
    multiple = _num_ranks_of_model(backend, settings, num_ranks)
    if num_ranks % multiple:
        yield f"{name} takes a multiple of {multiple} ranks ({flag(backend.model_parallel)}), and {num_ranks} is none; choose other sizes"
    if backend.divides and (size := getattr(model, backend.divides)) % multiple:
        divided = backend.divides.removeprefix("num_")
        yield f"{name} divides the {size} {divided} of {workload} over its ranks, and {multiple} ranks do not divide them"
    try:
        plan = batch_plan(settings, (num_ranks - backend.num_servers) // multiple)
    except UserError as reason:
        yield f"{name}: {reason}"
        return
    if backend.pipelined and (reason := pipeline_problem(name, settings, model, multiple, plan.micro_batch)):
        yield reason


def trains(name: str, model: Model) -> bool:
    """Returns whether a backend, or a variant, trains a model, whatever the number of ranks."""
    backend = declaration_of(name)
    return (not backend.models or type(model).__name__ in backend.models) and not (backend.untied and getattr(model, "tied", False))


def _num_ranks_of_model(backend: Backend, settings: Settings, num_ranks: int) -> int:
    """Returns the number of ranks that share one model."""
    if backend.model_parallel == "all":
        return num_ranks
    return getattr(settings, backend.model_parallel) if backend.model_parallel else 1


def microbatches_of(settings: Settings) -> int:
    """Returns the number of micro-batches in a step."""
    return 1 if settings.pipeline_schedule == "naive" else settings.microbatches


def pipeline_problem(name: str, settings: Settings, model: Model, num_ranks: int, local_batch: int) -> str | None:
    """Returns why a pipeline of that many ranks cannot train a model with steps of `local_batch` samples, or None if it can."""
    if any(part.output_shape is None for part in parts_of(model)):
        return f"{name} does not train {settings.workload}, whose model has no parts for stages; leave it out"
    if num_ranks > (num_parts := len(parts_of(model))):
        return f"{name} cuts {settings.workload} into at most {num_parts} stages, and {num_ranks} ranks have one each; choose fewer"
    if settings.accumulate > 1:
        return f"{name} has its own micro-batches; choose --microbatches, and leave --accumulate out"
    num = microbatches_of(settings)
    if local_batch % num:
        return f"{name}: {num} micro-batches do not divide the batch of {local_batch} samples; choose other --microbatches"
    if settings.pipeline_schedule == "1f1b" and num < num_ranks:
        return f"{name} takes at least as many micro-batches as its {num_ranks} stages, and {num} are fewer; raise --microbatches"
    return None
