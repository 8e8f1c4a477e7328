"""How the ranks are started, and what is shown of what they print."""

import pytest

from launch.collectives import start
from launch.collectives.options import Collectives
from launch.launchers.commands import Launcher
from launch.launchers.machine_files import Machine

PROGRAM = [".venv/bin/python", "-m", "launch.collectives", "-b", "8"]


@pytest.mark.parametrize(
    ("options", "machine", "placement"),
    [
        (Collectives(ranks=4), Machine(), ["-n", "4", "-ppn", "4"]),
        (Collectives(ranks=4, ranks_per_node=2), Machine(ranks_per_node=1), ["-n", "4", "-ppn", "2"]),
        (Collectives(ranks=4), Machine(ranks_per_node=1), ["-n", "4", "-ppn", "1"]),
        (Collectives(ranks=2), Machine(ranks_per_node=8), ["-n", "2", "-ppn", "2"]),
    ],
)
def test_the_command_is_the_launchers(options, machine, placement, monkeypatch):
    monkeypatch.setenv("HYDRA_HOST_FILE", "nodes")
    started = start.start_of(options, machine, Launcher("mpich", "mpiexec", {"GLOO_SOCKET_IFNAME": "hsn0"}), ["-b", "8"])
    argv = started.argv()
    assert argv[:5] == ["mpiexec", *placement]
    assert argv[-5:] == PROGRAM
    assert started.variables == {"OMP_NUM_THREADS": "1", "TANDEM_MESSAGES": "1", "GLOO_SOCKET_IFNAME": "hsn0"}


def test_errors_of_ranks_are_errors_here(capsys):
    start.show("           8             2     float")
    start.show("error: rank 0: hung for 4 s in all_reduce of 64 bytes over mpi (--watchdog-timeout)")
    output, error = capsys.readouterr()
    assert output == "           8             2     float\n"
    assert error.startswith("error: rank 0: hung")
