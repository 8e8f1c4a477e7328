"""Two hosts on this machine: network namespaces with names and addresses of their own, joined by one link."""

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from shutil import which

from tests.support.running import BIN, completed

# The names of the hosts are those of the whole machine.
LOCK = Path(tempfile.gettempdir()) / "tandem-two-hosts.lock"
HOSTS = {"tandem1": "10.77.0.1", "tandem2": "10.77.0.2"}
# What Hydra calls in place of ssh: [options] host command. What it starts on LATE_HOST begins after the others.
REACH = """#!/usr/bin/env bash
while [[ $1 == -* ]]; do shift; done
host=$1
shift
[ "$host" != "${LATE_HOST:-}" ] || sleep 5
exec ip netns exec "$host" unshare --uts sh -c "hostname $host; $*"
"""

# UCX sees that both hosts are one machine, and would go around the link through shared memory.
MACHINE = """ranks_per_node = 1
[variables]
UCX_TLS = "tcp"
UCX_NET_DEVICES = "link0"
"""


def why_not():
    """Why no namespaces can be made here; None where they can."""
    missing = [name for name in ("ip", "tc", "unshare") if not which(name)]
    if missing:
        return f"there is no {', '.join(missing)} here; install Debian's iproute2 and util-linux"
    probe = f"tandem-probe-{os.getpid()}"
    added = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, check=False)
    subprocess.run(["ip", "netns", "del", probe], capture_output=True, check=False)
    return None if added.returncode == 0 else f"network namespaces cannot be made here: {added.stderr.strip()}"


@contextlib.contextmanager
def joined():
    """Makes both hosts and their link, when nobody else has them; gives the folder with `reach`, which runs a command on one of them,
    `hosts`, their names, `last_first`, in the other order, and `two.toml`, their machine file."""
    first, second = HOSTS
    hosts_file = "127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in HOSTS.items())
    with LOCK.open("w") as lock, tempfile.TemporaryDirectory() as name:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "reach").write_text(REACH)
        (folder / "reach").chmod(0o755)
        (folder / "hosts").write_text("".join(f"{host}\n" for host in HOSTS))
        (folder / "last_first").write_text(f"{second}\n{first}\n")
        (folder / "two.toml").write_text(MACHINE)
        try:
            for host in HOSTS:
                # `ip netns exec` shows a host its own /etc/hosts.
                Path("/etc/netns", host).mkdir(parents=True, exist_ok=True)
                Path("/etc/netns", host, "hosts").write_text(hosts_file)
                ip("netns", "add", host)
            ip("link", "add", "link0", "netns", first, "type", "veth", "peer", "name", "link0", "netns", second)
            for host, address in HOSTS.items():
                ip("-n", host, "addr", "add", f"{address}/24", "dev", "link0")
                for device in ("link0", "lo"):
                    ip("-n", host, "link", "set", device, "up")
            yield folder
        finally:
            for host in HOSTS:
                subprocess.run(["ip", "netns", "del", host], capture_output=True, check=False)
                shutil.rmtree(Path("/etc/netns", host), ignore_errors=True)


def ip(*arguments):
    subprocess.run(["ip", *arguments], capture_output=True, text=True, check=True)


def on_both(folder, checkout, module, *arguments, hosts="hosts", **variables):
    """The completed process of a program of launch on the first host, which starts a rank on each of both, with further variables."""
    where = ("--hosts", folder / hosts, "--machine-file", folder / "two.toml")
    on_first = ["ip", "netns", "exec", "tandem1", "unshare", "--uts", "sh", "-c", 'hostname tandem1; exec "$@"', "sh"]
    variables |= {"HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": str(folder / "reach")}
    return completed(*on_first, BIN / "python", "-m", module, *arguments, *where, cwd=checkout, variables=variables, seconds=500)


def bytes_sent(host):
    """Bytes that a host has sent over the link so far."""
    counter = ["ip", "netns", "exec", host, "cat", "/sys/class/net/link0/statistics/tx_bytes"]
    return int(subprocess.run(counter, capture_output=True, text=True, check=True).stdout)


@contextlib.contextmanager
def narrowed(rate):
    """The link at a rate such as 100mbit, in both directions."""
    for name in HOSTS:
        shape = ("root", "tbf", "rate", rate, "burst", "64kb", "latency", "400ms")
        subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", "link0", *shape], capture_output=True, check=True)
    try:
        yield
    finally:
        for name in HOSTS:
            subprocess.run(["tc", "-n", name, "qdisc", "del", "dev", "link0", "root"], capture_output=True, check=True)
