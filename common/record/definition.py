"""The record of a run: its keys in the order of the file, with descriptions, and the rules for keys together. parts.py has its parts.

results/schema.json and the list in results/README.md are generated from here: python -m common.record.schema. A new key has a default:
its value in the records of before, which do not have it (common/record/files.py).
"""

import dataclasses
import functools
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, get_args, get_type_hints

from common import backends, workloads
from common.bounds import Pattern
from common.config import Settings
from common.metric import Metric
from common.ranks.launcher_variables import Ranks
from common.record.parts import (
    BY_RANK,
    CountsByRank,
    Environment,
    FromOne,
    FromZero,
    GpuMemoryByRank,
    MachineNoise,
    Moment,
    MpiProfile,
    Number,
    Numbers,
    Part,
    Positive,
    Reading,
    Seconds,
    Sha256,
    Share,
    StepBreakdown,
    TensorBytesByRank,
    Timeline,
    Transport,
)
from common.workloads import WORKLOADS, BatchPlan

# The errors of runs without a fault, which were ended from outside.
INTERRUPTED, ENDED_BY_JOB = "interrupted", "ended by the time limit of the job; the same command with --resume goes on"

# The version of the layout. A record of another version is refused.
Schema = Literal[3]
(SCHEMA,) = get_args(Schema)
# The keys that a completed run has, and one that trained from the start.
OF_COMPLETED = ("workload_digest", "num_nodes", "import_seconds", "init_seconds", "peak_memory_bytes", "in_sync")
OF_TRAINED = ("samples_per_second", "losses", "samples_per_epoch", "samples_dropped_per_epoch", "train_seconds")
# Settings that have a value in every record, given or not. The target is not one of them, since a workload may have none.
RESOLVED = (*(name for name in WORKLOADS["cnn"].defaults() if name != "target"), "machine")


@dataclass(kw_only=True, slots=True)
class Record(Part):
    """Settings, environment and measurements of one run. `null` means that a value is not known or does not apply."""

    __pydantic_config__: ClassVar = Part.__pydantic_config__ | {"title": "Record of one run"}

    schema: Schema = SCHEMA
    """Version of this layout. Records of another version are not read."""
    status: Literal["started", "ok", "diverged", "failed", "timeout"] = "started"
    """State of the run. `ok`: the run completed, whether or not it reached the target. `diverged`: it ended with an epoch after which a
    loss or a parameter was not finite. `timeout`: it exceeded its time limit."""
    error: str | None = None
    """Cause of the failure in one line. `null` unless `status` is `diverged`, `failed` or `timeout`."""
    launcher_error: str | None = None
    """What the launcher of a completed run reported afterwards, in one line. `null` if it ended without an error."""
    started_at: Moment
    """Start of the run in UTC."""
    backend: str
    """Name of a file in `frameworks/`, with `@VALUE` for a variant (`deepspeed_zero@3`: ZeRO stage 3)."""
    workload: str
    """Name in `common/workloads.py`, or of the file of a `--model`."""
    workload_digest: str | None = None
    """SHA-256 of the model, data, target, optimizer, batch size, schedule and precision. Records that differ in it are not compared."""
    num_ranks: FromOne
    """World size: the number of processes."""
    data_parallel_degree: FromOne
    """Number of shards of a global batch: the ranks, without servers, over those that compute one model together."""
    exact: bool
    """Whether the backend trains as plain PyTorch does, up to rounding."""
    global_batch: FromOne | None = None
    """Samples of all shards in a step. `null` in older records."""
    local_batch: FromOne | None = None
    """Samples of one shard in a step. `null` in older records."""
    micro_batch: FromOne | None = None
    """Samples of one micro-batch of a shard. `null` in older records."""
    transport: Transport | None = None
    """Transport of the gradients. `null` for a backend that does not exchange any."""
    num_nodes: FromOne | None = None
    """Number of nodes."""
    pids_by_rank: Annotated[list[FromOne], BY_RANK] | None = None
    """Process id of each rank on its node."""
    repeat: FromZero
    """Number of the repeat, from 0."""
    seed: FromZero
    """Seed of the initial parameters and of the order of the samples."""
    scaling: Literal["weak", "strong"]
    """`weak` fixes the batch of a rank, `strong` fixes the global batch."""
    launcher: str
    """Launcher that started the run."""
    command: str
    """Shell command that repeats the run in the root of the checkout."""
    target: Number | None
    """Accuracy, or other `metric`, to reach. `null` for a workload that measures throughput alone."""
    metric: Metric = "accuracy"
    """What `accuracy` and `accuracies` are: the share of held-out labels, or next tokens, that are right, or a `metric` of a user's
    file."""
    lower_is_better: bool = False
    """Whether less of it is better."""
    reached: bool | None = None
    """Whether an evaluation met the target. `null` without a target."""
    time_to_solution_seconds: Seconds | None = None
    """Seconds from before the first access to the data to the end of the first evaluation that met the target. `null` if none did, and for
    a run that resumed after one epoch or more."""
    accuracy: Number | None = None
    """That of the last evaluation."""
    samples_per_second: Positive | None = None
    """Training throughput over all epochs, without evaluation. A sample is an image or a sequence."""
    training_flops_per_sample: FromOne | None = None
    """Floating-point operations to train on one sample, as `common/model/description.py` has it."""
    flops_per_second_per_rank: Positive | None = None
    """These operations in a second of training on each rank that computes."""
    peak_flops_per_second: Positive | None = None
    """The most floating-point operations a second of a matrix product after training, as a rank computes: of the framework's own and, in
    float32 on cores, of oneDNN's in PyTorch. The mean of all ranks at the same time. `null` for a rank with several GPUs."""
    peak_library: str | None = None
    """Library that reached `peak_flops_per_second`. `null` in older records, whose peak is of their own framework."""
    framework_product_share: Share | None = None
    """The framework's own product over `peak_flops_per_second`."""
    share_of_peak: Positive | None = None
    """`flops_per_second_per_rank` over `peak_flops_per_second`."""
    tokens_per_second: Positive | None = None
    """Training throughput in tokens that are predicted. `null` for images."""
    in_sync: bool | None = None
    """Whether all ranks had, or gathered, bitwise equal parameters before training and after each epoch. A run in which they differ is
    `failed`."""
    buffers_in_sync: bool | None = None
    """Whether all ranks had bitwise equal buffers, such as running statistics of batch norm. `null` for a model without buffers."""
    oversubscribed: bool | None = None
    """Whether ranks need more cores than they run on, or than a CPU quota gives. Such a run does not measure scaling."""
    launch_seconds: Seconds | None = None
    """Seconds from the start of the launcher to the start of rank 0's process, to 10 ms. `null` for a run outside a matrix."""
    import_seconds: Seconds | None = None
    """Seconds from the start of rank 0's process to the end of its imports."""
    init_seconds: Seconds | None = None
    """Seconds from the end of the imports to the start of training: process group, model, compilation and warm-up on synthetic samples."""
    load_seconds: Seconds | None = None
    """Seconds to read and prepare the data. They are part of the time to solution."""
    num_turns: FromZero | None = None
    """Number of turns in which the run trained; 0 for a run that ran alone."""
    turns_of_others_seconds: Seconds | None = None
    """Seconds of training in which the run was stopped for the turns of others. They are in no other time of the record."""
    check_seconds: Seconds | None = None
    """Seconds of Tandem's own work: comparing the parameters of all ranks, and adding up the losses. They are in no other time of the
    record."""
    samples_per_epoch: FromOne | None = None
    """Number of samples trained in an epoch."""
    samples_dropped_per_epoch: FromZero | None = None
    """Number of samples left out of an epoch because they do not fill a global batch."""
    losses: Numbers = field(default_factory=list)
    """Loss of each step: the mean over the global batch, in nats per label or per token."""
    learning_rates: Numbers = field(default_factory=list)
    """Learning rate of each step."""
    step_seconds: list[Seconds | None] = field(default_factory=list)
    """Seconds of each step, from the end of the step before. On CUDA, where steps are queued, only the sum over an epoch is exact."""
    train_seconds: list[Seconds | None] = field(default_factory=list)
    """Seconds of training in each epoch."""
    eval_seconds: list[Seconds | None] = field(default_factory=list)
    """Seconds of each evaluation."""
    accuracies: Numbers = field(default_factory=list)
    """That on all held-out samples after each epoch."""
    eval_losses: Numbers = field(default_factory=list)
    """Loss on all held-out samples after each epoch."""
    staleness: list[dict[Annotated[str, Pattern("[0-9]{1,9}", "digits")], FromZero]] | None = None
    """Number of updates of each epoch by their staleness, which is the number of other updates since the worker fetched its parameters.
    `null` without a server."""
    peak_memory_bytes: FromOne | None = None
    """Peak resident memory of the rank that used most, without GPU memory."""
    peak_memory_bytes_by_rank: CountsByRank | None = None
    """Peak resident memory of each rank's process."""
    tensor_bytes_by_rank: TensorBytesByRank | None = None
    """What each rank holds at three points of a warm-up step: parameters, gradients and optimizer state."""
    gpu_memory_by_rank: GpuMemoryByRank | None = None
    """Memory of the GPU of each rank."""
    reading: Reading | None = None
    """What reading the samples from disk took. `null` for data in memory."""
    energy_joules: Positive | None = None
    """Energy of the GPUs of all nodes from the start of the clock to the end of the last epoch. `null` if it cannot be read on every
    node."""
    parameter_digests: list[Sha256] = field(default_factory=list)
    """SHA-256 of all parameters before training and after each epoch."""
    sample_digests: list[Sha256] = field(default_factory=list)
    """SHA-256 of the indices of the samples of each epoch, in the order in which the ranks took them."""
    first_batch_digest: Sha256 | None = None
    """SHA-256 of the data of the first step, shard by shard."""
    resumed_after_epochs: FromZero | None = None
    """Epochs of the checkpoint from which the run resumed, of which the record has no numbers. `null` without `--resume`."""
    machine_noise: MachineNoise | None = None
    """How fast the machine was just before and after training."""
    step_breakdown: StepBreakdown | None = None
    """Where the time of a step goes, measured on extra steps after training, off the clock. `null` if it was not measured."""
    timeline: Timeline | None = None
    """Summary of the traces of a run of a matrix with `--timeline`."""
    mpi_profile: MpiProfile | None = None
    """Summary of the MPI profiles of a run of a matrix with `--trace`."""
    settings: Settings
    """Every setting of the run, by its name in `common/config.py`, with defaults resolved."""
    library_configuration: dict | None = None
    """Configuration that the backend gave to its library: that of DeepSpeed, and whether DDP broadcasts rank 0's buffers at every step."""
    environment: Environment
    """Software and hardware of rank 0's node, or of the launching node if the run wrote no record of its own."""
    output_tail: list[str] | None = None
    """Last lines that a run of a matrix printed before it, or its launcher, failed or timed out."""


def new(backend: str, settings: Settings, ranks: Ranks, plan: BatchPlan, launch: Mapping[str, Any], environment: Environment) -> Record:
    """Makes the Record of a run at its start. `launch` has the `launcher` and the `command`."""
    return Record(
        started_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        backend=backend,
        workload=settings.workload,
        num_ranks=ranks.size,
        data_parallel_degree=plan.degree,
        global_batch=plan.global_batch,
        local_batch=plan.local_batch,
        micro_batch=plan.micro_batch,
        exact=backends.is_exact(backend),
        repeat=settings.repeat,
        seed=settings.seed,
        scaling=settings.scaling,
        launcher=launch["launcher"],
        command=launch["command"],
        target=settings.target,
        settings=settings,
        environment=environment,
    )


def plan_of(record: Record) -> BatchPlan:
    """Returns the plan of a run's batch. That of an older record, which does not have it, follows from the settings."""
    if record.global_batch is None or record.local_batch is None or record.micro_batch is None:
        return workloads.batch_plan(record.settings, record.data_parallel_degree)
    return BatchPlan(record.global_batch, record.local_batch, record.micro_batch, record.data_parallel_degree)


def problems(record: Record) -> Iterator[str]:
    """Yields a line, `key: problem`, for each rule that a record breaks."""
    from_the_start = not record.resumed_after_epochs
    is_ok, has_target, reached = record.status == "ok", record.target is not None, record.reached is True
    required = (
        ("a completed run", is_ok, OF_COMPLETED),
        ("a completed run that did not resume", is_ok and from_the_start, OF_TRAINED),
        ("a completed run with a target", is_ok and has_target, ("reached",)),
        ("a completed run with a target that did not resume", is_ok and has_target and from_the_start, ("accuracy",)),
        ("a run that diverged, failed or timed out", record.status in ("diverged", "failed", "timeout"), ("error",)),
        ("a run that reached the target and did not resume", reached and from_the_start, ("time_to_solution_seconds",)),
    )
    for description, applies, names in required:
        yield from (f"{name}: {description} has it" for name in names if applies and getattr(record, name) in (None, []))
    excluded = (
        ("a run without a target", not has_target, ("reached", "accuracy")),
        ("a run that resumed or did not reach the target", not (reached and from_the_start), ("time_to_solution_seconds",)),
    )
    for description, applies, names in excluded:
        yield from (f"{name}: {description} has none" for name in names if applies and getattr(record, name) is not None)
    steps, epochs = len(record.step_seconds), len(record.train_seconds)
    samples = record.samples_per_epoch
    if is_ok and epochs and samples is not None and not 1 <= steps // epochs <= samples:
        yield f"step_seconds: {steps} steps in {epochs} epochs of {samples} samples"
    if record.num_nodes is not None and record.num_nodes > record.num_ranks:
        yield f"num_nodes: {record.num_nodes} nodes have {record.num_ranks} ranks"
    if is_ok and record.in_sync is False:
        yield "in_sync: the ranks of a completed run have equal parameters"
    numbers = (record.target, record.accuracy, *record.accuracies) if record.metric == "accuracy" else ()
    yield from (f"accuracy: {number} is not from 0 to 1" for number in numbers if number is not None and not 0 <= number <= 1)
    if record.time_to_solution_seconds == 0:
        yield "time_to_solution_seconds: it is above 0"
    yield from (f"settings/{name}: every run has it" for name in RESOLVED if getattr(record.settings, name) is None)
    yield from _problems_by_rank(record, record.num_ranks)


def _problems_by_rank(content: Any, num_ranks: int, path: str = "") -> Iterator[str]:
    """Yields a line for each list by rank that has the wrong length, in a record or in a content of it."""
    for name, is_by_rank in _keys(type(content)).items():
        value = getattr(content, name)
        if dataclasses.is_dataclass(type(value)):
            yield from _problems_by_rank(value, num_ranks, f"{path}{name}/")
        if is_by_rank and value is not None and len(value) != num_ranks:
            yield f"{path}{name}: it has {len(value)} values for {num_ranks} ranks"


@functools.cache
def _keys(kind: type) -> dict[str, bool]:
    """Returns {key: whether it is a list by rank} of a record or a hint of it. Types are resolved once: thousands of records are read."""
    hints = get_type_hints(kind, include_extras=True)
    return {
        name: any(BY_RANK in getattr(hint, "__metadata__", ()) for hint in (hints[name], *get_args(hints[name])))
        for name in (key.name for key in dataclasses.fields(kind))
    }
