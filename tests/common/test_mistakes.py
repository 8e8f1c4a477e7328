"""A user error is reported in one line with exit status 2, before anything runs."""

import json

import pytest

from common.ranks import machine
from launch.run import available
from tests.support.forked import run_module
from tests.support.made_records import made
from tests.support.mistakes import expect_refused
from tests.support.running import BIN, completed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["0"], "sizes has 0; it must be at least 1 and at most 16777216"),
        (["1", "--queue", "debug"], "--queue is for --print-jobs, and a matrix that runs here asks no batch system"),
        (["1", "--check", "--print-jobs", "slurm"], "--check and --print-jobs each print something else; give one of them"),
        (["1", "--backends", "nope"], "there is no backend 'nope'; choose from: single, "),
        (["1", "--workloads", "rnn"], "there is no workload 'rnn'; choose from: cnn"),
        (["1", "--launcher", "carrier-pigeon"], "there is no launcher 'carrier-pigeon'"),
        (["1", "--dataset", "mnist", "--data-dir", "/there/is/none"], "--data-dir /there/is/none is not a folder with mnist.npz"),
        (["1", "--workloads", "resnet50", "--backends", "pipeline"], "pipeline does not train resnet50, whose model has no parts"),
        (["16", "--workloads", "resnet50", "--backends", "ddp"], "a global batch of 512 exceeds the 256 samples"),
        (["1", "--workloads", "transformer", "--context", "8192"], "bytes of pydoc-types are less than 10 sequences of 8192"),
        (["3", "--scaling", "strong"], "is not divisible into 3 equal shards"),
        (["1", "--run-id", "mine"], "--run-id is for a single run"),
        (["2", "--share-gpu"], "--share-gpu is for a single run"),
        (["1", "--results", "/etc/hostname/results"], "cannot write records to /etc/hostname/results"),
    ],
)
def test_the_matrix_refuses(arguments, message, tmp_path):
    results = [] if "--results" in arguments else ["--results", tmp_path]
    expect_refused(message, "launch.matrix", *arguments, *results)
    assert list(tmp_path.iterdir()) == []


def test_the_matrix_refuses_a_model_that_is_too_large_for_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "available_bytes", lambda: 20e9)
    # Starting the backends takes seconds.
    monkeypatch.setattr(available, "runnable", lambda jobs, _: jobs)
    matrix = ("1", "--backends", "single", "--workloads", "transformer-1b", "--device", "cpu", "--results", tmp_path)
    expect_refused("error: transformer-1b does not fit into memory with single at size 1: ", "launch.matrix", *matrix)
    assert list(tmp_path.iterdir()) == []


def test_a_run_refuses_a_model_that_is_too_large_for_the_memory_before_it_is_built(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "available_bytes", lambda: 20e9)
    arguments = ("--workload", "transformer-1b", "--device", "cpu", "--run-id", "large", "--machine", "here")
    expect_refused("need 24.2 GB on a node for its rank, and 20.0 GB are free", "frameworks.single", "--results", tmp_path, *arguments)
    record = json.loads((tmp_path / "here" / "large.json").read_text())
    assert (record["status"], record["init_seconds"]) == ("failed", None)
    assert "need 24.2 GB on a node for its rank" in record["error"]


def test_the_matrix_names_what_is_no_record_in_one_line_leaves_it_alone_and_goes_on(tmp_path):
    folder = tmp_path / "here"
    folder.mkdir()
    contents = {"a.json": json.dumps({"schema": 0, "status": "ok"}), "b.json": json.dumps(made() | {"seed": "one"})}
    for name, content in contents.items():
        (folder / name).write_text(content)
    options = ("--backends", "single", "--results", tmp_path, "--machine", "here", "--dry-run")
    status, output, error = run_module("launch.matrix", "1", *options)
    left_out = f"left out {folder}/a.json: has schema 0; this version of Tandem reads 3 (and 1 more, which launch.compare lists)\n"
    assert (status, "-m frameworks.single" in output, error) == (0, True, left_out)
    assert {path.name: path.read_text() for path in folder.iterdir()} == contents


@pytest.mark.parametrize(
    ("backend", "arguments", "message"),
    [
        ("single", ["--workload", "rnn"], "choose from: cnn"),
        ("single", ["--device", "cuda"], "--device cuda"),
        ("single", ["--results", "/etc/hostname/results"], "cannot write records to /etc/hostname/results"),
        ("single", ["--trace", "mpi"], "--trace is for a matrix"),
        # The ranks could not know the folder of the log.
        ("horovod_torch", ["--timeline"], "--timeline writes into a folder with the run's name; give one with --run-id"),
    ],
)
def test_a_run_refuses(backend, arguments, message, tmp_path):
    expect_refused(message, f"frameworks.{backend}", "--results", tmp_path, *arguments)


@pytest.mark.matrix
def test_only_rank_0_reports_a_mistake_of_all_ranks():
    done = completed(BIN / "mpiexec", "-n", "2", BIN / "python", "-m", "frameworks.ddp", "--epochs", "0")
    assert done.returncode != 0
    assert done.stderr.count("error: --epochs is 0") == 1
