"""The options: sizes, names, and mistakes, which one line describes before anything runs."""

from pathlib import Path

import pytest

from common.process.ranks import Ranks
from launch.collectives import options as collective_options
from launch.collectives.options import Collectives
from tests.support.mistakes import expect_refused, refused


@pytest.mark.parametrize(("least", "most", "expected"), [("8", "64", [8, 16, 32, 64]), ("8", "30", [8, 16]), ("1K", "1K", [1024])])
def test_each_size_is_twice_the_one_before(least, most, expected):
    assert collective_options.sizes(Collectives(min_bytes=least, max_bytes=most)) == expected


def test_libraries_are_measured_in_one_order_and_once():
    assert collective_options.libraries(Collectives(libraries="horovod_torch, gloo,mpi,gloo")) == ["mpi", "gloo", "horovod_torch"]


MISTAKES = [
    (["-b", "3"], "--min-bytes is 3; it must be at least 4 bytes"),
    (["-b", "8.5"], "--min-bytes is '8.5'; it must be a size in bytes"),
    (["-e", "much"], "--max-bytes is 'much'; it must be a size in bytes, such as 8, 64K or 256M"),
    (["-b", "1M", "-e", "1K"], "--max-bytes 1K is less than --min-bytes 1M"),
    (["--ranks", "1"], "--ranks is 1; it must be at least 2 and at most 16777216, since one rank sends nothing"),
    (["--libraries", "smoke"], "there is no library 'smoke'; choose from: mpi, gloo, nccl, horovod_torch"),
    (["--libraries", ","], "no library is named"),
    (["--collectives", "gather"], "there is no collective 'gather'; choose from: all_reduce, all_gather"),
    (["--libraries", "mpi", "--launcher", "torchrun"], "no library can run here: mpi: it needs an MPI launcher"),
    (["--launcher", "pigeon"], "there is no launcher 'pigeon'"),
    (["--machine-file", "nowhere"], "there is no machine 'nowhere'"),
    (["--hosts", "/there/is/none"], "'/there/is/none': No such file or directory"),
    (["--json", "/there/is/none.json"], "--json /there/is/none.json cannot be written"),
    (["--json", "/tmp"], "--json /tmp is a folder"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES, ids=[" ".join(arguments) for arguments, _ in MISTAKES])
def test_a_mistake_is_one_line(arguments, message):
    expect_refused(message, "launch.collectives", *arguments)


def test_under_a_launcher_one_rank_is_refused():
    message = "MPICH/Intel PMI has started one rank, which sends nothing; start 2 or more"
    expect_refused(message, "launch.collectives", PMI_RANK="0", PMI_SIZE="1")


@pytest.mark.parametrize("option", [{"ranks": 4}, {"launcher": "mpich"}, {"hosts": Path("nodes")}])
def test_a_rank_refuses_options_of_a_start(option):
    with refused("torchrun has started 2 ranks; leave --"):
        collective_options.expect_started(Collectives(**option), Ranks(0, 2, 0, 2, "torchrun"))


def test_a_library_that_is_not_installed_is_skipped_and_where_it_is_the_only_one_refused(monkeypatch):
    monkeypatch.setattr(collective_options.importlib.util, "find_spec", lambda package: None if package == "horovod" else "found")
    reasons = {name: collective_options.problem(name, has_mpi=True) for name in collective_options.LIBRARIES}
    assert reasons == {"mpi": None, "gloo": None, "nccl": None, "horovod_torch": "horovod is not installed"}
    collective_options.expect_runnable(reasons)
    with refused("no library can run here: horovod_torch: horovod is not installed"):
        collective_options.expect_runnable({"horovod_torch": reasons["horovod_torch"]})


def test_ranks_get_the_options_that_are_theirs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = Collectives(ranks=4, launcher="mpich", libraries="mpi", json=Path("out.json"), max_bytes="1M", machine_file="two.toml")
    assert collective_options.of_ranks(options) == [
        "--libraries", "mpi", "--max-bytes", "1M", "--json", f"{tmp_path}/out.json", "--machine-file", f"{tmp_path}/two.toml",
    ]  # fmt: skip
