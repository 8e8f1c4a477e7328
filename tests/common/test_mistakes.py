"""A user error is reported in one line with exit status 2, before anything runs."""

import json
import subprocess

import pytest

from common.process import node_memory
from launch.run import available
from tests.support.forked import run_module
from tests.support.running import BIN, ROOT, environ


def run(*command, **variables):
    done = subprocess.run(
        [str(part) for part in command], cwd=ROOT, env=environ() | variables, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout, done.stderr


def refusal(module, *arguments, **variables):
    """The one-line error message of a program, which prints nothing else and ends with status 2."""
    status, output, error = run_module(module, *arguments, **variables)
    assert (status, output, error.startswith("error: "), error.count("\n")) == (2, "", True, 1)
    return error


MISTAKES = [
    (["0"], "size 0"),
    (["two"], "'two'"),
    (["1", "--backends", "nope"], "there is no backend 'nope'; choose from: single, data_parallel, ddp, "),
    (["1", "--workloads", "rnn"], "there is no workload 'rnn'; choose from: cnn"),
    (["1", "--launcher", "carrier-pigeon"], "there is no launcher 'carrier-pigeon'"),
    (["1", "--dataset", "mnist"], "--dataset mnist requires --data-dir"),
    (["1", "--dataset", "mnist", "--data-dir", "/there/is/none"], "--data-dir /there/is/none is not a folder"),
    (["1", "--workloads", "resnet50", "--dataset", "imagefolder"], "--dataset imagefolder requires --data-dir, the folder with one"),
    (["1", "--workloads", "resnet50", "--backends", "pipeline"], "pipeline does not train resnet50, whose model has no parts"),
    (["2", "--workloads", "resnet50", "--backends", "tensor_parallel"], "tensor_parallel does not train resnet50; leave it out, or"),
    (["16", "--workloads", "resnet50", "--backends", "ddp"], "a global batch of 512 exceeds the 256 samples"),
    (["3", "--scaling", "strong"], "is not divisible into 3 equal shards"),
    (["1", "--batch-size", "1438"], "--last-batch drop leaves no step"),
    (["1", "--repeats", "0"], "--repeats is 0"),
    (["1", "--workload", "cnn", "--run-id", "mine"], "--run-id is for a single run"),
    (["1", "--compile"], "not for horovod_keras; leave it out, or in a matrix choose --backends single,ddp,deepspeed_zero,"),
    (["2", "--share-gpu"], "--share-gpu is for a single run"),
    (["1", "--compile", "--backends", "ddp,deepspeed_zero@3"], "--compile is not for deepspeed_zero@3"),
    (["1", "--workloads", "cnn,transformer", "--tokenizer", "/there/is/none"], "--tokenizer is not for cnn, which has no tokens"),
    (["1", "--workloads", "transformer", "--tokenizer", "/there/is/none"], "--tokenizer /there/is/none cannot be read as a tokenizer (No"),
    (["1", "--workloads", "transformer-gpt2", "--tokenizer", "/etc/hostname"], "--tokenizer /etc/hostname cannot be read as a tokenizer"),
    (["1", "--workloads", "transformer-gpt2", "--tokenizer", "results/schema.json"], "schema.json cannot be read as a tokenizer"),
    (["2", "--workloads", "transformer-gpt2", "--backends", "pipeline"], "pipeline does not train transformer-gpt2; leave it out, or"),
    (["1", "--frobnicate"], "unknown argument: --frobnicate"),
    (["1", "--results", "/etc/hostname/results"], "cannot write records to /etc/hostname/results"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES, ids=[" ".join(arguments) for arguments, _ in MISTAKES])
def test_the_matrix_refuses(arguments, message, tmp_path):
    results = [] if "--results" in arguments else ["--results", tmp_path]
    assert message in refusal("launch.matrix", *arguments, *results)
    assert list(tmp_path.iterdir()) == []


HEADER = b"\0\0\x08\x03" + b"".join(number.to_bytes(4, "big") for number in (100, 28, 28))
MNIST_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


@pytest.mark.parametrize(
    ("arguments", "files", "message"),
    [
        (
            ["--dataset", "mnist"],
            dict.fromkeys(MNIST_FILES, HEADER + b"x" * 1000),
            "train-images-idx3-ubyte contains 1,000 bytes of data, its header specifies 78,400",
        ),
        (
            ["--workloads", "transformer-gpt2", "--dataset", "tinystories"],
            {"train.txt": b"Once upon a time. " * 50},
            "900 bytes of text are less than one sequence of 1024; give more text, or choose a workload with a shorter context",
        ),
    ],
    ids=["a truncated file", "less than a sequence"],
)
def test_the_matrix_refuses_data_that_it_cannot_train_on(arguments, files, message, tmp_path):
    data, results = tmp_path / "data", tmp_path / "results"
    data.mkdir()
    for name, content in files.items():
        (data / name).write_bytes(content)
    assert message in refusal("launch.matrix", "1", *arguments, "--data-dir", data, "--results", results)
    assert not results.exists()


@pytest.mark.matrix
def test_the_matrix_refuses_a_device_that_every_backend_lacks(tmp_path):
    results = tmp_path / "results"
    refused = refusal("launch.matrix", "1", "--device", "cuda", "--backends", "single,ddp", "--results", results)
    assert "no backend can use a GPU: this PyTorch has no CUDA; use --device cpu" in refused
    assert not results.exists()


@pytest.mark.parametrize("arguments", [[], ["--dry-run"]])
def test_the_matrix_refuses_a_model_that_is_too_large_for_the_memory(arguments, tmp_path, monkeypatch):
    monkeypatch.setattr(node_memory, "available", lambda: 20e9)
    # Starting the backends takes seconds.
    monkeypatch.setattr(available, "settled", lambda jobs, *_: (jobs, {}))
    matrix = ("1", "--backends", "single", "--workloads", "transformer-1b", "--device", "cpu", "--results", tmp_path)
    error = refusal("launch.matrix", *matrix, *arguments)
    assert error.startswith("error: transformer-1b does not fit into memory with single at size 1: ")
    assert "need 24.2 GB on a node for its rank, and 20.0 GB are free (activations would be " in error
    assert list(tmp_path.iterdir()) == []


def test_a_run_refuses_a_model_that_is_too_large_for_the_memory_before_it_is_built(tmp_path, monkeypatch):
    monkeypatch.setattr(node_memory, "available", lambda: 20e9)
    arguments = ("--workload", "transformer-1b", "--device", "cpu", "--run-id", "large", "--machine", "here")
    error = refusal("frameworks.single", "--results", tmp_path, *arguments)
    assert "need 24.2 GB on a node for its rank, and 20.0 GB are free" in error
    record = json.loads((tmp_path / "here" / "large.json").read_text())
    assert (record["status"], record["init_seconds"]) == ("failed", None)
    assert record["error"] in error


def test_the_matrix_refuses_results_of_an_older_schema_and_leaves_them_alone(tmp_path):
    old = tmp_path / "here" / "old.json"
    old.parent.mkdir()
    old.write_text(json.dumps({"schema": 0, "status": "ok"}))
    error = refusal("launch.matrix", "1", "--backends", "single", "--results", tmp_path, "--machine", "here")
    assert "old.json has schema 0" in error
    assert json.loads(old.read_text()) == {"schema": 0, "status": "ok"}
    assert list(old.parent.iterdir()) == [old]


@pytest.mark.parametrize(
    ("backend", "arguments", "message"),
    [
        ("single", ["--epochs", "many"], "invalid value 'many' for --epochs"),
        ("single", ["--nonsense", "1"], "unknown argument: --nonsense"),
        ("single", ["--workload", "rnn"], "choose from: cnn"),
        ("single", ["--device", "cuda"], "--device cuda"),
        ("single", ["--results", "/etc/hostname/results"], "cannot write records to /etc/hostname/results"),
        ("single", ["--timeline"], "give one with --run-id"),
        ("single", ["--tokenizer", "/there/is/none"], "--tokenizer is not for cnn"),
        ("single", ["--workload", "transformer", "--tokenizer", "/there/is/none"], "/there/is/none cannot be read as a tokenizer"),
        ("single", ["--trace", "mpi"], "--trace is for a matrix"),
        ("single", ["--compile"], "--compile requires a C++ compiler, but no-such-compiler was not found"),
        # The ranks could not know the folder of the log.
        ("horovod_torch", ["--autotune"], "--autotune writes into a folder with the run's name; give one with --run-id"),
    ],
)
def test_a_run_refuses(backend, arguments, message, tmp_path):
    assert message in refusal(f"frameworks.{backend}", "--results", tmp_path, *arguments, CXX="no-such-compiler")


@pytest.mark.parametrize("program", [("launch.matrix", "0"), ("frameworks.single", "--epochs", "0"), ("launch.compare", "/there/is/none")])
def test_a_program_refuses_a_mistake_when_it_is_really_started(program):
    status, output, error = run(BIN / "python", "-m", *program)
    assert (status, output, error.startswith("error: "), error.count("\n")) == (2, "", True, 1)


# TensorFlow takes seconds to start.
@pytest.mark.matrix
@pytest.mark.parametrize("backend", ["horovod_tf", "horovod_keras"])
def test_a_run_on_tensorflow_refuses_to_compile(backend, tmp_path):
    status, _, error = run(BIN / "python", "-m", f"frameworks.{backend}", "--compile", "--results", tmp_path)
    assert status == 2
    # TensorFlow prints messages about the processor before.
    assert error.splitlines()[-1].startswith(f"error: --compile is not for {backend}; leave it out")
    assert "Traceback" not in error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.matrix
def test_only_rank_0_reports_a_mistake_of_all_ranks():
    status, _, error = run(BIN / "mpiexec", "-n", "2", BIN / "python", "-m", "frameworks.ddp", "--epochs", "0")
    assert status != 0
    assert error.count("error: --epochs is 0") == 1


@pytest.mark.matrix
def test_a_mistake_of_one_rank_is_reported_by_that_rank(tmp_path):
    ddp = (BIN / "python", "-m", "frameworks.ddp", "--results", tmp_path, "--dataset", "mnist", "--data-dir", "/there/is/none")
    # Rank 0 runs another program, because training would wait for rank 1.
    status, _, error = run(BIN / "mpiexec", "-n", "1", "true", ":", "-n", "1", *ddp)
    assert status == 2
    assert error.count("error: ") == 1
    assert "error: rank 1: --data-dir /there/is/none is not a folder" in error
    assert "Traceback" not in error


@pytest.mark.matrix
def test_single_refuses_more_than_one_rank(tmp_path):
    _, _, error = run(BIN / "mpiexec", "-n", "2", BIN / "python", "-m", "frameworks.single", "--results", tmp_path)
    assert "single runs with one rank; 2 ranks were started" in error


@pytest.mark.matrix
@pytest.mark.parametrize("backend", ["horovod_torch", "horovod_tf"])
def test_horovod_refuses_ranks_that_it_does_not_see(backend, tmp_path):
    torchrun = (BIN / "torchrun", "--standalone", "--nproc-per-node=2", "-m", f"frameworks.{backend}", "--results", tmp_path)
    status, _, error = run(*torchrun)
    assert status != 0
    assert "torchrun started 2 ranks, Horovod sees 1; start with the mpiexec" in error


def test_compare_refuses_a_folder_without_records(tmp_path):
    assert run_module("launch.compare", tmp_path)[0] == 2
    assert "does not exist" in run_module("launch.compare", tmp_path / "none")[2]


def test_setup_refuses_what_it_does_not_know():
    status, _, error = run(ROOT / "launch" / "setup.sh", "--fast")
    assert (status, error.count("\n")) == (2, 1)
    assert "unknown argument '--fast'" in error
