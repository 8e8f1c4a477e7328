"""The programs that print an MPI profile and a timeline of Horovod: real files, and bad ones."""

import json

import pytest

from common.errors import UserError
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
    printed = capsys.readouterr().out
    assert rows(printed)[routine] == cells
    assert printed.startswith(f"rank {mpi_profile.read(path).rank} of ")


@pytest.mark.matrix
def test_the_profiles_of_a_real_program_of_two_ranks(tmp_path, capsys):
    traced = tracing.run_python(tmp_path, PROGRAM, ranks=2)
    assert traced.status == 0, traced.printed
    done = completed(BIN / "python", "-m", "launch.trace.profile", traced.folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split(":")[0] for line in done.stdout.splitlines() if line.startswith("rank ")] == ["rank 0 of 2", "rank 1 of 2"]
    printed = rows(done.stdout)
    assert printed["MPI_Allreduce_c"][:2] == printed["payload"][:2] == ["3", str(8 * 200_004)]
    calls, _, _, control_calls, *_ = printed["MPI_Barrier"]
    assert int(calls) == int(control_calls) >= 1
    assert "payload: " in done.stdout
    # Each rank has left a text beside the JSON, with the same calls.
    assert profile.run(profile.Arguments(tuple(traced.files(suffix="").values()))) == 0
    assert rows(capsys.readouterr().out)["MPI_Allreduce_c"][:2] == ["3", str(8 * 200_004)]


def test_a_bad_profile_is_an_error_before_anything_is_printed(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "mpi_profile.1.0").write_text(NEWER)
    (tmp_path / "mpi_profile.1.1").write_text(NEWER[:200])
    for paths, message in (
        ((), "no file is given"),
        ((tmp_path / "mpi_profile.1.0", tmp_path / "none"), "No such file"),
        ((tmp_path,), "is truncated"),
        ((tmp_path / "empty",), "has no MPI profile"),
    ):
        with pytest.raises(UserError, match=message):
            profile.run(profile.Arguments(paths))
    assert capsys.readouterr().out == ""


def test_a_timeline_of_horovod_is_summed_up_and_nothing_is_written(tmp_path):
    path = tmp_path / "any.json"
    path.write_text(json.dumps([EPOCH, *NAMES, *NEGOTIATED, *FUSED]))
    done = completed(BIN / "python", "-m", "launch.trace.timeline", path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 collectives (1 ALLREDUCE)" in done.stdout
    path.write_text(path.read_text()[:-20])
    assert timeline.describe_file(path)[-1].startswith("problem: ")
    assert list(tmp_path.iterdir()) == [path]


OTHER_TRACE = '{"traceEvents": [{"ph": "X", "name": "step", "pid": 0, "tid": 0, "ts": 0}]}'


@pytest.mark.parametrize("content", [None, "", "Data for MPI rank", "[]", '[{"ph": "B", "ts": 1}]', OTHER_TRACE])
def test_a_bad_timeline_is_an_error(content, tmp_path):
    path = tmp_path / "any.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=str(path)) as raised:
        timeline.describe_file(path)
    assert "\n" not in str(raised.value)
