"""The parts of a record, with types and descriptions, the kinds of its values, and the parts about the traces of a run.

Its keys are in common/record/definition.py.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from common.bounds import Bounds, Pattern

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
Transport = Literal["mpi", "gloo", "nccl", "grpc"]
# A number that is not finite is written as null.
Number = Annotated[float, Bounds(at_least=-1e40, at_most=1e40)]
Numbers = list[Number | None]
Rates = list[Positive | None]
SecondsByRank = Annotated[list[Seconds], BY_RANK]
CountsByRank = Annotated[list[FromZero], BY_RANK]


class Part:
    """A part of a record. Keys that its class does not have, as in records of other versions, are left out when it is read."""

    __slots__ = ()
    # For pydantic, which reads records and generates the schema; a training process does not import it.
    __pydantic_config__: ClassVar = {
        "extra": "ignore", "strict": True, "allow_inf_nan": False,
        "use_attribute_docstrings": True, "json_schema_serialization_defaults_required": True,
    }  # fmt: skip


@dataclass
class Operation(Part):
    """Calls and bytes of a collective."""

    num_calls: Amount
    num_bytes: Amount


@dataclass(kw_only=True)
class StepBreakdown(Part):
    num_steps: FromOne
    """Number of steps in a measured block."""
    step_seconds: SecondsByRank
    """Seconds of a step with communication, by rank."""
    data_wait_seconds: SecondsByRank
    """Seconds of a step in which the rank waits for data, by rank."""
    compute_seconds: SecondsByRank
    """Seconds of a step without communication, less its wait for data, by rank. Horovod's own threads, which ask all ranks every
    millisecond whether tensors are ready, are part of it."""
    communication_exposed_seconds: Annotated[list[Annotated[float, Bounds(at_least=-1e12, at_most=1e12)]], BY_RANK]
    """Seconds of exposed (non-overlapped) communication in a step, by rank, with packing and waiting. It is a difference of two
    measurements, which noise can make negative. This, `data_wait_seconds` and `compute_seconds` add up to `step_seconds`."""
    communication_seconds: Annotated[list[Seconds | None], BY_RANK]
    """Seconds of a step in which a collective runs, overlapped or not, by rank. PyTorch's profiler measures MPI, Gloo and NCCL; Horovod's
    timeline measures rank 0 alone; operations of TensorFlow's graph measure gRPC."""
    operations: dict[str, Operation]
    """Calls of each collective, such as `all_reduce`, in a step, and the bytes that one rank contributes to them."""
    bus_bytes_per_second: Amount | None
    """Bus bandwidth of the collectives in bytes per second, by the convention of nccl-tests, from the mean time of the ranks."""


@dataclass
class BytesByRank(Part):
    """What each rank holds at a point of a step, in bytes by rank. It counts the memory of tensors: no activations, and nothing that a
    library keeps to itself, such as DDP's buckets and Horovod's fusion buffer."""

    parameters: CountsByRank
    """Parameters, whole and sharded."""
    gradients: CountsByRank
    """Gradients, whole and sharded."""
    optimizer_state: CountsByRank
    """Optimizer state, with the master parameters that DeepSpeed updates."""


@dataclass
class TensorBytesByRank(Part):
    after_forward: BytesByRank
    """After the forward pass."""
    after_backward: BytesByRank
    """After the backward pass, before the optimizer's step. This and `after_step` have the keys of `after_forward`."""
    after_step: BytesByRank
    """After the optimizer's step."""


@dataclass
class GpuMemoryByRank(Part):
    peak_allocated_bytes: Annotated[list[FromZero | None], BY_RANK]
    """Most bytes that the framework's tensors had at once, from the start of the clock to the end of the last epoch."""
    peak_reserved_bytes: Annotated[list[FromZero | None], BY_RANK]
    """Most bytes that the framework's allocator had of the GPU at once, in the same time. `null` for TensorFlow."""
    used_bytes: Annotated[list[FromZero | None], BY_RANK]
    """Bytes in use on the whole GPU after the last epoch, of all processes, the driver and NCCL, from NVML."""


@dataclass
class Reading(Part):
    """The value of `reading`: what reading the samples of the training took, without those of evaluations."""

    num_steps: FromZero
    """Number of training steps for which samples were read."""
    wait_seconds_by_rank: SecondsByRank
    """Seconds in these steps in which the training of each rank waited for samples. Without `--num-workers` this is all of the reading."""
    sample_bytes_by_rank: CountsByRank
    """Bytes of the samples that each rank read."""


@dataclass
class MachineNoise(Part):
    product_flops_per_second: Rates
    """Floating-point operations a second in matrix products, just before and just after training, off the clock. All ranks measure at the
    same time, each on its own cores, and the number is that of the slowest."""
    copy_bytes_per_second: Rates
    """Bytes a second, read and written, in a copy of memory, measured in the same way."""


@dataclass
class Gpu(Part):
    model: str | None
    """Model of the GPU, from PyTorch or NVML."""
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
class Processor(Part):
    vendor: str | None = None
    """Vendor, as in `/proc/cpuinfo`: `AuthenticAMD`, `GenuineIntel`, or the number of the implementer of an Arm core."""
    family: FromZero | None = None
    """Family; of an Arm core the architecture."""
    model: FromZero | None = None
    """Model; of an Arm core the part."""
    hypervisor: str | None = None
    """Hypervisor under which the node runs, from lscpu. `null` on hardware of its own."""


@dataclass(kw_only=True)
class Environment(Part):
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
    host_by_rank: Annotated[list[str], BY_RANK] | None = None
    """Host name of each rank, by rank. `null` in older records."""
    cores_by_rank: Annotated[list[list[FromZero] | None], BY_RANK] | None = None
    """Numbers of the hardware threads that each rank runs on, by rank, read from its threads after the warm-up."""
    numa_nodes_by_rank: Annotated[list[list[FromZero]], BY_RANK] | None = None
    """Numbers of the NUMA nodes of those hardware threads, by rank. `null` in older records."""
    quota_cores: Positive | None = None
    """Number of cores that the smallest CPU quota of a control group gives to rank 0 and the ranks beside it. `null` without a quota."""
    device: Literal["cpu", "cuda"] | None = None
    """Device that was used; `settings.device` is what was asked for."""
    gpu: Gpu | None = None
    """GPU of rank 0 and its software. `null` on a CPU."""
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


@dataclass
class Timeline(Part):
    trace: str | None
    """File name of the merged trace in the folder `RUN.trace`. `null` if nothing could be merged."""
    problems: list[str]
    """Problems that occurred when the traces were merged, one line each."""


@dataclass
class MpiCalls(Part):
    num_calls: FromZero
    size_bytes: Amount
    seconds: Seconds


@dataclass
class MpiKinds(Part):
    """Calls by what they are for."""

    control: MpiCalls
    payload: MpiCalls
    completion: MpiCalls | None = None
    io: MpiCalls | None = None
    other: MpiCalls | None = None


@dataclass
class MpiOfRank(Part):
    communication_seconds: Seconds
    kinds: MpiKinds | None
    payload_bytes_per_second: Amount | None
    elapsed_seconds: Seconds | None = None
    ended: str | None = None


@dataclass
class MpiProfile(Part):
    ranks: dict[str, MpiOfRank]
    """Seconds in MPI; calls, bytes and seconds of payload and of control messages; bandwidth of the payload; by rank."""
    problems: list[str]
    """Profiles that could not be read, and the number of dropped events, one line each."""
