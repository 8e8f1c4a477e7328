"""Two hosts on this machine: network namespaces with names and addresses of their own, joined by one link."""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from shutil import which

from tests.support.running import BIN, environ

HOSTS = {"tandem1": "10.77.0.1", "tandem2": "10.77.0.2"}
# What Hydra calls in place of ssh: [options] host command.
REACH = """#!/usr/bin/env bash
while [[ $1 == -* ]]; do shift; done
host=$1
shift
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
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, check=False)
    subprocess.run(["ip", "netns", "del", probe], capture_output=True, check=False)
    return None if made.returncode == 0 else f"network namespaces cannot be made here: {made.stderr.strip()}"


@contextlib.contextmanager
def joined():
    """Makes both hosts and their link; gives the folder with `reach`, which runs a command on one of them, `hosts`,
    their names, and `two.toml`, their machine file."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    (folder / "reach").write_text(REACH)
    (folder / "reach").chmod(0o755)
    (folder / "hosts").write_text("".join(f"{name}\n" for name in HOSTS))
    (folder / "two.toml").write_text(MACHINE)
    known = "127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in HOSTS.items())
    first, second = HOSTS
    try:
        for name in HOSTS:
            # `ip netns exec` shows a host its own /etc/hosts.
            Path("/etc/netns", name).mkdir(parents=True, exist_ok=True)
            Path("/etc/netns", name, "hosts").write_text(known)
            ip("netns", "add", name)
        ip("link", "add", "link0", "netns", first, "type", "veth", "peer", "name", "link0", "netns", second)
        for name, address in HOSTS.items():
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "link0")
            for device in ("link0", "lo"):
                ip("-n", name, "link", "set", device, "up")
        yield folder
    finally:
        for name in HOSTS:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
            shutil.rmtree(Path("/etc/netns", name), ignore_errors=True)
        shutil.rmtree(folder)


def ip(*arguments):
    subprocess.run(["ip", *arguments], capture_output=True, text=True, check=True)


def matrix(folder, checkout, results, backend, *settings):
    """Trains a backend with a rank on each host; gives its record. `settings` are arguments of the matrix."""
    arguments = (2, "--backends", backend, *settings, "--machine", "here", "--results", results)
    done = on_both(folder, checkout, "launch.matrix", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = results.glob("here/*.json")
    return json.loads(path.read_text())


def on_both(folder, checkout, module, *arguments):
    """The completed process of a program of launch on the first host, which starts a rank on each of both."""
    where = ("--hosts", folder / "hosts", "--machine-file", folder / "two.toml")
    on_first = ["ip", "netns", "exec", "tandem1", "unshare", "--uts", "sh", "-c", 'hostname tandem1; exec "$@"', "sh"]
    return subprocess.run(
        [str(part) for part in (*on_first, BIN / "python", "-m", module, *arguments, *where)],
        cwd=checkout,
        env=environ() | {"HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": str(folder / "reach")},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


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
