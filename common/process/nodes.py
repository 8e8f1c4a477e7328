"""Which node this is: ranks on one node share its GPUs, and a process can only stop and continue others of its node."""

import hashlib
import socket
from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def name():
    """Returns the name of this boot of the node's kernel, the same in all its containers; the host name where Linux does not tell."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return socket.gethostname()


def number():
    """Returns the name as a number that float64 holds."""
    return int.from_bytes(hashlib.sha256(name().encode()).digest()[:6])
