"""The interposer's counters for programs with known calls, in C and mpi4py."""

import re

import pytest

from tests.launch.trace.test_mpi_profile import NEWER
from tests.support.tracing import compiled, run, run_python

PROGRAM = r"""
#include <mpi.h>
#include <stdlib.h>
static void add(void *from, void *to, int *count, MPI_Datatype *type)
{
    int size;
    MPI_Type_size(*type, &size);
    for (int i = 0; i < *count; i++)
        ((int *)to)[i] += ((int *)from)[i];
}
int main(int argc, char **argv)
{
    int one[3] = {1, 1, 1}, two[3] = {2, 2, 2};
    MPI_Op op;
    int rank, size, sent[4] = {0}, received[8] = {0}, counts[2] = {1, 2}, places[2] = {0, 2};
    long bits[2] = {1, 2};
    double numbers[100] = {0}, sums[100];
    MPI_Request requests[2];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < 10; i++)
        MPI_Allreduce(numbers, sums, 100, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < 3; i++)
        MPI_Allreduce_c(MPI_IN_PLACE, sums, 5, MPI_FLOAT, MPI_MAX, MPI_COMM_WORLD);
    for (int i = 0; i < 7; i++)
        MPI_Allreduce(MPI_IN_PLACE, bits, 2, MPI_LONG, i % 2 ? MPI_BAND : MPI_BOR, MPI_COMM_WORLD);
    MPI_Gather(sent, 1, MPI_INT, received, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Gather(rank ? sent : MPI_IN_PLACE, 2, rank ? MPI_FLOAT : MPI_DATATYPE_NULL, received, 2, MPI_FLOAT, 0, MPI_COMM_WORLD);
    MPI_Bcast(sent, 11, MPI_BYTE, 0, MPI_COMM_WORLD);
    MPI_Bcast(sent, 4, MPI_FLOAT, 0, MPI_COMM_WORLD);
    MPI_Scatter(received, 2, MPI_INT, rank ? sent : MPI_IN_PLACE, 2, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Alltoallv(sent, counts, places, MPI_INT, received, rank ? (int[]){2, 2} : (int[]){1, 1}, places, MPI_INT, MPI_COMM_WORLD);
    MPI_Reduce_scatter_block(received, sent, 3, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Isend(numbers, 9, MPI_DOUBLE, 1 - rank, 0, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(sums, 9, MPI_DOUBLE, 1 - rank, 0, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    MPI_Sendrecv(numbers, 0, MPI_DOUBLE, 1 - rank, 0, sums, 9, MPI_DOUBLE, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Op_create(add, 1, &op);
    MPI_Reduce_local(one, two, 3, MPI_INT, op);
    MPI_Pcontrol(0);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Pcontrol(1);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return two[2] != 3;
}
"""
# routine: (calls, bytes, of these control)
EXPECTED = {
    "MPI_Comm_rank": (1, 0, 0, 0),
    "MPI_Comm_size": (1, 0, 0, 0),
    "MPI_Allreduce": (17, 10 * 800 + 7 * 16, 7, 7 * 16),
    "MPI_Allreduce_c": (3, 3 * 20, 0, 0),
    "MPI_Gather": (2, 4 + 8, 1, 4),
    "MPI_Bcast": (2, 11 + 16, 1, 11),
    "MPI_Scatter": (1, 8, 0, 0),
    "MPI_Alltoallv": (1, 12, 0, 0),
    "MPI_Reduce_scatter_block": (1, 24, 0, 0),
    "MPI_Isend": (1, 72, 0, 0),
    "MPI_Irecv": (1, 72, 0, 0),
    "MPI_Waitall": (1, 0, 0, 0),
    "MPI_Sendrecv": (1, 0, 0, 0),
    "MPI_Barrier": (1, 0, 1, 0),
    # The calls within a call are part of it: no MPI_Type_size.
    "MPI_Op_create": (1, 0, 0, 0),
    "MPI_Reduce_local": (1, 0, 0, 0),
}
PAYLOAD_BYTES = sum(size_bytes for _, size_bytes, _, _ in EXPECTED.values()) - 127
KINDS = {"payload": (21, PAYLOAD_BYTES), "control": (10, 127), "completion": (1, 0), "other": (4, 0), "io": (0, 0)}


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("program"), PROGRAM)


@pytest.fixture(scope="module")
def counted(program, tmp_path_factory):
    done = run(tmp_path_factory.mktemp("counted"), program, ranks=2, SLURM_JOBID="4711.site")
    assert (done.status, done.printed) == (0, "")
    return done


def of(sums):
    return sums.num_calls, sums.size_bytes


def shape_of(text):
    """The lines of a profile that stand in any, with each number as 0: not the rules, the rows, and the ranks of most communication."""
    # The column of hosts is as wide as their names.
    lines = (re.sub(r"\d+", "0", re.sub("^taskid +", "taskid ", line)) for line in text.splitlines())
    return [line for line in lines if not re.match(r"$|-|MPI_\w+ +0|MPI_Gatherv| +0|MPI task", line)]


@pytest.mark.matrix
def test_calls_bytes_and_control_are_exact(counted):
    for profile in counted.profiles().values():
        assert {name: (*of(routine.sums), *of(routine.control)) for name, routine in profile.routines.items()} == EXPECTED
        assert {name: of(sums) for name, sums in profile.kinds.items()} == KINDS
        assert [of(size) for size in profile.routines["MPI_Allreduce"].sizes] == [(7, 112), (10, 8000)]
        for routine in profile.routines.values():
            assert sum(size.num_calls for size in routine.sizes) == routine.sums.num_calls


@pytest.mark.matrix
def test_times_add_up(counted):
    for profile in counted.profiles().values():
        seconds = sum(routine.sums.seconds for routine in profile.routines.values())
        assert 0 < seconds == pytest.approx(profile.communication_seconds, abs=1e-6)
        assert profile.waited_seconds is None
        assert {routine.sums.waited_seconds for routine in profile.routines.values()} == {0}
        assert sum(kind.seconds for kind in profile.kinds.values()) == pytest.approx(seconds, abs=1e-6)
        assert profile.communication_seconds <= profile.elapsed_seconds
        for routine in profile.routines.values():
            assert sum(size.seconds for size in routine.sizes) == pytest.approx(routine.sums.seconds, abs=1e-6)
        moving = profile.kinds["payload"].seconds + profile.kinds["completion"].seconds
        assert profile.payload_bytes_per_second() == pytest.approx(PAYLOAD_BYTES / moving)


@pytest.mark.matrix
def test_the_text_agrees_with_the_json_and_has_the_layout_of_mpitrace(counted):
    assert {path.name for path in counted.folder.iterdir()} == {
        f"mpi_profile.4711.{rank}{suffix}" for rank in (0, 1) for suffix in ("", ".json")
    }
    for rank, text in counted.profiles(suffix="").items():
        profile = counted.profiles()[rank]
        assert list(text.routines) == list(profile.routines)
        for name, routine in text.routines.items():
            assert routine.sums.num_calls == profile.routines[name].sums.num_calls
            assert routine.sums.size_bytes == pytest.approx(profile.routines[name].sums.size_bytes, abs=1)
            assert routine.sums.seconds == pytest.approx(profile.routines[name].sums.seconds, abs=6e-4)
        assert {name: of(sums) for name, sums in text.kinds.items()} == KINDS
        assert text.elapsed_seconds == pytest.approx(profile.elapsed_seconds, abs=6e-4)
        assert [task.rank for task in text.tasks] == [task.rank for task in profile.tasks] == ([0, 1] if rank == 0 else [])
        assert (text.ended, text.no_summary_because) == ("MPI_Finalize()", None)
    text = counted.files(suffix="")[0].read_text()
    assert text.splitlines()[:5] == NEWER.splitlines()[:5]
    assert all(re.fullmatch(r"MPI_\w+ {2,}\d+ +\d+\.\d +\d+\.\d{3}", row) for row in text.splitlines()[5 : 5 + len(EXPECTED)])
    # In this order, since `in` reads the iterator up to the line.
    lines = iter(shape_of(text))
    assert [line for line in [*shape_of(NEWER), "Payload and control (Tandem):"] if line not in lines] == []


@pytest.mark.matrix
def test_rank_0_names_the_ranks_of_least_and_most_communication(counted):
    least, most = sorted(counted.profiles()[0].tasks, key=lambda task: task.communication_seconds)
    texts = {rank: path.read_text() for rank, path in counted.files(suffix="").items()}
    assert f"MPI task {least.rank} of 2 had the minimum communication time." in texts[least.rank]
    assert f"MPI task {least.rank} of 2 had the median communication time." in texts[least.rank]
    assert f"MPI task {most.rank} of 2 had the maximum communication time." in texts[most.rank]
    assert "Summary for all tasks:" not in texts[1]
    for rank, profile in counted.profiles().items():
        assert profile.communication_seconds == pytest.approx(counted.profiles()[0].tasks[rank].communication_seconds, abs=1e-6)


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("variables", "ranks"),
    [
        ({"SAVE_ALL_TASKS": ""}, {0, 1}),
        ({"SAVE_ALL_TASKS": "no", "SAVE_LIST": "7, 1"}, {0, 1}),
    ],
)
def test_which_ranks_are_written(program, tmp_path, variables, ranks):
    assert set(run(tmp_path, program, ranks=2, **variables).profiles()) == ranks


ALONE = "from mpi4py import MPI; import os; print(os.getpid(), os.getppid()); MPI.COMM_WORLD.allreduce(1.5)"


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("variables", "job"),
    [
        ({"PBS_JOBID": "12[3].server"}, r"12\[3\]"),
        ({"LSB_JOBID": "77"}, "77"),
        ({"COBALT_JOBID": "5", "ADD_TIMESTAMP": "yes"}, r"5\.\d{8}T\d{6}Z"),
        ({"TANDEM_TRACE_EVENTS": "many"}, "PID"),
    ],
)
def test_the_job_is_the_batch_systems_or_rank_0s_process(tmp_path, variables, job):
    done = run_python(tmp_path, ALONE, **variables)
    is_invalid = "TANDEM_TRACE_EVENTS" in variables
    assert ("TANDEM_TRACE_EVENTS is 'many', not a whole number; using 0" in done.printed) == is_invalid
    pid = done.printed.split()[0]
    names = [path.name for path in done.folder.iterdir()]
    assert [re.fullmatch(rf"mpi_profile\.{job.replace('PID', pid)}\.0(\.json)?", name) is not None for name in names] == [True, True]
    assert done.only().num_ranks == 1


@pytest.mark.matrix
def test_an_unwritable_folder_is_reported_once_per_file(tmp_path):
    (tmp_path / "profiles").write_text("no folder")
    done = run_python(tmp_path, ALONE)
    assert done.status == 0
    assert done.printed.count("cannot be written (Not a directory); set TRACE_DIR to another folder") == 2


WAITING = """
import os
import time
if os.environ["PMI_RANK"] == "0":
    os.environ["COLLECTIVE_BARRIER"] = "yes"
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
comm.Barrier()
if comm.rank:
    time.sleep(1)
comm.Allreduce(MPI.IN_PLACE, np.ones(10))
MPI.Pcontrol(comm.rank)
comm.Allreduce(MPI.IN_PLACE, np.ones(10))
MPI.Pcontrol(1)
"""


@pytest.mark.matrix
def test_a_barrier_separates_waiting_from_transfer_on_all_ranks_if_rank_0_asks_for_it(tmp_path):
    done = run_python(tmp_path, WAITING, ranks=2)
    profiles = done.profiles()
    sums = {rank: profile.routines["MPI_Allreduce_c"].sums for rank, profile in profiles.items()}
    assert sums[0].waited_seconds > 0.7 > sums[1].waited_seconds > 0
    assert sums[0].seconds < 0.5
    # A rank that does not record takes part in the barrier.
    assert {rank: of_rank.num_calls for rank, of_rank in sums.items()} == {0: 1, 1: 2}
    texts = done.profiles(suffix="")
    assert {rank: text.waited_seconds > 0.7 for rank, text in texts.items()} == {0: True, 1: False}
    assert texts[0].routines["MPI_Allreduce_c"].sums.seconds < 0.5
    assert texts[0].communication_seconds > 0.7


@pytest.mark.matrix
def test_mpi_io_is_not_communication(tmp_path):
    text = f"""
from mpi4py import MPI
file = MPI.File.Open(MPI.COMM_WORLD, "{tmp_path}/data", MPI.MODE_CREATE | MPI.MODE_WRONLY)
file.Write(b"12345")
file.Close()
"""
    done = run_python(tmp_path, text)
    profile = done.only()
    files = {name: routine.sums for name, routine in profile.routines.items() if name.startswith("MPI_File")}
    assert of(files["MPI_File_write_c"]) == (1, 5)
    assert profile.kinds["io"][:2] == (len(files) + files["MPI_File_open"].num_calls - 1, 5)
    seconds = sum(routine.sums.seconds for name, routine in profile.routines.items() if name not in files)
    assert profile.communication_seconds == pytest.approx(seconds, abs=1e-6)
    assert f"\ntotal MPI-IO time = {profile.kinds['io'].seconds:.3f} seconds.\n" in done.files(suffix="")[0].read_text()


SESSION = """
import array
import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
session = MPI.Session.Init()
group = session.Create_group("mpi://WORLD")
comm = MPI.Intracomm.Create_from_group(group, "here")
comm.Allreduce(MPI.IN_PLACE, array.array("i", [1]))
comm.Free()
group.Free()
session.Finalize()
"""


@pytest.mark.matrix
def test_a_program_with_sessions_and_without_a_world(tmp_path):
    done = run_python(tmp_path, SESSION)
    assert (done.status, done.printed) == (0, "")
    assert of(done.only().routines["MPI_Allreduce_c"].sums) == (1, 4)
    assert done.only().no_summary_because == "this rank did not call MPI_Init()"
    assert "\nTimes from MPI_Session_init() to exit().\n" in done.files(suffix="")[0].read_text()
