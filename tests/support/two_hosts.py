"""Two hosts on this machine: namespaces of network, name and mounts with a real sshd and further files of their own, joined by one link."""

import contextlib
import json
import subprocess
import tempfile
from pathlib import Path
from shutil import which
from typing import NamedTuple

from tests.support.running import BIN, completed

HOSTS = {"tandem1": "10.77.0.1", "tandem2": "10.77.0.2"}
# Nobody has the address of the one, and nobody knows the key of the other, which is the second host by a further name.
DOWN, STRANGER = "tandem3", "stranger"
ADDRESSES = HOSTS | {DOWN: "10.77.0.3", STRANGER: HOSTS["tandem2"]}
PROGRAMS = {"iproute2": ("ip", "tc"), "util-linux": ("unshare", "nsenter", "setsid"), "openssh-server": ("sshd", "ssh", "ssh-keygen")}
NAMESPACES = ("--net", "--uts", "--mount")

# A host, with files of the current folder; it ends with its sshd, which writes below /run and /var/log. UCX reads of the network in /sys.
START = """set -e
hostname "$1"
mount -t sysfs sysfs /sys
for folder in /run /var/log; do mount -t tmpfs tmpfs $folder; done
mkdir /run/sshd
mount --bind hosts /etc/hosts
mount --bind ssh /etc/ssh
echo started
exec "$2" -D -h "/etc/ssh/$1"
"""
# sshd otherwise wants that nobody else can write above the key, as in a temporary folder.
SSHD_CONFIG = """AuthorizedKeysFile /etc/ssh/client.pub
StrictModes no
"""
SSH_CONFIG = """IdentityFile /etc/ssh/client
IdentitiesOnly yes
UserKnownHostsFile none
"""
# UCX sees that both hosts are one machine, and would go around the link through shared memory.
MACHINE = """ranks_per_node = 1
[variables]
UCX_TLS = "tcp"
UCX_NET_DEVICES = "link0"
"""


class Hosts(NamedTuple):
    """The hosts: a folder with the host files `both` and `last_first` and the machine file `two.toml`, and a process in each."""

    folder: Path
    pids: dict[str, int]

    def inside(self, host: str, *command: object) -> list[str]:
        """Returns a command that runs another one on a host."""
        return ["nsenter", "--target", str(self.pids[host]), *NAMESPACES, *map(str, command)]


def why_not():
    """Why no hosts can be made here; None where they can."""
    for package, programs in PROGRAMS.items():
        if missing := [program for program in programs if not which(program)]:
            return f"there is no {', '.join(missing)} here; install Debian's {package}"
    made = subprocess.run(["unshare", *NAMESPACES, "true"], capture_output=True, text=True, check=False)
    return None if made.returncode == 0 else f"namespaces cannot be made here: {made.stderr.strip()}"


@contextlib.contextmanager
def joined():
    """Makes both hosts and their link; gives the Hosts, each of which reaches both by ssh without a question."""
    first, second = HOSTS
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "both").write_text(f"{first}\n{second}\n")
        (folder / "last_first").write_text(f"{second}\n{first}\n")
        (folder / "two.toml").write_text(MACHINE)
        (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in ADDRESSES.items()))
        write_ssh(folder / "ssh")
        hosts = Hosts(folder, {host: started(host, folder, stack) for host in HOSTS})
        pids = hosts.pids
        succeed("ip", "link", "add", "link0", "netns", pids[first], "type", "veth", "peer", "name", "link0", "netns", pids[second])
        for host, address in HOSTS.items():
            succeed(*hosts.inside(host, "ip", "addr", "add", f"{address}/24", "dev", "link0"))
            for device in ("link0", "lo"):
                succeed(*hosts.inside(host, "ip", "link", "set", device, "up"))
        for host in HOSTS:
            succeed(*hosts.inside(first, "ssh", "-oConnectionAttempts=20", host, "true"))
        yield hosts


def write_ssh(folder):
    """Writes the /etc/ssh of both hosts: a key of each and one of a client, and who has them."""
    folder.mkdir()
    for name in (*HOSTS, "client"):
        succeed("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name)
    (folder / "ssh_known_hosts").write_text("".join(f"{host} {(folder / f'{host}.pub').read_text()}" for host in HOSTS))
    (folder / "sshd_config").write_text(SSHD_CONFIG)
    (folder / "ssh_config").write_text(SSH_CONFIG)


def started(host, folder, stack):
    """The process ID of the sshd of a host, which ends with the stack."""
    command = ["unshare", *NAMESPACES, "sh", "-c", START, "sh", host, which("sshd")]
    sshd = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    stack.callback(sshd.wait)
    stack.callback(sshd.terminate)
    assert sshd.stdout.readline() == "started\n"
    return sshd.pid


def succeed(*command):
    subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True)


def matrix(hosts, checkout, *arguments, nodes="both"):
    """The completed process of a matrix on the first host, which starts a rank on each node of a file; as in a job, without a terminal."""
    where = ("--hosts", hosts.folder / nodes, "--machine-file", hosts.folder / "two.toml", "--machine", "here")
    around = ("setsid", "--wait", "env", f"--chdir={checkout}", BIN / "python", "-m", "launch.matrix")
    return completed(*hosts.inside("tandem1", *around, *arguments, *where), seconds=500)


def bytes_sent(hosts):
    """Bytes that the first host has sent over the link so far."""
    shown = subprocess.run(hosts.inside("tandem1", "ip", "-json", "-stats", "link", "show", "link0"), capture_output=True, check=True)
    return json.loads(shown.stdout)[0]["stats64"]["tx"]["bytes"]


@contextlib.contextmanager
def narrowed(hosts, rate):
    """The link at a rate such as 100mbit, in both directions."""
    for host in HOSTS:
        shape = ("root", "tbf", "rate", rate, "burst", "64kb", "latency", "400ms")
        succeed(*hosts.inside(host, "tc", "qdisc", "add", "dev", "link0", *shape))
    try:
        yield
    finally:
        for host in HOSTS:
            succeed(*hosts.inside(host, "tc", "qdisc", "del", "dev", "link0", "root"))
