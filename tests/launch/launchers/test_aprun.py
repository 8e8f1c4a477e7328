"""launch/aprun: the options of ALPS for the detected launcher."""

import shlex

import pytest

from launch.aprun import read, start_of
from launch.launchers.commands import Launcher
from tests.support.forked import run_module
from tests.support.mistakes import expect_refused, refused
from tests.support.running import ROOT, completed

APRUN = ROOT / "launch" / "aprun"


@pytest.mark.parametrize(
    ("launcher", "options", "expected"),
    [
        ("mpich", "-n 8 -N 4 --cc depth -d 16 python x.py -n 3", "run -n 8 -ppn 4 -bind-to none python x.py -n 3"),
        ("mpich", "-n 8 -N 4 -cc depth -d 16 -e A=1 -e B=x=y python", "run -n 8 -ppn 4 -bind-to none -genv A 1 -genv B x=y python"),
        ("pals", "--pes 8 --pes-per-node 4 --cpus-per-pe 2 -q python", "run -n 8 --ppn 4 --depth 2 --cpu-bind depth python"),
        ("openmpi", "-n8 -N4 python", "run -n 8 --map-by ppr:4:node:OVERSUBSCRIBE --bind-to none python"),
        ("mpich", "-n 2 -N 4 python", "run -n 2 -ppn 2 -bind-to none python"),
        ("mpich", "python", "run -n 1 -ppn 1 -bind-to none python"),
    ],
)
def test_the_options_of_aprun_for_other_launchers(launcher, options, expected, monkeypatch):
    monkeypatch.setenv("HYDRA_HOST_FILE", "nodes")
    assert shlex.join(start_of(read(options.split()), Launcher(launcher, "run")).argv()) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("-n 2 -Z 3 python", "-Z"),
        ("-n two python", "'two' is not an integer from 1 to 16777216"),
        ("-n 0 python", "'0' is not an integer from 1 to 16777216"),
        ("-n ² python", "'²' is not an integer"),
        (f"-n {10**30} python", "000' is not an integer from 1 to 16777216"),
        (f"-N {'1' * 5000} python", "…' is not an integer"),
        ("-d 5000 python", "'5000' is not an integer from 1 to 4096"),
        ("-e =b python", "-e: '' is no name of a variable"),
        ("-e 1A=b python", "-e: '1A' is no name of a variable"),
        ("-e X;touch=b python", "-e: 'X;touch' is no name of a variable"),
        ("-n 2 --cc 0,1 python", "invalid choice: '0,1'"),
        ("-n 2", "no program given"),
        ("-n 2 -5", "unknown option -5"),
        ("-n 2 -e A python", "-e A has no value"),
        ("-n 2 a : -n 3 b", "':'"),
    ],
)
def test_unknown_options_are_an_error(options, message):
    with refused(message):
        read(options.split())


def test_it_starts_the_ranks_where_it_was_called(tmp_path):
    script = 'echo "$PMI_RANK of $PMI_SIZE in $PWD with $A"; exit $((PMI_SIZE - 2))'
    options = ("-N", "2", "--cc", "depth", "-d", "1", "-e", "A=a b", "sh", "-c", script)
    done = completed(APRUN, "-n", "2", *options, cwd=tmp_path)
    expected = [f"{rank} of 2 in {tmp_path} with a b" for rank in (0, 1)]
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, expected), done.stderr
    assert completed(APRUN, "-n", "3", "sh", "-c", script, cwd=tmp_path).returncode == 1


def test_a_dry_run_prints_and_a_mistake_ends_with_2(tmp_path):
    status, printed, _ = run_module("launch.aprun", "-n", 2, "-e", "A=a b", "--dry-run", "touch", tmp_path / "it")
    assert (status, printed.partition("mpiexec ")[2]) == (0, f"-n 2 -ppn 2 -bind-to none -genv A 'a b' touch {tmp_path}/it\n")
    expect_refused("-Z", "launch.aprun", "-n", 2, "-Z", 3, "touch", tmp_path / "it")
    assert list(tmp_path.iterdir()) == []
