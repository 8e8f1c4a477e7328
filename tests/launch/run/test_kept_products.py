"""Products are kept for the same measurement on the same boot of a node, for an hour, and until a run exceeds them."""

import os
import time
from datetime import timedelta

import pytest

from launch.run import kept, kept_products
from launch.run.kept_products import Measured
from tests.support.made_records import made, typed

ARGUMENTS = ("fp32", "cpu", "1")


PRODUCTS = {"NumPy": {"flops_per_second": 1e9, "measured_at": "2026-11-26T10:00:00Z"}}


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return kept_products.file_for(ARGUMENTS, {})


def test_products_of_the_last_hour_are_read_and_no_others(file):
    assert kept_products.read(file) == {}
    for age, is_fresh in (
        (timedelta(), True),
        (timedelta(minutes=59), True),
        (timedelta(minutes=61), False),
        (timedelta(minutes=-5), False),
    ):
        kept.write(file, PRODUCTS)
        os.utime(file, (time.time() - age.total_seconds(),) * 2)
        assert kept_products.read(file) == (PRODUCTS if is_fresh else {})
    for damaged in ("", "[]", "{", '{"NumPy": {}}', '{"NumPy": 1}'):
        file.write_text(damaged)
        assert kept_products.read(file) == {}


def test_what_a_measurement_depends_on_has_a_file_of_its_own(file, monkeypatch, tmp_path):
    variables = [{"OPENBLAS_CORETYPE": "Haswell"}, {"MKL_ENABLE_INSTRUCTIONS": "AVX2"}, {"DNNL_MAX_CPU_ISA": "AVX2"}, {"PBS_JOBID": "1"}]
    *differing, of_no_effect = (kept_products.file_for(ARGUMENTS, given) for given in variables)
    files = [file, kept_products.file_for(("fp64", "cpu", "1"), {}), *differing]
    assert of_no_effect == file
    (tmp_path / "boot").write_text("another")
    for owner, name, value in (
        (kept, "BOOT", tmp_path / "boot"),
        (kept_products.os, "sched_getaffinity", lambda _: {71}),
        (kept.environment.control_groups, "quota_cores", lambda: 0.5),
        (kept.environment, "version", lambda _: "0.0"),
    ):
        with monkeypatch.context() as changed:
            changed.setattr(owner, name, value)
            files.append(kept_products.file_for(ARGUMENTS, {}))
    assert len(set(files)) == len(files)


def test_without_a_folder_or_a_place_in_it_nothing_is_kept(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    file = kept_products.file_for(ARGUMENTS, {})
    kept.write(file, PRODUCTS)
    assert kept_products.read(file) == {}
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    assert kept_products.file_for(ARGUMENTS, {}) is None
    assert kept_products.read(None) == {}
    kept.write(None, PRODUCTS)


@pytest.mark.parametrize(
    ("run", "is_kept"),
    [
        ({"peak_flops_per_second": 1.04e9, "share_of_peak": 0.9}, True),
        ({"peak_flops_per_second": None, "share_of_peak": None}, True),
        ({"peak_flops_per_second": 1.06e9, "share_of_peak": 0.9}, False),
        ({"peak_flops_per_second": 1e9, "share_of_peak": 1.01}, False),
    ],
)
def test_products_that_a_run_exceeds_are_measured_anew(file, run, is_kept):
    kept.write(file, PRODUCTS)
    kept_products.remove_exceeded(Measured(PRODUCTS, str(file)), typed([made(**run)]))
    assert bool(kept_products.read(file)) is is_kept


def test_old_files_are_removed(file, monkeypatch):
    kept.write(file, PRODUCTS)
    later = kept.time.time() + 3700
    monkeypatch.setattr(kept.time, "time", lambda: later)
    kept.write(file.with_name("another.json"), {})
    assert file.exists()
    kept.write(file.with_name("another.json"), PRODUCTS)
    assert not file.exists()
