"""How much memory a training needs on each rank, by backend, before it runs (launch/MEMORY.md)."""

import dataclasses
import heapq
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from common import apart, command_line, workloads
from common.backends import chosen, declaration_of, has_one_rank, settings_of
from common.bounds import CONTEXT, FROM_1, LAYERS, RANKS
from common.command_line import Help
from common.config import Optimizer, Settings
from common.cost import parallelism, sharing, state_memory
from common.declarations import SHELL_PYTHON
from common.errors import UserError
from common.model import pipelining
from common.model.description import parts_of
from common.terminal import Table, print_tables
from common.workloads import WORKLOADS

if TYPE_CHECKING:
    from frameworks.shared.pytorch.activations import StepBytes

PROGRAM = f"{SHELL_PYTHON} -m launch.memory"
BACKENDS = (
    "single", "ddp", "horovod_torch", "zero_redundancy", "deepspeed_zero", "deepspeed_zero@2", "deepspeed_zero@3", "fsdp",
    "tensor_parallel", "pipeline", "pipeline@gpipe",
)  # fmt: skip
UNITS = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6))
# Of Horovod's fusion buffer: 0.28.1, HOROVOD_FUSION_THRESHOLD.
FUSION_BYTES = 128 * 2**20
# Numbers in DeepSpeed 0.19.8: reduce_bucket_size and stage3_max_live_parameters.
REDUCE_BUCKET, MAX_LIVE = 500_000_000, 1_000_000_000


@dataclass(frozen=True)
class Memory:
    """The training whose memory is forecast, as launch/matrix.sh takes it, and what is shown."""

    workload: Annotated[str, Help(f"Workload: {', '.join(WORKLOADS)}.")] = "transformer"
    model: str | None = None
    """A model of your own (frameworks/own_model/README.md): its file, or package.module."""
    model_args: str | None = None
    """Arguments of its model() as a JSON object."""
    layers: Annotated[int | None, LAYERS] = None
    """Layers of a Transformer."""
    width: Annotated[int | None, FROM_1] = None
    """Width of a Transformer."""
    heads: Annotated[int | None, FROM_1] = None
    """Heads of a Transformer."""
    context: Annotated[int | None, CONTEXT] = None
    """Positions in a sample of a decoder."""
    batch_size: Annotated[int | None, FROM_1] = None
    """Samples per step of a rank, or of the ranks that compute one model together. Default: the workload's."""
    ranks: Annotated[int, RANKS] = 8
    """Number of ranks."""
    precision: Literal["fp32", "tf32", "fp64", "bf16"] = "fp32"
    """Numerical precision."""
    optimizer: Optimizer | None = None
    """Default: the workload's."""
    microbatches: Annotated[int | None, FROM_1] = None
    """Micro-batches of a pipeline's step. Default: as many as ranks."""
    backends: str | None = None
    """Backends and variants, separated by commas. Default: those that divide memory differently. What cannot divide the model is left out
    with the reason."""
    json: bool = False
    """Print JSON, in bytes."""


class Forecast(NamedTuple):
    """Bytes of tensors of the rank that needs most.

    `activations` are those after the forward pass. `buffers` are the most that a library has for its exchange. `peak` is the most of all at
    once, since activations go as gradients come.
    """

    backend: str
    num_ranks: int
    parameters: float
    gradients: float
    optimizer_state: float
    activations: float
    buffers: float
    peak: float


class Answer(NamedTuple):
    """The forecasts of a training, which is described in words, and why others are left out."""

    training: str
    forecasts: list[Forecast]
    left_out: list[str]


def run(arguments: Memory) -> int:
    """Prints the forecast and returns the exit status. Raises UserError, before anything is printed, where nothing can be forecast."""
    subject = f"--model {arguments.model}" if arguments.model else f"--workload {arguments.workload}"
    answer = apart.call(subject, answer_of, **vars(arguments))
    if arguments.json:
        print(json.dumps({"backends": [row._asdict() for row in answer.forecasts], "left_out": answer.left_out}, indent=2))
    else:
        show(answer)
    return 0


def answer_of(**options: Any) -> Answer:
    """Returns the forecasts of what the options of Memory describe. It runs code of a user's file, and imports PyTorch."""
    arguments = Memory(**options)
    settings = settings_from(arguments)
    names = BACKENDS if arguments.backends is None else command_line.names_in(arguments.backends)
    if not names:
        raise UserError(f"--backends is {arguments.backends!r}; give backends such as ddp,fsdp,deepspeed_zero@3")
    chosen(",".join(names))
    sizes = {name: 1 if has_one_rank(name) else arguments.ranks for name in names}
    reasons = {name: problem(name, settings, size) for name, size in sizes.items()}
    left_out = list(filter(None, reasons.values()))
    if left_out and (arguments.backends or all(reasons.values())):
        raise UserError(left_out[0])
    forecasts = forecast([name for name in names if not reasons[name]], settings, sizes)
    num_parameters = workloads.workload_of(settings).num_parameters
    training = (
        f"{settings.workload}: {num_parameters:,} parameters; {settings.batch_size:,} samples per step, {settings.precision}, "
        f"{settings.optimizer}"
    )
    return Answer(training, forecasts, left_out)


def settings_from(arguments: Memory) -> Settings:
    """Returns the resolved settings of the training. Raises UserError where they describe none."""
    names = {field.name for field in dataclasses.fields(Settings)} & {field.name for field in dataclasses.fields(arguments)}
    values: dict[str, Any] = {name: getattr(arguments, name) for name in names}
    values |= {"microbatches": arguments.microbatches or arguments.ranks, "scaling": "weak"}
    return workloads.resolve(Settings(**values), 1)


def problem(name: str, settings: Settings, num_ranks: int) -> str | None:
    """Returns why there is no forecast of this training at this number of ranks under a backend, or a variant; None if there is."""
    if declaration_of(name).num_servers:
        return f"there is no forecast for {name}, whose ranks do different things; leave it out"
    return parallelism.problem(name, settings_of(name, settings), num_ranks)


def forecast(names: Sequence[str], settings: Settings, sizes: dict[str, int]) -> list[Forecast]:
    """Returns the forecast of each backend, or variant, where there is no `problem`."""
    from frameworks.shared.pytorch import activations

    step = None
    forecasts = []
    for name in names:
        of_name, num_ranks = settings_of(name, settings), sizes[name]
        if declaration_of(name).pipelined:
            num_stages = of_name.stages if declaration_of(name).model_parallel == "stages" else num_ranks
            forecasts.append(of_pipeline(name, of_name, num_ranks, num_stages, activations.of_stages(of_name, num_stages)))
        elif declaration_of(name).divides:
            forecasts.append(of_division(name, of_name, num_ranks, activations.of_divided_step(of_name, num_ranks)))
        else:
            step = step or activations.of_step(settings)
            forecasts.append(of_replicas(name, of_name, num_ranks, step))
    return forecasts


def of_replicas(name: str, settings: Settings, num_ranks: int, step: "StepBytes") -> Forecast:
    """Forecasts a rank that computes a whole model."""
    state = state_memory.state(name, settings, num_ranks)
    sizes = [math.prod(initial.shape) for initial in workloads.workload_of(settings).parameters.values()]
    whole = sharing.whole_bytes(name, sum(sizes), settings)
    shared = sharing.of(name)
    if shared and declaration_of(name).buffers == "gathered":
        # Whole parameters are buffers beside the shards.
        state["parameters"] = whole["parameters"] / num_ranks
    if shared and declaration_of(name).deals:
        state |= {kind: whole[kind] * largest_hand(sizes, num_ranks) for kind in shared.sharded}
    buffers = buffer_bytes(name, settings, sizes, step.layer_sizes)
    peak = state["parameters"] + state["optimizer_state"] + buffers + step.peak_with(state["gradients"] / whole["gradients"])
    return Forecast(name, num_ranks, **state, activations=step.activations, buffers=buffers, peak=peak)


def of_division(name: str, settings: Settings, num_ranks: int, step: "StepBytes") -> Forecast:
    """Forecasts a rank that has a part of each matrix, and the whole vectors of norms."""
    shapes = [initial.shape for initial in workloads.workload_of(settings).parameters.values()]
    num_held = sum(math.prod(shape) / (num_ranks if len(shape) > 1 else 1) for shape in shapes)
    state = sharing.whole_bytes(name, num_held, settings)
    peak = state["parameters"] + state["optimizer_state"] + step.peak
    return Forecast(name, num_ranks, **state, activations=step.activations, buffers=0, peak=peak)


def of_pipeline(name: str, settings: Settings, num_ranks: int, num_stages: int, stage_bytes: "Sequence[StepBytes]") -> Forecast:
    """Forecasts the rank of a pipeline that needs most: its stage, with several micro-batches under way."""
    num_microbatches, workload = parallelism.microbatches_of(settings), workloads.workload_of(settings)
    parts, stages = parts_of(workload.model), pipelining.stages_of(workload.model, num_stages)
    num_samples = (settings.batch_size or workload.batch_size) / num_microbatches
    passed = [sharing.element_bytes(settings) * num_samples * math.prod(part.passed_shape) for part in parts]
    by_rank = []
    for rank, (stage, step) in enumerate(zip(stages, stage_bytes, strict=True)):
        state = sharing.whole_bytes(name, sum(part.num_parameters for part in parts[stage.start : stage.end]), settings)
        # A stage also keeps the outputs that it has sent on.
        of_pass = step.activations + passed[stage.end - 1]
        activations = of_pass * pipelining.num_under_way(settings.pipeline_schedule, rank, num_stages, num_microbatches)
        working = step.peak_without_gradients - step.activations
        # A rank receives for each micro-batch activations from the stage before, and gradients from the one after.
        received = sum(passed[end - 1] for end, last in ((stage.start, 0), (stage.end, len(parts))) if end != last) * num_microbatches
        peak = sum(state.values()) + activations + working + received
        by_rank.append(Forecast(name, num_ranks, **state, activations=activations, buffers=received, peak=peak))
    return max(by_rank, key=lambda row: row.peak)


def buffer_bytes(name: str, settings: Settings, sizes: Sequence[int], layer_sizes: Sequence[int]) -> float:
    """Returns the bytes of parameters and gradients that a library holds in order to exchange them, beside those that are trained.

    `sizes` are the numbers of elements of the parameters, and `layer_sizes` of the layers that FSDP gathers by themselves.
    """
    variant = name.partition("@")[2]
    num_parameters, layer = sum(sizes), max(layer_sizes, default=0)
    # A tensor is gathered and reduced as a whole.
    bucket = min(num_parameters, max(REDUCE_BUCKET, *sizes))
    elements = {
        None: 0,
        # The gradients once more, unless they are views of the buckets: Li et al. 2020, arXiv:2006.15704, section 4.2.
        "buckets": num_parameters,
        # All gradients in one vector, and that vector over the number of ranks.
        "packed": 2 * num_parameters,
        # A layer, the next one, and gradients that are being scattered, beside what is in no layer; or all parameters, with `keep`.
        "gathered": num_parameters + layer if variant == "keep" else num_parameters - sum(layer_sizes) + 3 * layer,
        # A bucket of gradients and its flattened copy; in stage 3 parameters too, for their next use.
        "zero": bucket * (1 if variant == "0" else 2) + (min(num_parameters, max(MAX_LIVE, *sizes)) if variant == "3" else 0),
    }
    kind = declaration_of(name).buffers
    return FUSION_BYTES if kind == "fusion" else elements[kind] * sharing.element_bytes(settings)


def largest_hand(sizes: Sequence[int], num_ranks: int) -> float:
    """Returns the largest share of all elements that a rank has, where the largest parameter goes to the rank with least, and so on.

    PyTorch's ZeroRedundancyOptimizer deals parameters like this.
    """
    hands = [0] * num_ranks
    for size in sorted(sizes, reverse=True):
        heapq.heapreplace(hands, hands[0] + size)
    return max(hands) / sum(sizes)


def show(answer: Answer) -> None:
    """Prints the forecasts as a table, and the reasons for what is left out."""
    training, forecasts, left_out = answer
    unit, size = next((unit for unit in UNITS if max(row.peak for row in forecasts) >= unit[1]), UNITS[-1])
    rows = [
        {"backend": backend, "ranks": num_ranks}
        | {f"{name.replace('_', ' ')} ({unit})": num_bytes / size for name, num_bytes in zip(Forecast._fields[2:], sizes, strict=True)}
        for backend, num_ranks, *sizes in forecasts
    ]
    lines = [*(f"left out: {reason}" for reason in left_out), "Programs, the allocator's reserve and the workspace of kernels come on top."]
    print_tables([Table(f"{training}: memory per rank", rows)], lines)


if __name__ == "__main__":
    command_line.main(run, Memory, PROGRAM, "Forecasts how much memory a training needs on each rank, by backend, before it runs.")
