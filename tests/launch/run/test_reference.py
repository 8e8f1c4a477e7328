"""The matrix of the reference: what it runs is what the committed sets have, and nothing changes it."""

import dataclasses

import pytest

from common import backends
from common.command_line import names_in
from common.config import Settings
from common.errors import UserError
from launch import matrix
from launch.report import collect
from launch.report.questions import reference as committed_sets
from launch.run import reference
from launch.run.kept_products import Measured
from launch.run.matrix_options import Matrix, RunSettings
from launch.run.plan import plan

JOBS = plan(reference.BACKENDS, names_in(reference.AXES["workloads"]), reference.AXES["sizes"], reference.AXES["repeats"], None, Settings())
CELLS = {(job.settings.workload, job.backend, job.num_ranks, job.settings.repeat) for job in JOBS}


def cells(pattern):
    records, _ = collect.collect(sorted(committed_sets.SETS[0].parent.glob(f"*/{pattern}")))
    return {(record.workload, record.backend, record.num_ranks, record.repeat) for record in records if not record.settings.control}


@pytest.mark.parametrize("begun", ["20261125-172137", "20261125-175814", "20261126-221041"])
def test_it_has_the_runs_of_the_committed_matrices(begun):
    assert cells(f"{begun}-*") == CELLS


def test_its_verdicts_have_controls_at_two_ranks():
    controls = [job for job in matrix.prepare(Matrix(reference=True)).jobs if job.settings.control]
    assert {(job.backend, job.num_ranks) for job in controls} == {("ddp", 2)}
    assert len(controls) == 2 * reference.AXES["repeats"] * len(names_in(reference.AXES["workloads"]))


def test_the_second_machine_ran_a_part_of_it():
    assert set() < cells("20261125-231653-*") < CELLS


def test_it_has_every_default_backend():
    assert set(backends.chosen(None)) <= set(reference.BACKENDS)


def test_axes_and_device_are_its_own_and_everything_else_is_kept():
    run = RunSettings(seed=7, machine="there", mkl_kernels="fast")
    applied = reference.applied(Matrix(reference=True, launcher="mpich", quiet_limit=5.0, run=run))
    assert (applied.sizes, applied.repeats, applied.run.device) == ((1, 2), 6, "cpu")
    assert applied.run == dataclasses.replace(run, device="cpu")
    assert (applied.launcher, applied.quiet_limit) == ("mpich", 5.0)


@pytest.mark.parametrize(
    ("options", "settings", "named"),
    [
        ({"sizes": (4,), "repeats": 3}, {}, "the sizes and --repeats"),
        ({"backends": "ddp"}, {"precision": "bf16"}, "--backends and --precision"),
        ({"side_by_side": False}, {}, "--no-side-by-side"),
        ({"print_jobs": "slurm"}, {}, "--print-jobs"),
        ({}, {"scaling": "strong", "epochs": 3}, "--scaling and --epochs|--epochs and --scaling"),
        ({}, {"device": "cuda"}, "--device"),
    ],
)
def test_an_option_that_would_change_it_is_refused(options, settings, named):
    with pytest.raises(UserError, match=f"leave out ({named})$"):
        reference.applied(Matrix(reference=True, run=RunSettings(**settings), **options))


def test_its_ratios_are_judged_at_the_end(monkeypatch, tmp_path):
    judged = []
    monkeypatch.setattr(matrix, "run_all", lambda *_: 0)
    monkeypatch.setattr(matrix, "runnable", lambda prepared, _: (prepared.jobs, {}))
    monkeypatch.setattr(matrix.products, "measure", lambda *_: Measured({}, None))
    monkeypatch.setattr(matrix.reference, "show_judgement", judged.append)
    monkeypatch.chdir(tmp_path)
    assert matrix.run(Matrix(reference=True, run=RunSettings(results=tmp_path))) == 0
    assert matrix.run(Matrix(run=RunSettings(results=tmp_path))) == 0
    assert judged == [[]]


def test_the_judgement_is_printed(capsys):
    reference.show_judgement(collect.collect([committed_sets.SETS[1]])[0])
    printed = capsys.readouterr().out
    assert committed_sets.QUESTION in printed
    assert "differs: 5" in printed
    reference.show_judgement([])
    assert "nothing to judge" in capsys.readouterr().out
