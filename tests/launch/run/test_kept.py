"""What a node has found out is kept for the same question on the same boot of the node, for an hour."""

import os
import time
from datetime import timedelta

import pytest

from launch.run import kept

RESULT = {"cpu": None}


def named(variables=None, *others):
    return kept.file_for("answers", [], variables or {}, *others)


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return named()


@pytest.mark.parametrize(("age", "is_fresh"), [(0, True), (59, True), (61, False), (-5, False)])
def test_a_result_of_the_last_hour_is_read_and_no_other(age, is_fresh, file):
    assert kept.read(file) is None
    kept.write(file, RESULT)
    os.utime(file, (time.time() - timedelta(minutes=age).total_seconds(),) * 2)
    assert kept.read(file) == (RESULT if is_fresh else None)


@pytest.mark.parametrize("damaged", ["", "{"])
def test_a_damaged_file_has_no_result(damaged, file):
    kept.write(file, RESULT)
    file.write_text(damaged)
    assert kept.read(file) is None


def test_what_a_result_depends_on_has_a_file_of_its_own(file, monkeypatch, tmp_path):
    variables = [{"OPENBLAS_CORETYPE": "Haswell"}, {"MKL_ENABLE_INSTRUCTIONS": "AVX2"}, {"DNNL_MAX_CPU_ISA": "AVX2"}, {"PBS_JOBID": "1"}]
    *differing, of_no_effect = map(named, variables)
    files = [file, named({}, "fp64"), *differing]
    assert of_no_effect == file
    (tmp_path / "boot").write_text("another")
    for owner, name, value in (
        (kept, "BOOT", tmp_path / "boot"),
        (kept.environment.machine, "quota_cores", lambda: 0.5),
        (kept.environment, "version", lambda _: "0.0"),
    ):
        with monkeypatch.context() as changed:
            changed.setattr(owner, name, value)
            files.append(named())
    assert len(set(files)) == len(files)


def test_without_a_folder_or_a_place_in_it_nothing_is_kept(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    kept.write(named(), RESULT)
    assert kept.read(named()) is None
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    assert named() is None
    kept.write(None, RESULT)
    assert kept.read(None) is None


def test_old_files_are_removed(file, monkeypatch):
    kept.write(file, RESULT)
    later = kept.time.time() + 3700
    monkeypatch.setattr(kept.time, "time", lambda: later)
    kept.write(file.with_name("another.json"), {})
    assert file.exists()
    kept.write(file.with_name("another.json"), RESULT)
    assert not file.exists()
