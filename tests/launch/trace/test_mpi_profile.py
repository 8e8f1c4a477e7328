"""Profiles of IBM's mpitrace in both layouts, of the interposer, and damaged files; and the program that prints them."""

import json

import pytest

from common.errors import UserError
from launch.trace import mpi_profile, profile
from launch.trace.mpi_profile import MEBIBYTE, Routine, Sums, Task

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
  Rank 0 reported the largest elapsed time : 60.50 sec

  minimum communication time = 6.001 sec for task 1
  median  communication time = 6.001 sec for task 1
  maximum communication time = 6.141 sec for task 0

MPI timing summary for all ranks:
taskid     host    cpu    comm(s)  elapsed(s)     user(s)   system(s)   size(MiB)    switches
     0   nid0001     12       6.14       60.50       58.13        1.50      1024.50         412
     1   nid0002      0       6.00       60.50       58.20        1.40      1000.00          98
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
OLDER_RANK_0 = (
    OLDER.replace("rank 3", "rank 0").replace("of 8", "of 1")
    + f"""
{SHORT_RULE}

Communication summary for all tasks:

MPI timing summary for all ranks:
taskid  hostname    comm(s)  elapsed(s)     user(s)   system(s)    size(MB)    switches
     0     c1n05       0.63        2.00        1.75        0.13       64.00          11
"""
)
OURS = (
    NEWER
    + f"""
{SHORT_RULE}
Payload and control (Tandem):

kind                               #calls              bytes      time(sec)    waited(sec)
payload                               142          482448364          0.252          0.000
control                             12416             198668          5.889          5.500
completion                              8                  0          0.050          0.000
other                                   2                  0          0.000          0.000
io                                      3              12288          0.125          0.000
effective bandwidth of payload = 1597.511 MB/s.

{SHORT_RULE}
NCCL calls (Tandem; the time is that of enqueueing on the GPU, not of the transfer):

NCCL Routine                       #calls     avg. bytes      time(sec)
ncclAllReduce                          10         4000.0          0.001

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
BY_SIGTERM = "this rank ended by SIGTERM and not by MPI_Finalize()"


@pytest.fixture
def read(tmp_path):
    """Reads a text as a file."""

    def read(text):
        path = tmp_path / "mpi_profile.1.0"
        path.write_text(text, errors="surrogateescape")
        return mpi_profile.read(path)

    return read


def test_newer_layout(read):
    profile = read(NEWER)
    assert profile[:8] == (0, 2, "MPI_Finalize()", 6.141, 60.5, 58.125, 1.5, 1024.5 * MEBIBYTE)
    assert list(profile.routines) == ["MPI_Comm_rank", "MPI_Allreduce", "MPI_Bcast", "MPI_Gatherv"]
    assert profile.routines["MPI_Comm_rank"] == Routine("MPI_Comm_rank", Sums(2, 0.0, 0.0))
    sizes = (Sums(12404, 12404 * 16.0, 5.885), Sums(102, 102 * 4682827.1, 0.002))
    assert profile.routines["MPI_Allreduce"] == Routine("MPI_Allreduce", Sums(12506, 12506 * 38210.5, 5.887), sizes)
    assert profile.tasks == (
        Task(0, "nid0001", 12, 6.14, 60.5, 58.13, 1.5, 1024.5 * MEBIBYTE, 412),
        Task(1, "nid0002", 0, 6.0, 60.5, 58.2, 1.4, 1000.0 * MEBIBYTE, 98),
    )
    assert (profile.kinds, profile.nccl, profile.no_summary_because, profile.payload_bytes_per_second()) == (None, {}, None, None)
    assert profile.waited_seconds is None


def test_older_layout(read):
    profile = read(OLDER)
    assert profile[:8] == (3, 8, "MPI_Finalize()", 0.625, 2.0, 1.75, 0.125, 64.0 * MEBIBYTE)
    assert profile.routines == {
        "MPI_Send": Routine("MPI_Send", Sums(100, 100_000.0, 0.125), (Sums(60, 240.0, 0.025), Sums(40, 99_760.0, 0.1))),
        "MPI_Barrier": Routine("MPI_Barrier", Sums(7, 0.0, 0.5)),
    }
    assert profile.tasks == ()
    # Its summary has no CPU.
    assert read(OLDER_RANK_0).tasks == (Task(0, "c1n05", None, 0.63, 2.0, 1.75, 0.13, 64.0 * MEBIBYTE, 11),)


def test_additions_to_the_layout(read):
    profile = read(OURS)
    assert profile[:13] == read(NEWER)._replace(nccl=profile.nccl, kinds=profile.kinds)[:13]
    assert profile.kinds["control"] == Sums(12416, 198668, 5.889, 5.5)
    assert profile.nccl == {"ncclAllReduce": Routine("ncclAllReduce", Sums(10, 40000.0, 0.001))}
    assert profile.payload_bytes_per_second() == pytest.approx(482448364 / 0.302)


@pytest.mark.parametrize(
    ("replaced", "changes"),
    [
        (("total communication time = 6.141 seconds.", IN_BARRIERS), {"communication_seconds": 11.641, "waited_seconds": 5.5}),
        # Between two marks of the program.
        (("from MPI_Init() to MPI_Finalize()", "from MPI_Pcontrol(1) to MPI_Pcontrol(0)"), {"ended": "MPI_Pcontrol(0)"}),
        ((" 1024.500 MiB.\n", f" 1024.500 MiB.\nThere is no summary for all tasks: {BY_SIGTERM}.\n"), {"no_summary_because": BY_SIGTERM}),
        # Tables by communicator size and MPI-IO are skipped.
        (("rank 0 of 2:", "rank 0 of 2: (all communicators)"), {}),
        (("distributions:", "distributions: (all communicators)"), {}),
        ((f"{RULE}\n\nSummary", f"{BY_COMMUNICATOR_SIZE}\n{RULE}\n\nSummary"), {}),
        ((" 1024.500 MiB.\n", " 1024.500 MiB.\n\ntotal MPI-IO time = 1.500 seconds.\n"), {}),
    ],
)
def test_a_profile_with_more_or_other_lines(read, replaced, changes):
    assert replaced[0] in NEWER
    assert read(NEWER.replace(*replaced)) == read(NEWER)._replace(**changes)


def ends_of(text, first, last):
    """The text truncated after each line from one that has `first` to one that has `last`."""
    lines = text.splitlines(keepends=True)
    numbers = [number for number, line in enumerate(lines) if first in line or last in line]
    return ["".join(lines[: number + 1]) for number in range(numbers[0], numbers[-1])]


TRUNCATED = [
    *ends_of(NEWER, "MPI Routine ", "max resident"),
    "\n".join(NEWER.splitlines()[:5]) + "\n",
    *ends_of(NEWER, "taskid", "     1   nid0002"),
    NEWER[:-1],
    NEWER[:-5],
    OLDER[: OLDER.index("max resident") + 30],
    OLDER[:-8],
]
# The last lines of texts that end between sizes.
BETWEEN_SIZES = (
    "                              60           4.0          0.025\n",
    "MPI_Send                  #calls    avg. bytes      time(sec)\n",
    "max resident set size    = 64.000 MBytes.\n",
)


def of_json(**changes):
    """The JSON of a rank without calls, as far as `read` uses it, with changes."""
    task = {"rank": 0, "host": "n", "cpu": 0, "max_resident_bytes": 1, "switches": 0}
    task |= dict.fromkeys(("communication_seconds", "elapsed_seconds", "user_seconds", "system_seconds"), 0.5)
    sums = {"calls": 0, "bytes": 0, "seconds": 0.0, "waited_seconds": 0.0}
    whole = {
        "format": "tandem mpi profile 1", "num_ranks": 1, "ended": "exit()", "own": task, "kinds": dict.fromkeys(mpi_profile.KINDS, sums),
        "routines": [], "nccl": [], "tasks": [], "no_summary_because": "", "num_threads": 1, "barrier_before_collectives": False,
    }  # fmt: skip
    return json.dumps(whole | changes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((text, r"mpi_profile\.1\.0 is truncated after line \d+; copy it again") for text in TRUNCATED),
        *((OLDER[: OLDER.index(last) + len(last)], "the message sizes of MPI_Send do not add up to its calls") for last in BETWEEN_SIZES),
        ("", "is not an MPI profile"),
        (NEWER.replace("58.125", "6.1.41"), r"is damaged \(could not convert string to float: '6\.1\.41'\)"),
        (NEWER.replace("     1   nid0002 ", "  one  nid0002 "), "is damaged .*'one'"),
        (NEWER.replace("switches", "changes"), "is damaged: 'switches' is missing"),
        (OURS.replace("completion  ", "fulfilment  "), "is damaged: 'completion' is missing; copy it again"),
        (of_json(kinds={}), "is damaged: 'payload' is missing"),
        (of_json(kinds={"payload": {"calls": "6.1.41", "bytes": 0, "seconds": 0, "waited_seconds": 0}}), r"is damaged .*'6\.1\.41'"),
        (of_json(own=None), "is damaged"),
        ("\x00\xff\x7fELF", "is not an MPI profile"),
        (NEWER.replace("Times from", "Zeiten von"), "is not an MPI profile"),
        (json.dumps({"format": "tandem mpi profile 2"}), "its format is not 'tandem mpi profile 1'"),
        ('{"format": "tandem mpi profile 1", "rank": 0,', "is truncated or damaged"),
    ],
)
def test_a_damaged_profile_is_a_one_line_error(read, text, message):
    with pytest.raises(UserError, match=message) as raised:
        read(text)
    assert "\n" not in str(raised.value)


def rows(text):
    """Returns {first cell: the other cells} of the rows of tables."""
    cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in text.splitlines() if line.startswith("│")]
    return {first: values for first, *values in cells}


@pytest.mark.parametrize(
    ("text", "routine", "cells"),
    [
        (OLDER, "MPI_Send", ["100", "100000", "0.125"]),
        (OURS, "ncclAllReduce", ["10", "40000", "0.001"]),
        (OURS, "payload", ["142", "482448364", "0.252"]),
    ],
)
def test_a_profile_is_printed(text, routine, cells, tmp_path, capsys):
    path = tmp_path / "mpi_profile.1.0"
    path.write_text(text)
    assert profile.run(profile.Arguments((path,))) == 0
    printed = capsys.readouterr().out
    assert rows(printed)[routine] == cells
    assert printed.startswith(f"rank {mpi_profile.read(path).rank} of ")
    assert ("payload: " in printed) == (text == OURS)


def test_of_a_text_and_its_json_the_json_is_printed(tmp_path, capsys):
    sums = {"calls": 2, "bytes": 8, "seconds": 0.5, "waited_seconds": 0.0}
    barrier = sums | {"name": "MPI_Barrier", "histogram": [], "control": sums}
    (tmp_path / "mpi_profile.1.0").write_text(NEWER)
    (tmp_path / "mpi_profile.1.0.json").write_text(of_json(routines=[barrier]))
    assert profile.run(profile.Arguments((tmp_path,))) == 0
    assert rows(capsys.readouterr().out) == {"MPI_Barrier": ["2", "8", "0.500"] * 2}


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
