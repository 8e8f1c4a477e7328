"""Horovod over Gloo under an MPI launcher: the ranks meet at Horovod's own rendezvous server, which is in rank 0's process.

With HOROVOD_CPU_OPERATIONS=gloo alone, under its MPI controller, Horovod 0.28 ends in a segmentation fault.
"""

import os
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING

from common.errors import UserError
from common.process.meeting import LOOPBACK, LOOPBACK_INTERFACE, expect_loopback, gathered, master_address
from common.process.ranks import HOROVODRUN, Ranks
from frameworks.shared.replaced import replaced

if TYPE_CHECKING:
    from horovod.runner.common.util.hosts import SlotInfo

# The fields of a SlotInfo that Horovod reads from variables, HOROVOD_RANK and so on.
SLOT_FIELDS = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
# As PyTorch's. Horovod's default is 30, and a run may stand for longer than that while others have their turns.
TIMEOUT_SECONDS = 30 * 60


def begin(ranks: Ranks) -> None:
    """Starts the server on rank 0 and sets the variables that make Horovod use Gloo.

    Raises UserError if MPI has a different number of ranks. Under horovodrun there is a server, and nothing to do.
    """
    expect_host_name()
    if ranks.source == HOROVODRUN.name:
        return
    on_one_node = ranks.local_size == ranks.size
    if on_one_node:
        expect_loopback()
    slots = slots_of(gathered((socket.gethostname(), ranks.local_rank), ranks))
    address = master_address(socket.gethostname(), on_one_node)
    address, port = gathered((address, serve(slots, LOOPBACK if on_one_node else "") if ranks.rank == 0 else None), ranks)[0]
    interface = LOOPBACK_INTERFACE if on_one_node else os.environ.get("GLOO_SOCKET_IFNAME")
    if interface:
        os.environ.setdefault("HOROVOD_GLOO_IFACE", interface)
    os.environ.setdefault("HOROVOD_GLOO_TIMEOUT_SECONDS", str(TIMEOUT_SECONDS))
    os.environ |= {
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": address,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
        "HOROVOD_HOSTNAME": slots[ranks.rank].hostname,
        **{f"HOROVOD_{name}": str(getattr(slots[ranks.rank], name.lower())) for name in SLOT_FIELDS},
    }


def end(ranks: Ranks) -> None:
    """Waits until all ranks have left Horovod: they do so with a message to the server, which ends with rank 0's process."""
    if ranks.source != HOROVODRUN.name:
        gathered(None, ranks)


def expect_host_name() -> None:
    """Raises UserError where Gloo, which looks up the host's own name whatever interface it is given, would crash."""
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except (OSError, UnicodeError):
        raise UserError(
            f"Horovod over Gloo looks up the name of its host, and {name} has no address; add it to /etc/hosts, or leave gloo out for MPI"
        ) from None


def serve(slots: Sequence["SlotInfo"], address: str) -> int:
    """Starts Horovod's rendezvous server in a thread of this process, listening at an address, empty for all; returns its port."""
    # Imported here because only rank 0 of a run over Gloo needs it.
    from horovod.runner.http import http_server

    find_port = http_server.find_port
    server = http_server.RendezvousServer()
    with replaced((http_server, "find_port", lambda make: find_port(lambda place: make((address, place[1]))))):
        port = server.start()
    server.init(slots)
    return port


def slots_of(places: Sequence[tuple[str, int]]) -> list["SlotInfo"]:
    """Returns Horovod's SlotInfo of each rank, from the host and local rank of each. Cross ranks number the ranks with one local rank."""
    from horovod.runner.common.util.hosts import SlotInfo

    slots = []
    for rank, (host, local_rank) in enumerate(places):
        crossing = [number for number, place in enumerate(places) if place[1] == local_rank]
        local_size = sum(place[0] == host for place in places)
        slots.append(SlotInfo(host, rank, local_rank, crossing.index(rank), len(places), local_size, len(crossing)))
    return slots
