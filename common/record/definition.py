"""The record of a run: its keys in the order of the file, with types and descriptions.

results/schema.json and the list in results/README.md are generated from here: python -m common.record.schema. A new key has a default:
its value in the records of before, which do not have it (common/record/reading.py).
"""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, get_args

from typing_extensions import TypedDict

from common.command_line import Bounds, Pattern
from common.config import Settings

# The version of the layout. A record of another version is refused.
Schema = Literal[3]
(SCHEMA,) = get_args(Schema)
# A list with this has one value for each rank.
BY_RANK = "by rank"

FromZero = Annotated[int, Bounds(at_least=0, at_most=10**18)]
FromOne = Annotated[int, Bounds(at_least=1, at_most=10**18)]
Seconds = Annotated[float, Bounds(at_least=0, at_most=1e12)]
Share = Annotated[float, Bounds(at_least=0, at_most=1)]
Amount = Annotated[float, Bounds(at_least=0, at_most=1e18)]
Positive = Annotated[float, Bounds(above=0, at_most=1e30)]
Moment = Annotated[
    str,
    Pattern("[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z", "the form 2026-01-31T23:59:59Z"),
]
Sha256 = Annotated[str, Pattern("[0-9a-f]{64}", "64 of the digits 0 to 9 and a to f")]
Transport = Literal["mpi", "gloo", "nccl"]
EnergySource = Literal["RAPL", "NVML", "RAPL and NVML"]
# A number that is not finite is written as null.
Numbers = list[Annotated[float, Bounds(at_least=-1e40, at_most=1e40)] | None]
Rates = list[Positive | None]
SecondsByRank = Annotated[list[Seconds], BY_RANK]
CountsByRank = Annotated[list[FromZero], BY_RANK]


class Closed:
    """A part of a record that has no key but those of its class."""

    __slots__ = ()
    # For pydantic, which reads records and generates the schema; a training process does not import it.
    __pydantic_config__: ClassVar = {
        "extra": "forbid", "strict": True, "allow_inf_nan": False,
        "use_attribute_docstrings": True, "json_schema_serialization_defaults_required": True,
    }  # fmt: skip


@dataclass
class Operation(Closed):
    """Calls and bytes of a collective."""

    num_calls: Amount
    num_bytes: Amount


class Library(TypedDict, total=False):
    """The keys of a library that the report reads; there may be more."""

    rebuilt_bucket_sizes: Annotated[str, Pattern("([0-9]{1,15}(, ?[0-9]{1,15})*)?", "sizes with commas between them")]
    num_stages: FromOne
    num_microbatches: FromOne
    bubble_fraction: Annotated[float, Bounds(at_least=-1e6, at_most=1)]
    bubble_fraction_in_theory: Share


# The body of a TypedDict has no room for it.
Library.__pydantic_config__ = Closed.__pydantic_config__ | {"extra": "allow"}  # pyright: ignore[reportAttributeAccessIssue]


@dataclass(kw_only=True)
class StepBreakdown(Closed):
    num_steps: FromOne
    """Number of steps in a measured block."""
    step_seconds: SecondsByRank
    """Seconds of a step with communication, by rank."""
    data_wait_seconds: SecondsByRank
    """Seconds of a step in which the rank waits for data, by rank."""
    compute_seconds: SecondsByRank
    """Seconds of a step without communication, less its wait for data and `control_seconds`, by rank."""
    communication_exposed_seconds: Annotated[list[Annotated[float, Bounds(at_least=-1e12, at_most=1e12)]], BY_RANK]
    """Seconds of exposed (non-overlapped) communication in a step, by rank, with packing and waiting. It is a difference of two
    measurements, which noise can make negative. This, `data_wait_seconds` and `compute_seconds` add up to `step_seconds`."""
    control_seconds: SecondsByRank | None = None
    """Seconds of a step without communication in which Horovod's own threads kept the rank from computing, by rank: these ask all ranks
    every millisecond whether tensors are ready. They are part of `communication_exposed_seconds`. `null` for other libraries."""
    communication_seconds: Annotated[list[Seconds | None], BY_RANK]
    """Seconds of a step in which a collective runs, overlapped or not, by rank. PyTorch's profiler measures MPI, Gloo and NCCL; Horovod's
    timeline measures rank 0 alone."""
    operations: dict[str, Operation]
    """Calls of each collective, such as `all_reduce`, in a step, and the bytes that one rank contributes to them."""
    bus_bytes_per_second: Amount | None
    """Bus bandwidth of the collectives in bytes per second, by the convention of nccl-tests, from the mean time of the ranks."""
    plain_bus_bytes_per_second: Amount | None
    """Bus bandwidth of a plain all-reduce of the gradients' size through the same library, in bytes per second."""
    all_reduce_seconds_by_size: list[tuple[Positive, Seconds]] | None = None
    """[size in bytes, seconds] of plain all-reduces of 1 KiB, 32 KiB, 1 MiB and the gradients' size through the same library: the mean over
    ranks of the median of each."""
    exchange_start_seconds: dict[str, list[Seconds]] | None = None
    """Seconds from the beginning of a step to the start of each collective in it, by name, on rank 0, in the profiled steps, which are
    slower."""
    library: Library
    """DDP's logging data, DeepSpeed's calls by message size, or the bubble of a pipeline, which is the part of its steps in which its ranks
    wait, measured and in theory. Empty for other backends."""


@dataclass
class HeldByRank(Closed):
    """What each rank holds at a point of a step, in bytes by rank. It counts the memory of tensors: no activations, and nothing that a
    library keeps to itself, such as DDP's buckets and Horovod's fusion buffer."""

    parameters: CountsByRank
    """Parameters, whole and sharded."""
    gradients: CountsByRank
    """Gradients, whole and sharded."""
    optimizer_state: CountsByRank
    """Optimizer state, with the master parameters that DeepSpeed updates."""


@dataclass
class TensorBytesByRank(Closed):
    after_forward: HeldByRank
    """After the forward pass."""
    after_backward: HeldByRank
    """After the backward pass, before the optimizer's step. This and `after_step` have the keys of `after_forward`."""
    after_step: HeldByRank
    """After the optimizer's step."""


@dataclass
class GpuMemoryByRank(Closed):
    peak_allocated_bytes: Annotated[list[FromZero | None], BY_RANK]
    """Most bytes that the framework's tensors had at once, from the start of the clock to the end of the last epoch."""
    peak_reserved_bytes: Annotated[list[FromZero | None], BY_RANK]
    """Most bytes that the framework's allocator had of the GPU at once, in the same time. `null` for TensorFlow."""
    used_bytes: Annotated[list[FromZero | None], BY_RANK]
    """Bytes in use on the whole GPU after the last epoch, of all processes, the driver and NCCL, from NVML."""


@dataclass
class Reading(Closed):
    """The value of `reading`. Seconds, samples and opened files are those of the training, without evaluation. By rank."""

    sample_order: Literal["global", "files"]
    """`global`: every epoch shuffles all samples, and so trains the same as with data in memory. `files`: every epoch shuffles files, and
    samples within a buffer, since the format can be read in order only."""
    num_steps: FromZero
    """Number of training steps for which samples were read."""
    wait_seconds_by_rank: SecondsByRank
    """Seconds in these steps in which training waited for samples. Without `--num-workers` this is all of the reading."""
    sample_bytes_by_rank: CountsByRank
    """Bytes of the samples that were read."""
    num_opens_by_rank: CountsByRank
    """Number of files that were opened."""
    read_bytes_by_rank: Annotated[list[FromZero | None], BY_RANK]
    """Bytes that the process has read from files of any kind while it trained and evaluated, from the disk or from the page cache (`rchar`
    of `/proc/self/io`)."""
    disk_bytes_by_rank: Annotated[list[FromZero | None], BY_RANK]
    """Bytes of these that came from a disk (`read_bytes`), with what Linux read ahead."""
    budget_bytes: FromZero
    """Limit of the bytes of samples in the memory of a rank."""
    stored_bytes: FromZero
    """Bytes of all files of the converted data set."""
    convert_seconds: Seconds | None
    """Seconds that the conversion of the data set took. `null` if it was interrupted and continued."""


@dataclass
class CheckpointIo(Closed):
    """The value of `checkpoint_io`, of rank 0."""

    num_writes: FromZero = 0
    """Number of checkpoints that were written."""
    written_bytes: FromZero = 0
    """Bytes of all checkpoints that were written."""
    num_reads: FromZero = 0
    """1 if the run resumed from a checkpoint."""
    read_bytes: FromZero = 0
    """Bytes of the checkpoint that was read."""
    gather_seconds: Seconds = 0.0
    """Seconds in which the state was gathered from all ranks and the device. Training waits meanwhile."""
    write_seconds: Seconds = 0.0
    """Seconds of writing, to the disk (fsync). Training waits meanwhile, unless `--checkpoint-async` is set."""
    read_seconds: Seconds = 0.0
    """Seconds of reading the checkpoint."""
    wait_seconds: Seconds = 0.0
    """Seconds in which training waited for the end of a writing with `--checkpoint-async`: before the next one, and after the last."""


@dataclass
class MachineNoise(Closed):
    product_flops_per_second: Rates
    """Floating-point operations a second in matrix products, just before and just after training, off the clock. All ranks measure at the
    same time, each on its own cores, and the number is that of the slowest."""
    copy_bytes_per_second: Rates
    """Bytes a second, read and written, in a copy of memory, measured in the same way."""
    frequency_hz: Rates
    """Lowest frequency of the ranks' cores before and after training."""
    steal_seconds: Seconds | None
    """Seconds that the hypervisor took from the ranks' cores during training."""
    pressure_seconds: Seconds | None
    """Seconds of training in which a process of the node waited for a core."""
    involuntary_switches_by_rank: CountsByRank
    """Number of times during training that a thread of the rank had to leave its core to another thread."""
    gpu_clock_hz: Rates
    """Lowest clock of the ranks' GPUs before and after training."""
    gpu_throttle_reasons: list[str] | None
    """Reasons after training for which a GPU ran below its highest clock."""
    cpu_throttled_seconds: Seconds | None = None
    """Seconds of training in which a CPU quota stopped the control groups of a rank, added up over cores, of the rank with most."""


@dataclass
class Timeline(Closed):
    trace: str | None
    """File name of the merged trace in the folder `RUN.trace`. `null` if nothing could be merged."""
    num_events: FromZero
    """Number of events in the merged trace."""
    clocks: list[dict]
    """Each source of events, with the error of its clock in microseconds."""
    ranks: dict[str, dict]
    """Offset of each rank's clock from that of rank 0 and the error of the offset, in microseconds, by rank."""
    horovod: dict | None
    """Summary of Horovod's timeline."""
    problems: list[str]
    """Problems that occurred when the traces were read, one line each."""
    steps: dict[str, dict]
    """Seconds of each profiled step and of each wait for data, by rank."""
    collectives: dict[str, dict]
    """Number, seconds and bytes of the collectives, by rank and name."""


@dataclass
class Product(Closed):
    flops_per_second: Positive
    """Floating-point operations a second in the fastest matrix product, in the precision of the runs, on the device or on the cores and
    threads of a rank."""
    library: str | None = None
    """Library that computes it, with its version. `null` where it is not known."""
    instruction_set: str | None = None
    """What the library says of its kernels: the instruction set (oneDNN) or the processor they are for (OpenBLAS). `null` where it does not
    say, as MKL."""
    measured_at: Moment | None = None
    """When it was measured: a matrix may take what another has measured on the node in the hour before."""


@dataclass
class MpiCalls(Closed):
    num_calls: FromZero
    size_bytes: Amount
    seconds: Seconds
    waited_seconds: Seconds = 0.0


@dataclass
class MpiKinds(Closed):
    """Calls by what they are for."""

    control: MpiCalls
    payload: MpiCalls
    completion: MpiCalls | None = None
    io: MpiCalls | None = None
    other: MpiCalls | None = None


@dataclass
class MpiOfRank(Closed):
    communication_seconds: Seconds
    kinds: MpiKinds | None
    payload_bytes_per_second: Amount | None
    elapsed_seconds: Seconds | None = None
    ended: str | None = None


@dataclass
class MpiProfile(Closed):
    ranks: dict[str, MpiOfRank]
    """Seconds in MPI; calls, bytes and seconds of payload and of control messages; bandwidth of the payload; by rank."""
    problems: list[str]
    """Profiles that could not be read, and the number of dropped events, one line each."""


@dataclass
class Gpu(Closed):
    model: str | None
    """Model of the GPU, from NVML."""
    pci_bus_id: str | None
    """PCI bus id of the GPU on its node, as domain:bus:device.function."""
    driver: str | None
    """Version of the driver, from NVML."""
    cuda: str | None
    """Version of CUDA that the framework is built with."""
    cudnn: str | None
    """Version of cuDNN that the framework loads (PyTorch) or is built with (TensorFlow)."""
    nccl: str | None
    """Version of the NCCL that PyTorch loads, or that Horovod is built with."""


@dataclass
class Processor(Closed):
    vendor: str | None = None
    """Vendor, as in `/proc/cpuinfo`: `AuthenticAMD`, `GenuineIntel`, or the number of the implementer of an Arm core."""
    family: FromZero | None = None
    """Family; of an Arm core the architecture."""
    model: FromZero | None = None
    """Model; of an Arm core the part."""
    stepping: FromZero | None = None
    """Stepping; of an Arm core the revision."""
    l3_bytes: FromZero | None = None
    """Bytes of the level 3 cache that rank 0 uses."""
    l3_shared_by: str | None = None
    """Hardware threads that share this cache, as Linux lists them, such as 0-7."""
    hypervisor: str | None = None
    """Hypervisor under which the node runs, from lscpu. `null` on hardware of its own."""
    governor: str | None = None
    """Governor of the frequency of rank 0's first core. `null` where Linux shows none, as on many virtual machines."""


@dataclass(kw_only=True)
class Environment(Closed):
    # What is known of a machine differs between versions: what is not described here is left out.
    __pydantic_config__: ClassVar = Closed.__pydantic_config__ | {"extra": "ignore"}

    python: str
    """Version of Python."""
    packages: dict[str, str]
    """Versions of the installed packages that affect a run, by name."""
    mpi: str | None
    """Name and version of the MPI library."""
    host: str
    """Host name."""
    os: str
    """Operating system with its version."""
    cpu: str
    """Name that the processor gives itself."""
    processor: Processor | None = None
    """Processor of the node, by which libraries choose their kernels. `null` in older records."""
    instruction_sets: list[str] | None
    """Vector and matrix instruction sets of the processor, by their names in the Linux kernel."""
    num_cores: FromOne
    """Number of physical cores of the node; hardware threads of one core count once."""
    cores_by_rank: Annotated[list[list[FromZero] | None], BY_RANK] | None = None
    """Numbers of the hardware threads that each rank runs on, by rank, read from its threads after the warm-up."""
    quota_cores: Positive | None = None
    """Number of cores that the smallest CPU quota of a control group gives to rank 0 and the ranks beside it. `null` without a quota."""
    numa_nodes_of_rank_0: list[FromZero] | None = None
    """Numbers of the NUMA nodes to which the cores of rank 0 belong."""
    device: Literal["cpu", "cuda"] | None = None
    """Device that was used; `settings.device` is what was asked for."""
    framework_has_cuda: bool | None = None
    """Whether the backend's build of PyTorch or TensorFlow has CUDA."""
    gpu: Gpu | None = None
    """GPU of rank 0 and its software. `null` on a CPU."""
    allocator_keeps: bool
    """Whether the C library keeps the memory of large buffers between steps."""
    memory_bytes: FromZero
    """Main memory of the node in bytes."""
    git_commit: str | None
    """Commit of the checkout."""
    git_changed: bool
    """Whether tracked files of the checkout differ from its commit."""
    variables: dict[str, str]
    """Environment variables that affect a run, from a fixed list. No others are recorded."""
    ignored_variables: dict[str, str] | None = None
    """Environment variables that would have bound threads or set their number, and that were removed."""


@dataclass(kw_only=True, slots=True)
class Record(Closed):
    """Settings, environment and measurements of one run. `null` means that a value is not known or does not apply."""

    __pydantic_config__: ClassVar = Closed.__pydantic_config__ | {"title": "Record of one run"}

    schema: Schema = SCHEMA
    """Version of this layout. Records of another version are not read."""
    status: Literal["started", "ok", "diverged", "failed", "timeout"] = "started"
    """State of the run. `ok`: the run completed, whether or not it reached the target. `diverged`: it ended with an epoch after which a
    loss or a parameter was not finite. `timeout`: it exceeded its time limit."""
    error: str | None = None
    """Cause of the failure in one line. `null` unless `status` is `diverged`, `failed` or `timeout`."""
    launcher_error: str | None = None
    """What the launcher of a completed run reported afterwards, in one line: a rank that it killed while leaving, an exit status, or the
    time limit. The run had trained, compared its replicas and recorded everything. `null` if the launcher ended without an error."""
    started_at: Moment
    """Start of the run in UTC."""
    backend: str
    """Name of a file in `frameworks/`, with `@VALUE` for a variant (`deepspeed_zero@3`: ZeRO stage 3)."""
    workload: str
    """Name of a workload in `common/workloads.py`."""
    workload_digest: str | None = None
    """SHA-256 of the model, data, target, optimizer, batch size, schedule and precision. Records that differ in it are not compared."""
    num_ranks: FromOne
    """World size: the number of processes."""
    data_parallel_degree: FromOne
    """Number of shards of a global batch: the number of ranks, without servers, over that of the ranks that compute one model together."""
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
    target: Share | None
    """Accuracy to reach, from 0 to 1. `null` for a workload that measures throughput alone."""
    reached: bool | None = None
    """Whether an evaluation met the target. `null` without a target."""
    time_to_solution_seconds: Seconds | None = None
    """Seconds from before the first access to the data to the end of the first evaluation that met the target. `null` if none did, and for
    a run that resumed after one epoch or more."""
    accuracy: Share | None = None
    """Accuracy of the last evaluation, from 0 to 1: the share of held-out labels, or next tokens, that are predicted correctly."""
    samples_per_second: Positive | None = None
    """Training throughput over all epochs, without evaluation. A sample is an image or a sequence; padding does not count."""
    training_flops_per_sample: FromOne | None = None
    """Floating-point operations to train on one sample, by the formulas of `common/model/families.py`. A multiplication with its addition
    counts as two."""
    flops_per_second_per_rank: Positive | None = None
    """These operations in a second of training on each rank that computes."""
    peak_flops_per_second: Positive | None = None
    """The most floating-point operations a second that a matrix product reaches, in the precision of the run and on the device and threads
    of a rank: of `products` and of the framework's own product after training, which alone it is in a run outside a matrix. The latter is
    the mean of all ranks, which measure at the same time. `null` for a rank with several GPUs."""
    peak_library: str | None = None
    """Name, as in `products`, of what reached `peak_flops_per_second`. `null` in older records, whose peak is of their own framework."""
    products: dict[str, Product] | None = None
    """Matrix products of the libraries at hand, by name: `PyTorch`, `oneDNN in PyTorch`, `TensorFlow` and `NumPy`. A matrix measures them
    on a node, one after the other, before its first run, or takes those of the last hour. `null` outside a matrix."""
    framework_product_share: Share | None = None
    """The framework's own product after training over `peak_flops_per_second`."""
    share_of_peak: Positive | None = None
    """`flops_per_second_per_rank` over `peak_flops_per_second`. Above 1, one of them is measured wrongly, or, in older records, the
    framework's product is slower than the machine's limit."""
    tokens_per_second: Positive | None = None
    """Training throughput in tokens that are predicted. `null` for images."""
    in_sync: bool | None = None
    """Whether all ranks had bitwise equal parameters before training and after each epoch. A run in which they differ is `failed`. Sharded
    parameters (ZeRO stage 3) have one copy: here it means that all ranks gathered equal parameters."""
    buffers_in_sync: bool | None = None
    """Whether all ranks had bitwise equal buffers, such as running statistics of batch norm, before training and after each epoch. Ranks
    evaluate with their own. `null` for a model without buffers."""
    oversubscribed: bool | None = None
    """Whether ranks need more cores than they run on, or than a CPU quota gives. Such a run does not measure scaling."""
    launch_seconds: Seconds | None = None
    """Seconds from the start of the launcher to the start of rank 0's process, with a resolution of 10 ms. `null` for a run outside a
    matrix."""
    import_seconds: Seconds | None = None
    """Seconds from the start of rank 0's process to the end of its imports."""
    init_seconds: Seconds | None = None
    """Seconds from the end of the imports to the start of training: process group, model, compilation and warm-up on synthetic samples."""
    load_seconds: Seconds | None = None
    """Seconds to read and prepare the data. They are part of the time to solution."""
    steps_per_turn: FromZero | None = None
    """Number of steps of a turn, which also ends with the epoch; 0 for a run that ran alone."""
    num_turns: FromZero | None = None
    """Number of turns in which the run trained, side by side with other runs; 0 for a run that ran alone."""
    turns_of_others_seconds: Seconds | None = None
    """Seconds of training in which the run was stopped while other runs had their turns. They are in no other time of the record."""
    check_seconds: Seconds | None = None
    """Seconds of Tandem's own work: comparing the parameters of all ranks, adding up the losses, and emptying the page cache
    (`--drop-caches`). They are in no other time of the record."""
    samples_per_epoch: FromOne | None = None
    """Number of samples trained in an epoch."""
    samples_dropped_per_epoch: FromZero | None = None
    """Number of samples left out of an epoch because they do not fill a global batch (`--last-batch drop`)."""
    samples_padded_per_epoch: FromZero | None = None
    """Number of samples of weight 0 that fill the last global batch (`--last-batch pad`)."""
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
    accuracies: list[Share | None] = field(default_factory=list)
    """Accuracy on all held-out samples after each epoch."""
    eval_losses: Numbers = field(default_factory=list)
    """Loss on all held-out samples after each epoch."""
    staleness: list[dict[Annotated[str, Pattern("[0-9]{1,9}", "digits")], FromZero]] | None = None
    """Number of updates of each epoch by their staleness, which is the number of other updates since the worker fetched its parameters.
    `null` if no server applies updates (`parameter_server`)."""
    left_out: list[str] | None = None
    """A line for each worker whose training failed, and without which the run went on."""
    peak_memory_bytes: FromOne | None = None
    """Peak resident memory of the rank that used most, in bytes. GPU memory is not included."""
    peak_memory_bytes_by_rank: CountsByRank | None = None
    """Peak resident memory of each rank's process in bytes."""
    tensor_bytes_by_rank: TensorBytesByRank | None = None
    """What each rank holds at three points of a warm-up step: parameters, gradients and optimizer state."""
    gpu_memory_by_rank: GpuMemoryByRank | None = None
    """Memory of the GPU of each rank."""
    reading: Reading | None = None
    """What reading the samples from disk took. `null` for data in memory."""
    checkpoint_io: CheckpointIo | None = None
    """What writing and reading checkpoints took. They are on the clock."""
    energy_joules: Positive | None = None
    """Energy of all nodes in joules, from the start of the clock to the end of the last epoch, checkpoints included. `null` if no source
    can be read on every node."""
    energy_source: EnergySource | None = None
    """Source of `energy_joules`. RAPL measures the packages and memory of a node; NVML measures the GPUs that a rank uses."""
    parameter_digests: list[Sha256] = field(default_factory=list)
    """SHA-256 of all parameters before training and after each epoch."""
    buffer_digests: list[Sha256] = field(default_factory=list)
    """SHA-256 of rank 0's buffers before training and after each epoch."""
    resumed_after_epochs: FromZero | None = None
    """Epochs of the checkpoint from which the run resumed; the record has no numbers of them. 0 if there was no checkpoint yet. `null`
    without `--resume`."""
    machine_noise: MachineNoise | None = None
    """How fast the machine was just before and after training, and what disturbed the run."""
    step_breakdown: StepBreakdown | None = None
    """Where the time of a step goes, measured on extra steps after training, off the clock. `null` with `--no-step-breakdown`, and in runs
    that are traced or profiled."""
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
    """Last lines that a run of a matrix printed before it failed or timed out, or before its launcher failed."""
