"""The network that NCCL chose between nodes, from its own log: a plugin may be missing, and then it uses TCP without a word."""

import os
import re
from collections.abc import MutableMapping

from common.process.ranks import Ranks

# Its own choice of what to log would be changed.
OF_USER = "NCCL_DEBUG"
SUBSYSTEMS = "INIT,NET"
# NCCL says the first in every version (src/init.cc), and the second since 2.27 (src/plugin/net.cc).
CHOSEN = re.compile(r"NCCL INFO (?:Using network|Assigned NET plugin) (.+?)(?: to comm.*)?$", re.MULTILINE)
# src/nccl_ofi_net.cpp of aws-ofi-nccl.
PLUGIN = re.compile(r"NCCL INFO NET/OFI Initializing (aws-ofi-(?:nccl|rccl) \S+)", re.MULTILINE)


def begin(ranks: Ranks, environ: MutableMapping[str, str] | None = None) -> int | None:
    """Lets NCCL log its choice into a file in memory, on rank 0 of several nodes. Returns the number of the file for `end`.

    It is called before NCCL starts. Returns None where the user reads NCCL's log.
    """
    environ = os.environ if environ is None else environ
    if ranks.rank or ranks.size == ranks.local_size or OF_USER in environ:
        return None
    number = os.memfd_create("nccl")
    environ.update({OF_USER: "INFO", "NCCL_DEBUG_SUBSYS": SUBSYSTEMS, "NCCL_DEBUG_FILE": f"/proc/self/fd/{number}"})
    return number


def end(number: int | None) -> str | None:
    """Returns the network that the log in the file of `begin` names. It is called after NCCL has started."""
    if number is None:
        return None
    with open(number, errors="replace") as file:
        file.seek(0)
        return network(file.read())


def network(log: str) -> str | None:
    """Returns the network that a log of NCCL names, with the version of its plugin; None where it names none."""
    chosen, plugin = CHOSEN.findall(log), PLUGIN.search(log)
    if not chosen:
        return None
    return f"{chosen[-1]} ({plugin[1]})" if plugin else chosen[-1]
