"""The nodes of ranks: those of a host file, the first of an allocation, and launchers that know none."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import which

from common import durable
from common.errors import UserError
from common.ranks import slurm
from launch.launchers.batch_systems import BATCH_SYSTEMS

# A name or an IPv4 address. Launchers take what follows a colon for a number of slots, and what begins with a dash for an option.
HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252})")
SLOTS = re.compile(r":\d{1,9}$")
# The number of characters that a message shows of a name.
MAX_SHOWN = 60
# Options by which launchers outside a batch system are given the nodes.
NODES_OPTIONS = ("f", "H", "host", "hosts", "hostfile", "machinefile", "hostlist")
OUTSIDE = f"list them with --hosts FILE, or run inside an allocation of {' or '.join(BATCH_SYSTEMS)}"


def read_text(path: str | Path) -> str:
    """Reads the text of a file in UTF-8, without a byte order mark. Raises UserError, with the line, for any other content."""
    try:
        return durable.read_bytes(Path(path)).decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = problem.object.count(10, 0, problem.start) + 1
        raise UserError(f"{path}, line {line}: byte {problem.object[problem.start]:#04x} is not UTF-8; save it as UTF-8") from None
    except (OSError, ValueError) as problem:
        raise UserError(f"{str(path)[:MAX_SHOWN]!r}: {getattr(problem, 'strerror', None) or problem}") from None


def hosts_in(path: str | Path) -> list[str]:
    """Reads the nodes of a host file, each once. A line has one, or a list such as `n[01-04],m1`. Raises UserError if there are none."""
    names: dict[str, None] = {}
    for number, line in enumerate(read_text(path).splitlines(), 1):
        location = f"{path}, line {number}"
        words = line.partition("#")[0].split()
        if further := [word for word in words[1:] if "=" not in word]:
            raise UserError(
                f"{location}: {further[0][:MAX_SHOWN]!r} follows a node; write one node per line, such as node1 or node1 slots=4"
            )
        try:
            names |= {_host(item, location): None for item in (slurm.hosts(words[0]) if words else ())}
        except ValueError as problem:
            raise UserError(f"{location}: {problem}") from None
    if not names:
        raise UserError(f"{path} lists no nodes; write one per line")
    return list(names)


def _host(item: str, location: str) -> str:
    name = SLOTS.sub("", item)
    if not HOST.fullmatch(name):
        raise UserError(f"{location}: {item[:MAX_SHOWN]!r} is no host name; write one node per line, such as node1")
    return name


def first_node_of(hosts: str | None, host_suffix: str) -> str | None:
    """Returns the first node, by the name of its fast interface, as rendezvous; None if there is no list of nodes."""
    nodes_file = hosts or os.environ.get("PBS_NODEFILE")
    # The variable may be left over from a job that has ended.
    if nodes_file and (hosts or os.path.exists(nodes_file)):
        node = hosts_in(nodes_file)[0]
    elif node_list := os.environ.get("SLURM_JOB_NODELIST"):
        node = slurm.first_host(node_list)
    else:
        return None
    return node.split(".")[0] + host_suffix if host_suffix else node


def unknown_nodes_problem(
    num_nodes: int, launcher: str, variables: Sequence[str], arguments: Sequence[str], environ: Mapping[str, str] | None = None
) -> str | None:
    """Returns why a launcher that is given no nodes, by its variables or arguments, cannot start ranks on so many; None if it can."""
    environ = os.environ if environ is None else environ
    system = next((name for name, kind in BATCH_SYSTEMS.items() if environ.get(kind.variable)), None)
    # Hydra and Open MPI start their daemons by srun.
    knows_nodes = system == "Slurm" and which("srun")
    has_nodes = any(map(environ.get, variables)) or any(
        argument.lstrip("-").partition("=")[0] in NODES_OPTIONS for argument in arguments if argument.startswith("-")
    )
    if num_nodes == 1 or knows_nodes or has_nodes:
        return None
    of_system, remedy = (f" in this job of {system}", BATCH_SYSTEMS[system].remedy) if system else ("", OUTSIDE)
    return f"{num_nodes} nodes are planned, and {launcher} knows none{of_system}: all ranks would be on one; {remedy}"
