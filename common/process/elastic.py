"""Elastic Horovod: when horovodrun replaces a lost rank, the remaining ranks restart and resume from the last checkpoint."""

import os
import re
import sys
from urllib.request import urlopen

# The fields of horovodrun's answer to a rank, in order (horovod/runner/common/util/hosts.py, SlotInfo).
SLOT_FIELDS = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
# TensorFlow reports a lost rank as an UnknownError of one of these operations (horovod/tensorflow/elastic.py).
OPERATIONS = re.compile(r"Horovod(Allreduce|Allgather|Broadcast)")


def is_loss(problem):
    """Whether an exception is the one that Horovod raises on the remaining ranks when a rank is lost."""
    return type(problem).__name__ == "HorovodInternalError" or (
        type(problem).__name__ == "UnknownError" and OPERATIONS.search(str(problem)) is not None
    )


def restart_after(problem):
    """Restarts this program in this process if horovodrun is elastic and the exception reports a lost rank.

    Returns otherwise, or if horovodrun no longer has a slot for this rank.
    """
    if os.environ.get("HOROVOD_ELASTIC") != "1" or not is_loss(problem):
        return
    print(f"restarting after {type(problem).__name__}", file=sys.stderr, flush=True)
    variables = new_ranks()
    if int(variables["HOROVOD_RANK"]) >= 0:
        os.environ |= variables
        os.execv(sys.executable, sys.orig_argv)


def new_ranks():
    """The rank variables that horovodrun assigns when all remaining ranks have asked and the lost ones are replaced."""
    variables = {name: os.environ[f"HOROVOD_{name}"] for name in ("GLOO_RENDEZVOUS_ADDR", "GLOO_RENDEZVOUS_PORT", "HOSTNAME", "LOCAL_RANK")}
    url = "http://{GLOO_RENDEZVOUS_ADDR}:{GLOO_RENDEZVOUS_PORT}/rank_and_size/{HOSTNAME}:{LOCAL_RANK}".format(**variables)
    with urlopen(url) as answer:
        return {f"HOROVOD_{name}": value for name, value in zip(SLOT_FIELDS, answer.read().decode().split(","), strict=True)}
