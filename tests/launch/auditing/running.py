"""Runs a training script on several ranks, in forks of this process, which imports before what takes long."""

import atexit
import contextlib
import importlib
import os
import runpy
import signal
import socket
import sys
import tempfile
import time
import traceback
from pathlib import Path

import torch

from tests.support.running import environ

TIME_LIMIT_SECONDS = 120
_kept = []
IMPORTED_BEFORE = (
    "horovod.torch",
    "deepspeed",
    "torch.distributed.algorithms.join",
    "torch.distributed.checkpoint.state_dict",
    "torch.distributed.fsdp",
    "torch.distributed.optim",
    "torch.utils.checkpoint",
)


def run(script_text, num_ranks, before=None, folder=None):
    """Returns the exit status of each rank of a script; `before` is called in each fork before the script, which runs as __main__.

    The script starts in a folder of its own, or in this one, with its output in rank-N.txt. Where one rank fails, the others are killed.
    """
    for module in IMPORTED_BEFORE:
        if module in script_text:
            importlib.import_module(module)
    with contextlib.ExitStack() as stack:
        folder = Path(folder or stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "train.py").write_text(script_text)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            variables = {
                "WORLD_SIZE": num_ranks,
                "LOCAL_WORLD_SIZE": num_ranks,
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": free.getsockname()[1],
            }
        if "horovod" in script_text:
            variables |= stack.enter_context(_horovod_over_gloo(num_ranks))
        pids = []
        for rank in range(num_ranks):
            of_rank = {f"{prefix}{name}": rank for prefix in ("", "HOROVOD_") for name in ("RANK", "LOCAL_RANK")}
            pid = os.fork()
            if not pid:
                _become(folder, rank, variables | of_rank, before)
            pids.append(pid)
        return _statuses(pids)


@contextlib.contextmanager
def _horovod_over_gloo(num_ranks):
    """The variables with which Horovod's ranks meet without a launcher, as long as the context lasts."""
    from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
    from horovod.runner.http.http_server import RendezvousServer

    server = RendezvousServer(verbose=0)
    port = server.start()
    server.init(get_host_assignments(parse_hosts(f"localhost:{num_ranks}"), num_ranks))
    sizes = {"HOROVOD_SIZE": num_ranks, "HOROVOD_LOCAL_SIZE": num_ranks, "HOROVOD_CROSS_RANK": 0, "HOROVOD_CROSS_SIZE": 1}
    meeting = {"HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1", "HOROVOD_GLOO_RENDEZVOUS_PORT": port, "HOROVOD_HOSTNAME": "localhost"}
    try:
        yield sizes | meeting | {"HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "gloo", "HOROVOD_GLOO_IFACE": "lo"}
    finally:
        server.stop()


def _become(folder, rank, variables, before):
    """Becomes a rank of the script; never returns."""
    status = 1
    try:
        # So that what it starts, as the workers of a loader, ends with it.
        os.setpgid(0, 0)
        # What this process has registered for its own end is not for its forks.
        atexit._clear()
        os.chdir(folder)
        output = os.open(f"rank-{rank}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout, sys.stderr = (os.fdopen(os.dup(descriptor), "w", buffering=1) for descriptor in (1, 2))
        cleared = environ() | {name: str(value) for name, value in variables.items()}
        os.environ.clear()
        os.environ.update(cleared)
        torch.set_num_threads(1)
        # Where DistributedDataParallel is the last to free a process group of Gloo's, it does so with the interpreter's lock, which a
        # thread of the group may wait for: then the rank never ends. So what holds the group is never freed.
        reducer = torch.distributed.Reducer
        torch.distributed.Reducer = lambda *arguments: _kept.append(reducer(*arguments)) or _kept[-1]
        sys.argv = ["train.py"]
        if before:
            before()
        runpy.run_path("train.py", run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        # What was registered for the end of a process, as the writing of what was observed, runs as it would in a process of its own.
        with contextlib.suppress(BaseException):
            atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _statuses(pids):
    """The exit statuses of these processes, which end at the latest when one has failed or the time is over."""
    statuses = dict.fromkeys(pids)
    end = time.monotonic() + TIME_LIMIT_SECONDS
    while None in statuses.values():
        for pid in pids:
            if statuses[pid] is None:
                ended, status = os.waitpid(pid, os.WNOHANG)
                statuses[pid] = os.waitstatus_to_exitcode(status) if ended else None
        if any(statuses.values()) or time.monotonic() > end:
            for pid in pids:
                if statuses[pid] is None:
                    os.killpg(pid, signal.SIGKILL)
                    statuses[pid] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        time.sleep(0.01)
    return [statuses[pid] for pid in pids]
