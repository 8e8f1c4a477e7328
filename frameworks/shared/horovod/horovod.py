"""Shared by the Horovod backends: initialization over MPI or Gloo, environment variables and communication measurements."""

import math
import os
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from common.config import Settings, library_setting
from common.errors import UserError
from common.ranks import meeting, mpi, watchdog
from common.ranks.gpus import version_text
from common.ranks.launcher_variables import HOROVODRUN, Ranks
from common.ranks.meeting import (
    GLOO_INTERFACE,
    LOOPBACK,
    LOOPBACK_INTERFACE,
    expect_interface,
    expect_size,
    gathered,
    master_address,
)
from common.record import files
from common.record.parts import Transport
from common.trainer import Communication, ProfiledCommunication, Trainer
from frameworks.shared.horovod import horovod_timeline
from frameworks.shared.replaced import replaced

if TYPE_CHECKING:
    from horovod.runner.common.util.hosts import SlotInfo
    from torch import nn

    from frameworks.shared.pytorch.pytorch_trainer import PyTorchTrainer

TIMELINE_TIMEOUT_SECONDS = 5.0
# The fields of a SlotInfo that Horovod reads from variables, HOROVOD_RANK and so on.
SLOT_FIELDS = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
# As PyTorch's. Horovod's default is 30, and a run may stand for longer than that while others have their turns.
GLOO_TIMEOUT_SECONDS = 30 * 60
# Summed at the start and end of a profile as a barrier.
BARRIER = np.zeros(1)
# Horovod's names -> those of common/training/step_breakdown.py.
OPERATIONS = {"ALLREDUCE": "all_reduce", "ALLGATHER": "all_gather", "REDUCESCATTER": "reduce_scatter", "ALLTOALL": "all_to_all"}


def begin(hvd: ModuleType, settings: Settings, ranks: Ranks, on_gpu: bool) -> Transport:
    """Initializes Horovod and returns the transport of its gradients: mpi, gloo or nccl.

    Raises UserError if Horovod has a different number of ranks, or for Gloo on GPUs or under the controller of MPI.
    """
    os.environ |= variables(settings)
    # Allows start_timeline later; no timeline is written until then.
    os.environ.setdefault("HOROVOD_TIMELINE", "DYNAMIC")
    if settings.transport == "gloo":
        if on_gpu:
            raise UserError("Horovod does not average gradients of GPUs over Gloo; use --device cpu, or leave gloo out for NCCL or MPI")
        begin_over_gloo(ranks)
    elif is_gloo("HOROVOD_CPU_OPERATIONS") and hvd.mpi_built() and not is_gloo("HOROVOD_CONTROLLER"):
        raise UserError("Horovod's MPI controller crashes with HOROVOD_CPU_OPERATIONS=gloo; unset it, and give --transport gloo for Gloo")
    elif ranks.source not in meeting.WITHOUT_MPI and mpi.problem() is None:
        # Horovod takes MPI as it finds it, and would wait in it without a limit.
        meeting.joined(ranks)
    with watchdog.joining(ranks.rank, lambda: "in hvd.init()"):
        hvd.init()
    expect_size(ranks, hvd.size(), "Horovod")
    if on_gpu and hvd.nccl_built():
        return "nccl"
    return "mpi" if hvd.mpi_enabled() else "gloo"


def begin_over_gloo(ranks: Ranks) -> None:
    """Starts Horovod's own rendezvous server on rank 0 and sets the variables that make Horovod use Gloo.

    With HOROVOD_CPU_OPERATIONS=gloo alone, under its MPI controller, Horovod 0.28 ends in a segmentation fault.
    Raises UserError if MPI has a different number of ranks. Under horovodrun there is a server, and nothing to do.
    """
    expect_host_name()
    if ranks.source == HOROVODRUN.name:
        return
    on_one_node = ranks.local_size == ranks.size
    if not on_one_node:
        expect_interface()
    slots = slots_of(gathered((socket.gethostname(), ranks.local_rank), ranks))
    address = master_address(socket.gethostname(), on_one_node)
    address, port = gathered((address, serve_rendezvous(slots, LOOPBACK if on_one_node else "") if ranks.rank == 0 else None), ranks)[0]
    interface = LOOPBACK_INTERFACE if on_one_node else os.environ.get(GLOO_INTERFACE)
    if interface:
        os.environ.setdefault("HOROVOD_GLOO_IFACE", interface)
    os.environ.setdefault("HOROVOD_GLOO_TIMEOUT_SECONDS", str(GLOO_TIMEOUT_SECONDS))
    os.environ |= {
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": address,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
        "HOROVOD_HOSTNAME": slots[ranks.rank].hostname,
        **{f"HOROVOD_{name}": str(getattr(slots[ranks.rank], name.lower())) for name in SLOT_FIELDS},
    }


def expect_host_name() -> None:
    """Raises UserError where Gloo, which looks up the host's own name whatever interface it is given, would crash."""
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except (OSError, UnicodeError):
        raise UserError(
            f"Horovod over Gloo looks up the name of its host, and {name} has no address; add it to /etc/hosts, or leave gloo out for MPI"
        ) from None


def serve_rendezvous(slots: Sequence["SlotInfo"], address: str) -> int:
    """Starts Horovod's rendezvous server in a thread of this process, listening at an address, empty for all; returns its port."""
    # Imported here because only rank 0 of a run over Gloo needs it.
    from horovod.runner.http import http_server

    find_port = http_server.find_port
    server = http_server.RendezvousServer()
    with replaced((http_server, "find_port", lambda make: find_port(lambda bound: make((address, bound[1]))))):
        port = server.start()
    server.init(slots)
    return port


def slots_of(processes: Sequence[tuple[str, int]]) -> list["SlotInfo"]:
    """Returns Horovod's SlotInfo of each rank, from the host and local rank of each. Cross ranks number the ranks with one local rank."""
    from horovod.runner.common.util.hosts import SlotInfo

    slots = []
    for rank, (host, local_rank) in enumerate(processes):
        crossing = [number for number, process in enumerate(processes) if process[1] == local_rank]
        local_size = sum(process[0] == host for process in processes)
        slots.append(SlotInfo(host, rank, local_rank, crossing.index(rank), len(processes), local_size, len(crossing)))
    return slots


def is_gloo(variable: str) -> bool:
    """Returns whether an environment variable of Horovod chooses Gloo."""
    return os.environ.get(variable, "").lower() == "gloo"


def end(hvd: ModuleType, ranks: Ranks) -> None:
    """Leaves Horovod."""
    over_mpi = hvd.mpi_enabled()
    hvd.shutdown()
    if not over_mpi and ranks.source != HOROVODRUN.name:
        # Ranks leave with a message to the server, which ends with rank 0's process.
        gathered(None, ranks)


def device_problem(hvd: ModuleType, device: str) -> str | None:
    """Returns why Horovod cannot all-reduce on `cpu` or `cuda`; None if it can."""
    return "this Horovod has no CUDA" if device == "cuda" and not hvd.cuda_built() else None


def nccl_version(hvd: ModuleType) -> str | None:
    """Returns the version of the NCCL that Horovod was built with; None without."""
    return version_text(hvd.nccl_built())


def variables(settings: Settings) -> dict[str, str]:
    """Returns environment variables for --library-setting and the timeline, for which it creates the trace folder."""
    by_name = {name: str(value) for name, value in library_setting(settings).items()}
    if settings.timeline:
        by_name["HOROVOD_TIMELINE"] = str(files.make_trace_folder(settings, "--timeline") / horovod_timeline.FILE)
    return by_name


def expect_contiguous(module: "nn.Module") -> None:
    """Raises UserError for parameters that Horovod does not take, such as those with channels last."""
    for name, parameter in module.named_parameters():
        if not parameter.is_contiguous():
            raise UserError(f"Horovod does not take {name}, which is not contiguous, as with channels_last; leave that out, or use ddp")


def communication_of_torch(hvd: ModuleType, trainer: "PyTorchTrainer") -> Communication:
    """Returns how to measure the communication of a PyTorch trainer."""

    def without_communication() -> AbstractContextManager[None]:
        # Horovod's optimizer gets each tensor itself, instead of its sum.
        return replaced(
            (hvd.optimizer, "allreduce_async_", lambda tensor, **_: lambda: tensor),
            (hvd.optimizer, "synchronize", lambda handle: handle()),
            (trainer.optimizer, "_compression", hvd.Compression.none),
        )

    return communication(hvd, trainer, without_communication)


def communication(hvd: ModuleType, trainer: Trainer, without_communication: Callable[[], AbstractContextManager[None]]) -> Communication:
    """Returns how to measure the communication of a trainer; `without_communication` as in Communication."""
    return Communication(without_communication, lambda train: _profiled(hvd, trainer, train))


def _profiled(hvd: ModuleType, trainer: Trainer, train: Callable[[], None]) -> ProfiledCommunication:
    """Returns the ProfiledCommunication from Horovod's timeline; NaN on ranks other than 0, and if the timeline is not written in time."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "timeline.json"
        hvd.start_timeline(str(path))
        trainer.sum(BARRIER)
        train()
        trainer.sum(BARRIER)
        hvd.stop_timeline()
        is_written = trainer.ranks.rank == 0 and _wait_for_timeline(path)
        return profile_of(path) if is_written else ProfiledCommunication(math.nan, {})


def _wait_for_timeline(path: Path) -> bool:
    """Waits until Horovod's writer thread has completed a timeline; False after TIMELINE_TIMEOUT_SECONDS."""
    deadline = time.monotonic() + TIMELINE_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        if path.exists() and path.read_bytes().endswith(b"]"):
            return True
        time.sleep(0.01)
    return False


def profile_of(path: Path) -> ProfiledCommunication:
    """Returns the ProfiledCommunication of a timeline, without the barriers, which are smaller than any tensor of a step."""
    # Imported here because ijson would lengthen the start of every run.
    from common import chrome_trace

    operations: dict[str, tuple[int, int]] = {}
    seconds = 0.0
    for event in horovod_timeline.read(chrome_trace.events(path)):
        if isinstance(event, horovod_timeline.Operation) and event.size_bytes != BARRIER.nbytes:
            name = OPERATIONS.get(event.name, event.name.lower())
            num_calls, num_bytes = operations.get(name, (0, 0))
            operations[name] = num_calls + 1, num_bytes + (event.size_bytes or 0)
            seconds += (event.end - event.start) / 1e6
    return ProfiledCommunication(seconds, operations)
