"""Profiles of IBM's mpitrace in both layouts, of the interposer, and damaged files; and the program that prints them."""

import pytest

from common.errors import UserError
from common.record.parts import MpiCalls
from launch.trace import profile

RULE, SHORT_RULE = "-" * 71, "-" * 65
NEWER = f"""Data for MPI rank 0 of 2:
Times from MPI_Init() to MPI_Finalize().
{RULE}
MPI Routine                        #calls     avg. bytes      time(sec)
{RULE}
MPI_Comm_rank                           2            0.0          0.000
MPI_Allreduce                       12506        38210.5          5.887
MPI_Bcast                              40       120000.0          0.250
MPI_Gatherv                            12           17.0          0.004
{RULE}
MPI task 0 of 2 had the maximum communication time.
total communication time = 6.141 seconds.
total elapsed time       = 60.500 seconds.
user cpu time            = 58.125 seconds.
system time              = 1.500 seconds.
max resident set size    = 1024.500 MiB.

{RULE}
Message size distributions:

MPI_Allreduce             #calls    avg. bytes      time(sec)
                           12404          16.0          5.885
                             102     4682827.1          0.002

MPI_Bcast                 #calls    avg. bytes      time(sec)
                              40      120000.0          0.250

MPI_Gatherv               #calls    avg. bytes      time(sec)
                              12          17.0          0.004

{RULE}

Summary for all tasks:

  Rank 0 reported the largest memory utilization : 1024.50 MiB

MPI timing summary for all ranks:
taskid     host    cpu    comm(s)  elapsed(s)     user(s)   system(s)   size(MiB)    switches
     0   nid0001     12       6.14       60.50       58.13        1.50      1024.50         412
"""
# The rule that closes the table is the shorter one.
OLDER = f"""Data for MPI rank 3 of 8:
Times and statistics from MPI_Init() to MPI_Finalize().
{RULE}
MPI Routine                        #calls     avg. bytes      time(sec)
{RULE}
MPI_Send                              100         1000.0          0.125
MPI_Barrier                             7            0.0          0.500
{SHORT_RULE}
MPI task 3 of 8 had the median communication time.
total communication time = 0.625 seconds.
total elapsed time       = 2.000 seconds.
user cpu time            = 1.750 seconds.
system time              = 0.125 seconds.
max resident set size    = 64.000 MBytes.

{SHORT_RULE}
Message size distributions:

MPI_Send                  #calls    avg. bytes      time(sec)
                              60           4.0          0.025
                              40        2494.0          0.100
"""
OURS = (
    NEWER
    + f"""
{SHORT_RULE}
Payload and control (Tandem):

kind                               #calls              bytes      time(sec)
payload                               142          482448364       0.252000
control                             12416             198668       5.889000
completion                              8                  0       0.050000
other                                   2                  0       0.000000
io                                      3              12288       0.125000

{SHORT_RULE}
NCCL calls (Tandem; the time is that of enqueueing on the GPU, not of the transfer):

NCCL Routine                       #calls     avg. bytes      time(sec)
ncclAllReduce                          10         4000.0       0.001000
"""
)
BY_COMMUNICATOR_SIZE = """   -----------------------------------------------------------------
   Profile data by communicator size:
   -----------------------------------------------------------------------
   Data for communicator sizes 0 to 2 , avg size = 2.00:
   -----------------------------------------------------------------------
   MPI Routine                        #calls      avg. bytes      time(sec)
   MPI_Allreduce                         12506         38210.5          5.887
   MPI time for this communicator bin = 5.887 sec.
"""
IN_BARRIERS = "synchronization time     = 5.500 seconds.\ntotal communication time = 11.641 seconds (including synchronization)."


@pytest.fixture
def read(tmp_path):
    """Reads a text as a file."""

    def read(text):
        path = tmp_path / "mpi_profile.1.0"
        path.write_text(text, errors="surrogateescape")
        return profile.read(path)

    return read


def test_the_layouts_of_mpitrace_and_the_additions_to_them(read):
    newer, older, ours = map(read, (NEWER, OLDER, OURS))
    assert newer[:8] == (0, 2, "MPI_Finalize()", 6.141, 60.5, 58.125, 1.5, 1024.5)
    assert list(newer.routines) == ["MPI_Comm_rank", "MPI_Allreduce", "MPI_Bcast", "MPI_Gatherv"]
    assert newer.routines["MPI_Allreduce"] == MpiCalls(12506, 12506 * 38210.5, 5.887)
    assert (newer.kinds, newer.nccl, newer.payload_bytes_per_second()) == (None, {}, None)
    assert older[:8] == (3, 8, "MPI_Finalize()", 0.625, 2.0, 1.75, 0.125, 64.0)
    assert older.routines == {"MPI_Send": MpiCalls(100, 100_000.0, 0.125), "MPI_Barrier": MpiCalls(7, 0.0, 0.5)}
    assert ours[:9] == newer[:9]
    assert ours.kinds["control"] == MpiCalls(12416, 198668, 5.889)
    assert ours.nccl == {"ncclAllReduce": MpiCalls(10, 40000.0, 0.001)}
    assert ours.payload_bytes_per_second() == pytest.approx(482448364 / 0.302)


@pytest.mark.parametrize(
    ("replaced", "changes"),
    [
        (("total communication time = 6.141 seconds.", IN_BARRIERS), {"communication_seconds": 11.641}),
        # Between two marks of the program.
        (("from MPI_Init() to MPI_Finalize()", "from MPI_Pcontrol(1) to MPI_Pcontrol(0)"), {"ended": "MPI_Pcontrol(0)"}),
        # Tables by communicator size and MPI-IO are skipped.
        (("rank 0 of 2:", "rank 0 of 2: (all communicators)"), {}),
        ((f"{RULE}\n\nSummary", f"{BY_COMMUNICATOR_SIZE}\n{RULE}\n\nSummary"), {}),
        ((" 1024.500 MiB.\n", " 1024.500 MiB.\n\ntotal MPI-IO time = 1.500 seconds.\n"), {}),
    ],
)
def test_a_profile_with_more_or_other_lines(read, replaced, changes):
    assert replaced[0] in NEWER
    assert read(NEWER.replace(*replaced)) == read(NEWER)._replace(**changes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\x00\xff\x7fELF", "is not an MPI profile"),
        (NEWER.replace("Times from", "Zeiten von"), "is not an MPI profile"),
        (NEWER[: NEWER.index("system time")], r"mpi_profile\.1\.0 is truncated after line 14; copy it again"),
        (NEWER[:-1], "is truncated"),
        (OURS[: OURS.index("completion  ")], "is truncated"),
        (NEWER.replace("58.125", "6.1.41"), r"is damaged \(could not convert string to float: '6\.1\.41'\)"),
    ],
)
def test_a_damaged_profile_is_an_error_of_one_line(read, text, message):
    with pytest.raises(UserError, match=message) as raised:
        read(text)
    assert "\n" not in str(raised.value)


def rows(text):
    """Returns {first cell: the other cells} of the rows of tables."""
    cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in text.splitlines() if line.startswith("│")]
    return {first: values for first, *values in cells}


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        (OLDER, {"MPI_Send": ["100", "100000", "125.00"]}),
        (OURS, {"ncclAllReduce": ["10", "40000", "1.00"], "payload": ["142", "482448364", "252.00"]}),
    ],
)
def test_a_profile_is_printed(text, cells, tmp_path, capsys):
    path = tmp_path / "mpi_profile.1.0"
    path.write_text(text)
    assert profile.run(profile.Arguments((path,))) == 0
    printed = capsys.readouterr().out
    assert rows(printed).items() >= cells.items()
    assert printed.startswith(f"rank {profile.read(path).rank} of ")
    assert ("payload: " in printed) == (text == OURS)


def test_of_a_folder_all_ranks_are_printed_and_the_routines_of_some(tmp_path, capsys):
    for rank, seconds in enumerate((3, 5, 2, 4, 1)):
        text = OLDER.replace("rank 3", f"rank {rank}").replace("time = 0.625", f"time = {seconds}.000")
        (tmp_path / f"mpi_profile.1.{rank}").write_text(text)
    (tmp_path / "mpi_profile.1.json").touch()
    assert profile.run(profile.Arguments((tmp_path,))) == 0
    printed = capsys.readouterr().out
    assert [rows(printed)[str(rank)][0] for rank in range(5)] == ["3.00", "5.00", "2.00", "4.00", "1.00"]
    # Rank 0, which is the median, and the ranks of most and least time in MPI.
    assert [rank for rank in range(5) if f"rank {rank} of 8: " in printed] == [0, 1, 4]


def test_a_bad_profile_is_an_error_before_anything_is_printed(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "mpi_profile.1.0").write_text(NEWER)
    (tmp_path / "mpi_profile.1.1").write_text(NEWER[:200])
    for paths, message in (
        ((), "no file is given"),
        ((tmp_path / "mpi_profile.1.0", tmp_path / "none"), "No such file or directory; give a file mpi_profile"),
        ((tmp_path,), "is truncated"),
        ((tmp_path / "empty",), "has no MPI profile"),
    ):
        with pytest.raises(UserError, match=message):
            profile.run(profile.Arguments(paths))
    assert capsys.readouterr().out == ""
