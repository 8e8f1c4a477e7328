"""The jobs of a matrix and their order."""

import pytest

from common.config import Settings
from launch import matrix
from launch.run.options import Matrix
from launch.run.plan import groups, plan
from tests.support.mistakes import refused


def names(jobs):
    """backend@ranks of each job."""
    return " ".join(f"{job.backend}@{job.num_ranks}" for job in jobs)


def made(backends, sizes, repeats=1, workloads=("cnn",), ranks_per_node=None, **changes):
    return plan(backends, workloads, sizes, repeats, ranks_per_node, Settings(**changes))


@pytest.mark.parametrize(
    ("backends", "sizes", "expected"),
    [
        (["single", "ddp", "horovod_torch"], (1, 2), "single@1 ddp@1 horovod_torch@1 ddp@2 horovod_torch@2"),
        (["ddp", "single"], (1,), "ddp@1 single@1"),
        (["ddp"], (4, 1, 2), "ddp@1 ddp@2 ddp@4"),
        (["single", "ddp"], (2, 4), "single@1 ddp@2 ddp@4"),
        (["ddp"], (2, 4), "ddp@2 ddp@4"),
        (["single"], (2, 4), "single@1"),
        # One of several jobs, each of one size.
        (["single", "ddp"], (4,), "ddp@4"),
    ],
)
def test_jobs_go_by_size_and_single_runs_once_at_size_1(backends, sizes, expected):
    assert names(made(backends, sizes)) == expected


def test_every_repeat_begins_with_another_run_and_every_second_with_the_largest_size():
    jobs = made(["single", "ddp", "horovod_tf"], (1, 2), repeats=3)
    assert [names(group) for group in groups(jobs, True, 2)] == [
        "single@1 ddp@1 horovod_tf@1 ddp@2 horovod_tf@2",
        "horovod_tf@2 ddp@2 ddp@1 horovod_tf@1 single@1",
        "horovod_tf@1 single@1 ddp@1 ddp@2 horovod_tf@2",
    ]
    # A control is one of them.
    with_controls = plan(["ddp", "horovod_tf"], ["cnn"], (2,), 2, None, Settings(), with_controls=True)
    assert [[f"{job.backend} {job.settings.control}" for job in group] for group in groups(with_controls, True, 2)] == [
        ["ddp None", "horovod_tf None", "ddp copy", "ddp delayed"],
        ["horovod_tf None", "ddp copy", "ddp delayed", "ddp None"],
    ]


@pytest.mark.parametrize(
    ("backends", "sizes", "changes", "expected"),
    [
        (["single", "horovod_tf", "ddp"], (1, 2), {}, ["horovod_tf@2 copy", "horovod_tf@2 delayed"]),
        (["ddp@mpi", "ddp"], (2, 4), {}, ["ddp@mpi@2 copy", "ddp@mpi@2 delayed", "ddp@mpi@4 copy", "ddp@mpi@4 delayed"]),
        # A traced run is no control.
        (["ddp"], (2,), {"trace": "mpi"}, ["ddp@2 copy", "ddp@2 delayed"]),
        (["single", "ddp"], (1,), {}, []),
    ],
)
def test_the_first_distributed_backend_has_controls_at_each_size_of_several_ranks(backends, sizes, changes, expected):
    def of_one_repeat(with_controls):
        return plan(backends, ["cnn"], sizes, 1, None, Settings(machine="here", **changes), with_controls)

    jobs = of_one_repeat(True)
    assert [f"{names([job])} {job.settings.control}" for job in jobs if job.settings.control] == expected
    assert [job for job in jobs if not job.settings.control] == of_one_repeat(False)
    assert len({job.settings.run_id for job in jobs}) == len(jobs)
    assert not any(job.settings.step_breakdown or job.settings.trace for job in jobs if job.settings.control)


@pytest.mark.parametrize(("options", "num_controls"), [({"repeats": 6}, 12), ({"repeats": 5}, 0), ({"repeats": 6, "controls": False}, 0)])
def test_a_matrix_has_controls_where_it_gives_verdicts(options, num_controls):
    prepared = matrix.prepare(Matrix(sizes=(2,), backends="ddp,horovod_tf", workloads="cnn", **options))
    assert sum(bool(job.settings.control) for job in prepared.jobs) == num_controls


ALONE = ["single@1", "ddp@1", "horovod_torch@1", "ddp@2", "horovod_torch@2", "ddp@4", "horovod_torch@4"]


@pytest.mark.parametrize(
    ("side_by_side", "changes", "expected"),
    [
        (True, {}, ["single@1 ddp@1 horovod_torch@1 ddp@2 horovod_torch@2", "ddp@4 horovod_torch@4"]),
        (True, {"threads": 2}, ["single@1 ddp@1 horovod_torch@1", "ddp@2 horovod_torch@2", "ddp@4 horovod_torch@4"]),
        (True, {"ranks_per_node": 2}, ["single@1 ddp@1 horovod_torch@1 ddp@2 horovod_torch@2", "ddp@4", "horovod_torch@4"]),
        (False, {}, ALONE),
    ],
)
def test_the_backends_and_the_sizes_with_cores_of_their_own_run_side_by_side_on_one_node(side_by_side, changes, expected):
    jobs = made(["single", "ddp", "horovod_torch"], (1, 2, 4), **changes)
    assert [names(group) for group in groups(jobs, side_by_side, 3)] == expected


def test_other_workloads_repeats_and_traced_runs_are_not_side_by_side_and_every_run_has_a_name():
    jobs = made(["single", "ddp"], (1,), repeats=2, workloads=["cnn", "transformer"], trace="mpi")
    run_ids = [[job.settings.run_id for job in group] for group in groups(jobs, True, 1)]
    assert run_ids[:4] == [
        ["cnn-single-n1-r0", "cnn-ddp-n1-r0"], ["cnn-single-n1-r0-traced"], ["cnn-ddp-n1-r0-traced"],
        ["transformer-single-n1-r0", "transformer-ddp-n1-r0"],
    ]  # fmt: skip
    assert len(run_ids) == 12
    assert len({job.settings.run_id for job in jobs}) == len(jobs)
    assert all(f"-r{job.settings.repeat}" in job.settings.run_id for job in jobs)
    assert all(job.settings.trace == ("mpi" if job.settings.run_id.endswith("-traced") else None) for job in jobs)


def test_all_other_settings_are_those_of_the_matrix():
    (job,) = made(["ddp"], (2,), threads=3, precision="fp64", machine="here")
    assert job.settings == Settings(threads=3, precision="fp64", machine="here", run_id="cnn-ddp-n2-r0")


@pytest.mark.parametrize(("ranks_per_node", "expected"), [(None, [1, 2, 8]), (4, [1, 2, 4]), (1, [1, 1, 1])])
def test_ranks_on_a_node_are_no_more_than_there_are(ranks_per_node, expected):
    assert [job.ranks_per_node for job in made(["ddp"], (1, 2, 8), ranks_per_node=ranks_per_node)] == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"backends": []}, "there is no backend to run"),
        ({"workloads": []}, "there is no workload to run"),
        ({"sizes": ()}, "there is no size to run"),
        ({"backends": ["ddp", "single", "ddp"]}, "backend ddp is given more than once"),
        ({"workloads": ["cnn", "cnn"]}, "workload cnn is given more than once"),
        ({"sizes": (1, 2, 4, 2, 4)}, "size 2, 4 is given more than once"),
        ({"sizes": (4,), "backends": ["single"]}, "single runs in one process, not in 4; give size 1"),
    ],
)
def test_axes_that_make_no_runs_are_refused(changes, message):
    with refused(message):
        made(**{"backends": ["single", "ddp"], "sizes": (1, 2)} | changes)
