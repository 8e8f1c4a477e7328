"""Agents that ssh starts, here with an ssh that stays on this machine."""

import sys
import time

import pytest

from launch.launchers.ssh import RANK
from tests.support.running import ROOT, completed

LOCAL = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
shift
host=$1
shift
export HOST=$host
exec sh -c "$*"
"""


@pytest.fixture
def start(tmp_path):
    """A function that starts a script of sh by the program on the first two of three hosts, in PATH before everything the local ssh."""
    (tmp_path / "ssh").write_text(LOCAL)
    (tmp_path / "ssh").chmod(0o755)

    def start(script):
        command = (sys.executable, "-m", "launch.launchers.ssh", 2, "x2,x1,x3", "A=it's mine", "sh", "-c", script)
        return completed(*command, variables={"PATH": f"{tmp_path}:/usr/bin:/bin"})

    return start


def test_each_host_has_the_command_with_its_variables_in_the_checkout(start):
    done = start(f'echo "${RANK} $HOST $A $PWD"')
    expected = [f"{rank} {host} it's mine {ROOT}" for rank, host in enumerate(("x2", "x1"))]
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, expected), done.stderr


def test_one_that_fails_ends_the_others(start):
    begun = time.monotonic()
    assert start("test $HOST = x1 && exit 7; exec sleep 300").returncode == 7
    assert time.monotonic() - begun < 120
