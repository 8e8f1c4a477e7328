"""A Slurm of two virtual nodes on this machine: real slurmctld, slurmd and munged, everything of theirs in one folder.

Their cores have two hardware threads each, as those of most clusters, which Slurm counts. Two further nodes are as those of a site with
GPUs; nothing runs on them, and Slurm accepts jobs for them or does not.
"""

import contextlib
import os
import secrets
import socket
import subprocess
import time
from pathlib import Path
from shutil import which

# The first is one that every host can reach.
NODES = (socket.gethostname(), f"{socket.gethostname()}-2")
# Debian's plugin for PMIx opens a name that only libpmix-dev has.
PMIX = Path("/usr/lib/x86_64-linux-gnu/pmix2/lib/libpmix.so")
PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "salloc", "sinfo")
CORES = 4
GPU_NODES = "tandem-gpu[1-2]"
CONFIGURATION = """
ClusterName=tandem
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
TmpFS={folder}/tmp.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
MpiDefault=pmi2
ReturnToService=2
FirstJobId={first_job}
NodeName=DEFAULT Sockets=1 ThreadsPerCore=2 RealMemory=10000
NodeName={nodes[0]} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CoresPerSocket={cores}
NodeName={nodes[1]} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CoresPerSocket={cores}
NodeName={gpu_nodes} NodeAddr=127.0.0.1 CoresPerSocket=288 Gres=gpu:4
PartitionName=all Nodes={nodes[0]},{nodes[1]} Default=YES State=UP
PartitionName=gpus Nodes={gpu_nodes} State=UP
"""


def why_not():
    """Why no Slurm can be started here; None where it can."""
    missing = [name for name in PROGRAMS if not which(name)]
    if missing:
        return f"there is no {', '.join(missing)} here; install Debian's slurmctld, slurmd, slurm-client and munge"
    return None if os.geteuid() == 0 else "Slurm's daemons are started as root here"


@contextlib.contextmanager
def started(folder):
    """Starts the cluster; gives the variables with which Slurm's commands find it."""
    for name in ("state", *(f"tmp.{node}" for node in NODES)):
        (folder / name).mkdir(parents=True)
    if PMIX.parent.exists() and not PMIX.exists():
        PMIX.symlink_to("libpmix.so.2")
    # munged wants no one else to be able to write above its socket.
    folder.chmod(0o755)
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o600)
    configuration = folder / "slurm.conf"
    values = {
        "host": socket.gethostname(),
        "nodes": NODES,
        "folder": folder,
        "ports": free_ports(3),
        "cores": CORES,
        "gpu_nodes": GPU_NODES,
    }
    # MPICH names its shared memory by the job, and ranks that were killed leave theirs: those of a job with the same number would hang.
    first_job = secrets.choice(range(1, 2**25))
    configuration.write_text(CONFIGURATION.format(first_job=first_job, **values))
    variables = {"SLURM_CONF": str(configuration)}
    munge = [f"--{name}-file={folder}/munged.{name}" for name in ("log", "pid", "seed")]
    daemons = []
    try:
        for name, command in (
            ("munged", ["munged", "-F", "--force", f"--socket={folder}/munge.socket", f"--key-file={key}", *munge]),
            ("slurmctld", ["slurmctld", "-D", "-i"]),
            *((node, ["slurmd", "-D", "-N", node]) for node in NODES),
        ):
            with (folder / f"{name}.out").open("w") as log:
                daemons.append(subprocess.Popen(command, env=os.environ | variables, stdout=log, stderr=subprocess.STDOUT))
            time.sleep(0.5)
        wait_until_idle(folder, variables)
        yield variables
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            daemon.wait(timeout=20)


def wait_until_idle(folder, variables, limit_seconds=60):
    limit = time.monotonic() + limit_seconds
    message = ""
    while time.monotonic() < limit:
        listed = subprocess.run(
            ["sinfo", "-h", "-N", "-p", "all", "-o", "%t"],
            env=os.environ | variables,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        message = listed.stdout + listed.stderr
        if listed.stdout.split() == ["idle", "idle"]:
            return
        time.sleep(0.5)
    logs = "\n".join(f"{path.name}:\n{path.read_text()[-1000:]}" for path in sorted(folder.glob("*.out")))
    raise TimeoutError(f"the nodes did not become idle: {message}\n{logs}")


def free_ports(count):
    """Ports that nothing listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listening in sockets:
            listening.bind(("127.0.0.1", 0))
        return [listening.getsockname()[1] for listening in sockets]
