"""tests/gpu.sh: really run on the CPU, in a small part; and how it shares its time."""

import re
import time

import pytest

from tests.gpu.running import Session
from tests.support.running import BIN, ROOT, completed


@pytest.mark.long
def test_it_runs_without_a_gpu_and_says_what_it_skips(tmp_path):
    options = ("--device", "cpu", "--minutes", "2.2", "-k", "agreement or memory", "--backends", "ddp")
    done = completed(ROOT / "tests" / "gpu.sh", tmp_path / "found", *options, variables={"PYTHON": BIN / "python"}, seconds=200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "found" / "summary.txt").read_text() == done.stdout
    assert re.search(r"cnn: single on the CPU\] PASSED \S+ s steps 40\n", done.stdout)
    (difference,) = re.findall(r"cnn: ddp, 1 rank, against the CPU\] PASSED \S+ s largest difference (\S+), ", done.stdout)
    assert float(difference) <= 1e-10
    assert re.search(r"test_peaks_in_the_record SKIPPED \(it needs a GPU\)", done.stdout)


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


def test_a_part_has_its_share_of_the_time_and_no_run_starts_without_time(tmp_path):
    session = Session(tmp_path, "cuda", 60.0, time.monotonic() + 60, {}, "a machine")
    assert session.part(0.5).limit(100.0) == pytest.approx(30.0, abs=0.5)
    assert session.limit(20.0) == 20.0
    with pytest.raises(pytest.skip.Exception, match="no time left"):
        session.part(0.1).limit(20.0)
