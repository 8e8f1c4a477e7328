"""Horovod elastic: where horovodrun replaces a rank that is lost, the others begin anew and go on from the last snapshot."""

import os
import re
import sys
from urllib.request import urlopen

# What Horovod asks horovodrun for after a loss, in the order of the answer (horovod/runner/common/util/hosts.py, SlotInfo).
TOLD = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
# TensorFlow tells of it as an unknown error of one of these operations (horovod/tensorflow/elastic.py).
OPERATIONS = re.compile(r"Horovod(Allreduce|Allgather|Broadcast)")


def is_loss(problem):
    """Whether an exception is what Horovod raises in the ranks that are left when one is lost."""
    return type(problem).__name__ == "HorovodInternalError" or (
        type(problem).__name__ == "UnknownError" and OPERATIONS.search(str(problem)) is not None
    )


def begin_anew_after(problem):
    """Runs this program again, in this process, where horovodrun is elastic and Horovod has lost a rank.

    Returns where that is not the case, or horovodrun has no place for this rank any more.
    """
    if os.environ.get("HOROVOD_ELASTIC") != "1" or not is_loss(problem):
        return
    print(f"begins anew after {type(problem).__name__}", file=sys.stderr, flush=True)
    told = ranks_now()
    if int(told["HOROVOD_RANK"]) >= 0:
        os.environ |= told
        os.execv(sys.executable, sys.orig_argv)


def ranks_now():
    """This rank's variables, as horovodrun deals them out when all ranks that are left have asked and the lost ones are replaced."""
    told = {name: os.environ[f"HOROVOD_{name}"] for name in ("GLOO_RENDEZVOUS_ADDR", "GLOO_RENDEZVOUS_PORT", "HOSTNAME", "LOCAL_RANK")}
    where = "http://{GLOO_RENDEZVOUS_ADDR}:{GLOO_RENDEZVOUS_PORT}/rank_and_size/{HOSTNAME}:{LOCAL_RANK}".format(**told)
    with urlopen(where) as answer:
        return {f"HOROVOD_{name}": value for name, value in zip(TOLD, answer.read().decode().split(","), strict=True)}
