"""The main program of a backend: how it was launched, and what ends it."""

import contextlib
import json
import signal
import subprocess
import time

import psutil
import pytest

from common.ranks import ending
from common.ranks.launcher_variables import Ranks
from common.training import program
from tests.support.made_records import made
from tests.support.mistakes import refused
from tests.support.running import BIN, environ


@pytest.mark.parametrize(
    "text",
    [
        "{", "[1]", "null", "[" * 100_000, '{"launched_at": "now"}', '{"other": 1}', '{"settings": {"epochs": 1}}',
        '{"settings": {"trace": 5}}', '{"ignored_variables": {"OMP_PLACES": 5}}',
    ],
)  # fmt: skip
def test_a_launch_that_no_matrix_told_is_refused(text, monkeypatch):
    monkeypatch.setenv("TANDEM_LAUNCH", text)
    with refused("TANDEM_LAUNCH is ", "unset it"):
        program.launch_by_matrix()
    monkeypatch.setenv("TANDEM_LAUNCH", "")
    assert program.launch_by_matrix() == {}


@pytest.mark.parametrize(
    ("preloaded", "by_matrix", "settings"),
    [
        ("", "", {}),
        ("libother.so", "", {}),
        ("/a/libtandemtrace.so", "", {"trace": "mpi"}),
        ("libother.so:/site/mpitrace/lib/libmpitrace.so.1 libc.so", "", {"trace": "mpi"}),
        ("/site/mpitrace/lib/libother.so", "", {}),
        ("/a/libtandemtrace.so", '{"settings": {"trace": "mpi"}}', {"trace": "mpi"}),
        # A whole matrix that is traced compares its runs.
        ("/a/libtandemtrace.so", '{"settings": {"trace": null}}', {"trace": None}),
    ],
)
def test_a_run_has_the_settings_of_its_matrix_and_alone_is_traced_where_a_preloaded_library_traces(
    preloaded, by_matrix, settings, monkeypatch
):
    monkeypatch.setenv("LD_PRELOAD", preloaded)
    monkeypatch.setenv("TANDEM_LAUNCH", by_matrix)
    assert program.launch_of("ddp", Ranks()).settings == settings


@pytest.mark.parametrize("problem", [SystemExit(0), KeyboardInterrupt(), type("Odd", (BaseException,), {})("odd")], ids=repr)
@pytest.mark.parametrize("has_begun", [False, True])
def test_whatever_ends_a_run_that_has_begun_is_its_failure_and_only_a_help_ends_before(problem, has_begun, monkeypatch):
    def run(_trainer_class, _backend, so_far, *_):
        so_far.record = made() if has_begun else None
        raise problem

    failures = []
    for name, function in (("run", run), ("fail", lambda failure, _: failures.append(failure))):
        monkeypatch.setattr(program, name, function)
    monkeypatch.setattr(ending, "leave", lambda: None)
    is_help = isinstance(problem, SystemExit) and not has_begun
    with pytest.raises(SystemExit) if is_help else contextlib.nullcontext():
        program.main(object, "ddp.py")
    assert failures == ([] if is_help else [problem])


@pytest.mark.matrix
def test_a_run_that_a_batch_system_ends_by_a_signal_has_failed(tmp_path):
    command = [BIN / "python", "-m", "frameworks.single", "--results", tmp_path, "--machine", "here", "--run-id", "run", "--epochs", "100"]
    path = tmp_path / "here" / "run.json"
    with subprocess.Popen([str(word) for word in command], env=environ(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        while not path.exists():
            assert process.poll() is None
            time.sleep(0.05)
        # The record is there a moment before the thread that hears of signals.
        while len(psutil.Process(process.pid).threads()) < 2:
            time.sleep(0.05)
        process.send_signal(signal.SIGUSR1)
        printed = process.stderr.read().decode()
    record = json.loads(path.read_text())
    assert (process.returncode, record["status"]) == (128 + signal.SIGUSR1, "failed")
    assert record["error"] == "ended by SIGUSR1 (User defined signal 1)"
    assert printed.splitlines()[-1] == "error: rank 0: ended by SIGUSR1"
