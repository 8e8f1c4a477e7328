"""Room in /dev/shm, through which the ranks of a node exchange: a container has 64 MB of it by default."""

import os
from pathlib import Path
from typing import NamedTuple

FOLDER = Path("/dev/shm")
# What MPICH takes there, measured at 2 to 16 ranks.
BYTES_PER_RANK = 5.4e6
REMEDY = "make it larger (mount -o remount,size=1g /dev/shm, or --shm-size=1g of docker), or remove what is left of ended runs there"
MB = 1e6


class Room(NamedTuple):
    """Bytes of /dev/shm that are free, and in all."""

    free: int
    total: int


def room(folder: Path = FOLDER) -> Room | None:
    """Returns the Room of this node; None where it has no such folder."""
    try:
        file_system = os.statvfs(folder)
    except OSError:
        return None
    return Room(file_system.f_bavail * file_system.f_frsize, file_system.f_blocks * file_system.f_frsize)


def needed(num_ranks: int) -> float:
    """Bytes that so many ranks of a node take."""
    return num_ranks * BYTES_PER_RANK


def describe(room: Room, num_ranks: int) -> str:
    """Describes the Room of a node beside what its ranks take."""
    ranks = "1 rank takes" if num_ranks == 1 else f"{num_ranks} ranks take"
    free, total = room.free / MB, room.total / MB
    return f"/dev/shm has {free:.0f} of {total:.0f} MB free, and with MPICH {ranks} {needed(num_ranks) / MB:.0f}"
