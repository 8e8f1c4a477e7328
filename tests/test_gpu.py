"""tests/gpu.sh: really run on the CPU, in a small part; and what it does on a GPU, with made-up records of one."""

import json
import time

import pytest

from tests.gpu.running import Session
from tests.support.forked import run_module
from tests.support.made_records import made, typed
from tests.support.running import BIN, ROOT, completed

MIB = 2**20
LACKS = {"single": None, "ddp": None, "horovod_torch": "No module named 'horovod'"}


@pytest.fixture
def session(tmp_path):
    """A session on a GPU."""
    return Session(tmp_path, "cuda", 60.0, time.monotonic() + 60, LACKS, "a machine")


def use(monkeypatch, part, record):
    """Makes a part find this record of each run that it starts."""
    monkeypatch.setattr(part, "train", lambda *_, **__: record)


def record_of(**values):
    """The Record of a made run with these values."""
    return typed([made(**values)])[0]


@pytest.mark.long
def test_it_runs_without_a_gpu_and_says_what_it_skips(tmp_path):
    options = ("--device", "cpu", "--minutes", "2.2", "--parts", "agreement,memory", "--backends", "ddp")
    done = completed(ROOT / "tests" / "gpu.sh", tmp_path / "found", *options, variables={"PYTHON": BIN / "python"}, seconds=200)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((tmp_path / "found" / "summary.json").read_text())
    checks = {check["what"]: check for check in summary["checks"]}
    assert checks["cnn: single on the CPU"]["numbers"] == {"steps": 40}
    assert checks["cnn: ddp, 1 rank, against the CPU"]["numbers"]["largest difference"] <= 1e-10
    assert (checks["peaks in the record"]["status"], checks["peaks in the record"]["reason"]) == ("skipped", "it needs a GPU")
    text = (tmp_path / "found" / "summary.txt").read_text()
    assert text in done.stdout
    assert all(check in text for check in checks)
    assert summary["seconds"] < 60 * 2.2


def test_a_python_without_the_packages_is_told_in_one_line(tmp_path):
    bare = tmp_path / "python"
    # Without the folder of installed packages.
    bare.write_text(f'#!/bin/sh\nexec {BIN / "python"} -S "$@"\n')
    bare.chmod(0o755)
    done = completed(ROOT / "tests" / "gpu.sh", tmp_path / "found", variables={"PYTHON": bare})
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"error: {bare} lacks torch numpy psutil pytest hypothesis pluggy iniconfig packaging pygments ")
    assert done.stderr.endswith("name another Python with PYTHON, or with TANDEM_WHEELS a folder with their wheels\n")
    assert not (tmp_path / "found").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--device", "cuda"], "finds no GPU"),
        (["--parts", "speed,nonsense"], "there is no part 'nonsense'"),
        (["--backends", "nonsense"], "there is no backend 'nonsense'"),
        (["--minutes", "0"], "--minutes is 0"),
    ],
)
def test_a_mistake_is_told_before_anything_is_written(options, message, tmp_path):
    folder = tmp_path / "found"
    status, _, error = run_module("tests.gpu", folder, *options, CUDA_VISIBLE_DEVICES="")
    assert (status, folder.exists()) == (2, False)
    assert message in error.splitlines()[-1]


PART = """
import pytest

SHARE = 0.5


def test_that_fails():
    assert 1 == 2, "they differ"


@pytest.mark.gpu
def test_for_a_gpu():
    pass


@pytest.fixture
def missing():
    pytest.skip("no such thing")


def test_without_what_it_needs(missing):
    pass


def test_that_breaks():
    raise ValueError("broken")


@pytest.mark.parametrize("number", [])
def test_of_nothing(number):
    pass


@pytest.mark.parametrize("number", [5], ids=["five: it's measured"])
def test_that_measures(number, session, measured):
    measured["samples/s"] = 1234.5678
    measured["limit (s)"] = session.limit(100.0)
"""
ANOTHER_PART = "SHARE = 0.5\ndef test_of_another_part():\n    pass\n"
RUN_PART = """
import sys, time
from pathlib import Path
import pytest
from tests.gpu.__main__ import OPTIONS
from tests.gpu.plugin import Plugin
from tests.gpu.running import Session

folder, only, *parts = sys.argv[1:]
session = Session(Path(folder), "cpu", 60.0, time.monotonic() + 60, {}, "a machine")
sys.exit(pytest.main([*map(str, OPTIONS), *parts], [Plugin(session, time.monotonic(), only)]))
"""


def checks_of(folder, *names, only=""):
    """What the program printed that makes the checks of these parts, its exit status, and its summary."""
    parts = []
    for name, text in zip(names, (PART, ANOTHER_PART), strict=False):
        parts.append(folder / name)
        parts[-1].write_text(text)
    done = completed(BIN / "python", "-c", RUN_PART, folder, only, *parts)
    assert done.stderr == ""
    return done.stdout, done.returncode, json.loads((folder / "summary.json").read_text())


def test_a_check_that_fails_stops_no_other_and_all_are_in_the_summary(tmp_path):
    printed, status, summary = checks_of(tmp_path, "a_part.py", "another.py")
    assert status == 1
    assert [(check["part"], check["what"], check["status"], check["reason"]) for check in summary["checks"]] == [
        ("a_part", "that fails", "failed", "they differ"), ("a_part", "for a gpu", "skipped", "it needs a GPU"),
        ("a_part", "without what it needs", "skipped", "no such thing"), ("a_part", "that breaks", "failed", "ValueError: broken"),
        ("a_part", "five: it's measured", "ok", ""), ("another", "of another part", "ok", ""),
    ]  # fmt: skip
    numbers = summary["checks"][-2]["numbers"]
    assert (summary["about"], numbers["samples/s"]) == ("a machine", 1234.5678)
    assert numbers["limit (s)"] < 31
    text = (tmp_path / "summary.txt").read_text()
    assert "2 ok, 2 skipped, 2 failed; " in text.splitlines()[-1]
    assert "samples/s 1235" in text
    assert text in printed


def test_a_part_alone_has_all_of_the_time_and_only_chosen_checks_are_made(tmp_path):
    _, status, summary = checks_of(tmp_path, "a_part.py", only="it's measured")
    assert (status, [check["what"] for check in summary["checks"]]) == (0, ["five: it's measured"])
    assert summary["checks"][0]["numbers"]["limit (s)"] > 31


def test_a_part_has_its_share_of_the_time_and_no_run_starts_without_time(session):
    assert session.part(0.5).limit(100.0) == pytest.approx(30.0, abs=0.5)
    assert session.limit(20.0) == 20.0
    with pytest.raises(pytest.skip.Exception, match="no time left"):
        session.part(0.1).limit(20.0)
