"""What a node on which ranks run answers about backends and about itself, as JSON."""

from typing import Literal, TypedDict, final

DeviceName = Literal["cpu", "cuda"]
DEVICES: tuple[DeviceName, ...] = ("cpu", "cuda")


@final
class Mpi(TypedDict):
    """The MPI that mpi4py loads, and why it does not start; None if it does."""

    version: str
    path: str
    problem: str | None


@final
class NoMpi(TypedDict):
    """Why mpi4py cannot load MPI."""

    error: str


class Node(TypedDict):
    """What launch/run/node.py finds on a node."""

    host: str
    packages: dict[str, str]
    num_cores: int
    num_cores_allowed: int
    ignored_variables: dict[str, str]
    quota_cores: float | None
    available_bytes: float
    interfaces: list[str]
    # The names of its devices for remote access to memory.
    rdma_devices: list[str]
    mpi: Mpi | NoMpi
    # As a Room of common/process/shared_memory.py.
    shared_memory: tuple[int, int] | None
    # The path of Horovod's MPI library, or `not found`; None where Horovod has none.
    horovod: str | None
    # The model of each GPU, and last the driver's version.
    gpu: list[str]
    num_gpus: int
    # Versions of the packages of NCCL.
    nccl: list[str]
    # The variables that select GPUs.
    visible: dict[str, str]


class Answer(TypedDict, total=False):
    """Why a backend cannot train on a node, None where it can, and what is known of the node."""

    cpu: str | None
    cuda: str | None
    # Why it cannot train with --mkl-kernels fast.
    mkl_kernels: str | None
    # Why the backend cannot be imported; it has no key of a device then.
    error: str
    # Why a device does not compute in the precision of the runs.
    precision: dict[DeviceName, str | None]
    # GPUs for all ranks of the node; None where that is not known.
    num_gpus: int | None
    node: Node
