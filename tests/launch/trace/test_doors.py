"""The programs that print an MPI profile and a timeline of Horovod: real files, and bad ones."""

import json

import pytest

from launch.trace import mpi_profile, profile, timeline
from tests.common.tracing.test_horovod_timeline import EPOCH, FUSED, NAMES, NEGOTIATED
from tests.launch.trace.test_mpi_profile import NEWER, OLDER, OURS
from tests.support import tracing
from tests.support.running import BIN, completed

PROGRAM = """
from mpi4py import MPI
import numpy as np
MPI.COMM_WORLD.Barrier()
for size in (4, 100_000, 100_000):
    MPI.COMM_WORLD.Allreduce(np.ones(size), np.zeros(size))
"""


def printed(*arguments):
    """(exit status, standard output, standard error) of a module with its arguments."""
    done = completed(BIN / "python", "-m", *arguments)
    return done.returncode, done.stdout, done.stderr


def rows(text):
    """{first cell: the other cells} of the rows of tables."""
    cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in text.splitlines() if line.startswith("│")]
    return {first: others for first, *others in cells}


@pytest.mark.parametrize(
    ("text", "routine", "cells"),
    [
        (NEWER, "MPI_Allreduce", ["12506", "477860513", "5.887"]),
        (OLDER, "MPI_Send", ["100", "100000", "0.125"]),
        (OURS, "ncclAllReduce", ["10", "40000", "0.001"]),
        (OURS, "payload", ["142", "482448364", "0.252"]),
    ],
)
def test_the_layouts_of_a_profile(text, routine, cells, tmp_path, capsys):
    path = tmp_path / "mpi_profile.1.0"
    path.write_text(text)
    assert profile.run(profile.Arguments((path,))) == 0
    shown = capsys.readouterr().out
    assert rows(shown)[routine] == cells
    assert shown.startswith(f"rank {mpi_profile.read(path).rank} of ")


@pytest.mark.matrix
def test_the_profiles_of_a_real_program_of_two_ranks(tmp_path):
    traced = tracing.run(tmp_path, BIN / "python", "-c", PROGRAM, ranks=2)
    assert traced.status == 0, traced.printed
    status, shown, error = printed("launch.trace.profile", traced.folder)
    assert (status, error) == (0, "")
    assert [line.split(":")[0] for line in shown.splitlines() if line.startswith("rank ")] == ["rank 0 of 2", "rank 1 of 2"]
    assert rows(shown)["MPI_Allreduce_c"][:2] == ["3", str(8 * 200_004)]
    assert rows(shown)["payload"][:2] == ["3", str(8 * 200_004)]
    calls, _, _, control_calls, *_ = rows(shown)["MPI_Barrier"]
    assert int(calls) == int(control_calls) >= 1
    assert "payload: " in shown
    # Each rank has left a text beside the JSON, with the same calls.
    status, shown, _ = printed("launch.trace.profile", *traced.files(suffix="").values())
    assert (status, rows(shown)["MPI_Allreduce_c"][:2]) == (0, ["3", str(8 * 200_004)])


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "No such file"), ("", "is not an MPI profile"), (NEWER[:200], "is truncated"), ("folder", "has no MPI profile")],
)
def test_a_bad_profile_is_one_line_and_exit_status_2(content, message, tmp_path):
    path = tmp_path / "mpi_profile.1.0"
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_text(content)
    status, shown, error = printed("launch.trace.profile", path)
    assert (status, shown, error.count("\n")) == (2, "", 1)
    assert message in error


def test_a_timeline_of_horovod_is_summed_up_and_nothing_is_written(tmp_path):
    path = tmp_path / "any.json"
    path.write_text(json.dumps([EPOCH, *NAMES, *NEGOTIATED, *FUSED]))
    status, shown, error = printed("launch.trace.timeline", path)
    assert (status, error) == (0, "")
    assert "1 collectives (1 ALLREDUCE)" in shown
    assert list(tmp_path.iterdir()) == [path]


def test_a_truncated_timeline_of_horovod_is_summed_up_with_the_problem(tmp_path):
    path = tmp_path / "any.json"
    path.write_text(json.dumps([EPOCH, *NAMES, *NEGOTIATED, *FUSED])[:-20])
    assert timeline.describe_file(path)[-1].startswith("problem: ")


OTHER_TRACE = '{"traceEvents": [{"ph": "X", "name": "step", "pid": 0, "tid": 0, "ts": 0}]}'


@pytest.mark.parametrize("content", [None, "", "Data for MPI rank", "[]", '[{"ph": "B", "ts": 1}]', OTHER_TRACE])
def test_a_bad_timeline_is_one_line_and_exit_status_2(content, tmp_path):
    path = tmp_path / "any.json"
    if content is not None:
        path.write_text(content)
    status, shown, error = printed("launch.trace.timeline", path)
    assert (status, shown, error.count("\n")) == (2, "", 1)
    assert str(path) in error
