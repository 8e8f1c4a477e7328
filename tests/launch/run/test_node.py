"""What backends answer is cached for the same libraries on the same boot of the node, for an hour."""

import os
import sys
import time
from datetime import timedelta

import pytest

from launch.run import node

ANSWERS = {"ddp": {"cpu": None}}


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return node.cache_file(0)


@pytest.mark.parametrize(
    ("age", "content", "answers"),
    [
        (0, None, ANSWERS),
        (59, None, ANSWERS),
        (61, None, {}),
        (-5, None, {}),
        *((0, damaged, {}) for damaged in ("", "{", "5", '{"ddp": 5}', "[" * 100_000)),
    ],
)
def test_answers_of_the_last_hour_are_read_and_no_others_nor_damaged_ones(age, content, answers, file):
    assert node.read_cached(file) == {}
    node.write_cached(file, ANSWERS)
    if content is not None:
        file.write_text(content)
    os.utime(file, (time.time() - timedelta(minutes=age).total_seconds(),) * 2)
    assert node.read_cached(file) == answers


def test_what_answers_depend_on_has_a_file_of_its_own(file, monkeypatch, tmp_path):
    files = [file, node.cache_file(1)]
    for name in ("OPENBLAS_CORETYPE", "MKL_ENABLE_INSTRUCTIONS", "PYTHONPATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "PBS_JOBID"):
        with monkeypatch.context() as changed:
            changed.setenv(name, "another")
            files.append(node.cache_file(0))
    assert files.pop() == file
    (tmp_path / "boot").write_text("another")
    for owner, name, value in (
        (node, "BOOT", tmp_path / "boot"),
        (node.environment.machine, "quota_cores", lambda: 0.5),
        (node.environment, "version", lambda _: "0.0"),
    ):
        with monkeypatch.context() as changed:
            changed.setattr(owner, name, value)
            files.append(node.cache_file(0))
    assert len(set(files)) == len(files)


def test_without_a_folder_or_a_place_in_it_nothing_is_kept(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    node.write_cached(node.cache_file(0), ANSWERS)
    assert node.read_cached(node.cache_file(0)) == {}
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    node.write_cached(node.cache_file(0), ANSWERS)
    assert node.read_cached(node.cache_file(0)) == {}


def test_what_a_backend_answers_is_cached_but_no_failure(monkeypatch, file):
    asked = []

    def ask(names):
        asked.append(names)
        return {name: {"error": "No module named 'it'"} if name == "fsdp" else {"cpu": None} for name in names}

    monkeypatch.setattr(node, "ask", ask)
    for names in (["ddp"], ["ddp"], ["single"], ["ddp", "fsdp"], ["ddp", "fsdp"]):
        assert node.cached_or_asked(names, 0).keys() == set(names)
    assert asked == [["ddp"], ["single"], ["fsdp"], ["fsdp"]]


def test_a_backend_whose_import_ends_its_process_has_the_signal_first(monkeypatch):
    crash = "import os, sys; print('a banner', file=sys.stderr, flush=True); os.kill(os.getpid(), 11)"
    monkeypatch.setattr(node, "PROGRAM", (sys.executable, "-c", crash))
    assert node.ask(["horovod_tf"]) == {"horovod_tf": {"error": "its import was killed by SIGSEGV; the last line: a banner"}}
