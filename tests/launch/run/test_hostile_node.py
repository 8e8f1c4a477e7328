"""A matrix on a node that lacks what a program may take for granted, of a user without a name and HOME, as in docker run --user 12345."""

import os
import re
import subprocess

import pytest

from tests.support.running import FEW_STEPS, matrix, records_in

# The arguments are the checkout and the results, which are seen under paths with blanks and umlauts, and a command.
NODE = """set -e
mount -t tmpfs tmpfs /mnt
mkdir "/mnt/der Ordner für alles" "/mnt/die Läufe" /mnt/environment
mount --bind "$1" "/mnt/der Ordner für alles"
mount -o remount,bind,ro "/mnt/der Ordner für alles"
mount --bind "$2" "/mnt/die Läufe"
mount -t tmpfs -o size=64m tmpfs /dev/shm
environment=$(readlink -f "$1/.venv")
mount --bind "$environment" /mnt/environment
mount -t tmpfs -o size=64m tmpfs /tmp
# That may be a folder below /tmp.
mkdir -p "$environment"
mount --bind /mnt/environment "$environment"
echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6
ip link set lo up
hostname node-of-nobody
export LC_ALL=C TMPDIR=/tmp
unset HOME USER LOGNAME
umask 077
cd "/mnt/der Ordner für alles"
shift 2
exec unshare --user --map-user=12345 --map-group=12345 "$@"
"""
IN_NAMESPACES = ("unshare", "--mount", "--uts", "--net", "bash", "-c")


def why_not():
    """Why no such node can be made here; None where it can."""
    if os.geteuid() != 0:
        return "only root mounts"
    command = (*IN_NAMESPACES, "mount -t tmpfs tmpfs /mnt && ip link set lo up && unshare --user --map-user=12345 true")
    try:
        made = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "there is no unshare here"
    return made.stderr.strip() or None


@pytest.mark.matrix
@pytest.mark.skipif(why_not() is not None, reason=f"no such node can be made here: {why_not()}")
def test_a_matrix_runs_with_a_read_only_checkout_small_folders_and_no_name_of_the_node(checkout, tmp_path):
    # DeepSpeed and PyTorch ask the system who the user is.
    backend, results = "deepspeed_zero", "/mnt/die Läufe"
    done = matrix(
        checkout, results, "2", "--backends", backend, "--workloads", "cnn", "--epochs", "1", "--no-step-breakdown", "--device", "cpu",
        around=(*IN_NAMESPACES, NODE, "bash", checkout, tmp_path), variables=FEW_STEPS,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert {record["backend"]: record["status"] for record in records_in(tmp_path)} == {backend: "ok"}
    # What it prints can be pasted.
    assert re.search(
        rf"^all tables: \.venv/bin/python -m launch\.compare '{results}/here/[\w-]+'-\*\.json --full$", done.stdout, re.MULTILINE
    )
