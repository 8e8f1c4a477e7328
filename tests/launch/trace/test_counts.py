"""The interposer's counters for programs with known calls, in C and mpi4py."""

import re

import pytest

from tests.launch.trace.test_profile import NEWER
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
    /* More bytes than an int holds. */
    MPI_Send(numbers, 300000000, MPI_DOUBLE, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
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
# routine: (calls, bytes)
EXPECTED = {
    "MPI_Comm_rank": (1, 0),
    "MPI_Comm_size": (1, 0),
    "MPI_Allreduce": (17, 10 * 800 + 7 * 16),
    "MPI_Allreduce_c": (3, 3 * 20),
    "MPI_Gather": (2, 4 + 8),
    "MPI_Bcast": (2, 11 + 16),
    "MPI_Scatter": (1, 8),
    "MPI_Alltoallv": (1, 12),
    "MPI_Reduce_scatter_block": (1, 24),
    "MPI_Isend": (1, 72),
    "MPI_Irecv": (1, 72),
    "MPI_Waitall": (1, 0),
    "MPI_Sendrecv": (1, 0),
    "MPI_Send": (1, 2_400_000_000),
    "MPI_Barrier": (1, 0),
    # The calls within a call are part of it: no MPI_Type_size.
    "MPI_Op_create": (1, 0),
    "MPI_Reduce_local": (1, 0),
}
CONTROL_BYTES = 7 * 16 + 4 + 11
PAYLOAD_BYTES = sum(size_bytes for _, size_bytes in EXPECTED.values()) - CONTROL_BYTES
KINDS = {"payload": (22, PAYLOAD_BYTES), "control": (10, CONTROL_BYTES), "completion": (1, 0), "other": (4, 0), "io": (0, 0)}
# Enough bytes that writing them takes several milliseconds.
NUM_WRITTEN = 2**26
# Message sizes: calls and average bytes. 11 and 16 bytes are counted together.
SIZES = {"MPI_Allreduce": [("7", "16.0"), ("10", "800.0")], "MPI_Bcast": [("2", "13.5")]}


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    done = run(tmp_path_factory.mktemp("counted"), compiled(tmp_path_factory.mktemp("program"), PROGRAM), ranks=2, SLURM_JOBID="4711.site")
    assert (done.status, done.printed) == (0, "")
    return done


def of(sums):
    return {name: (of_name.num_calls, round(of_name.size_bytes)) for name, of_name in sums.items()}


def shape_of(text):
    """The lines of a profile that stand in any but rank 0's, with each number as 0: not the rules and the rows."""
    lines = (re.sub(r"\d+", "0", line) for line in text.partition("Summary for all")[0].splitlines())
    return [line for line in lines if not re.match(r"$|-|MPI_\w+ +0|MPI_Gatherv| +0|MPI task", line)]


def test_calls_bytes_and_control_are_exact_and_times_add_up(counted):
    assert {path.name for path in counted.folder.iterdir()} == {"mpi_profile.4711.0", "mpi_profile.4711.1"}
    for of_rank in counted.profiles().values():
        assert of(of_rank.routines) == pytest.approx(EXPECTED, abs=1)
        assert of(of_rank.kinds) == KINDS
        assert (of_rank.num_ranks, of_rank.ended) == (2, "MPI_Finalize()")
        seconds = sum(sums.seconds for sums in of_rank.routines.values())
        assert 0 < seconds == pytest.approx(of_rank.communication_seconds, abs=1e-3)
        assert sum(sums.seconds for sums in of_rank.kinds.values()) == pytest.approx(seconds, abs=1e-4)
        assert of_rank.communication_seconds <= of_rank.elapsed_seconds
        moving = of_rank.kinds["payload"].seconds + of_rank.kinds["completion"].seconds
        assert of_rank.payload_bytes_per_second() == pytest.approx(PAYLOAD_BYTES / moving)


def test_the_text_has_the_layout_of_mpitrace_and_the_message_sizes(counted):
    text = counted.files()[1].read_text()
    assert text.splitlines()[2:5] == NEWER.splitlines()[2:5]
    assert all(re.fullmatch(r"MPI_\w+ {2,}\d+ +\d+\.\d +\d+\.\d{6}", row) for row in text.splitlines()[5 : 5 + len(EXPECTED)])
    # In this order, since `in` reads the iterator up to the line.
    lines = iter(shape_of(text))
    assert [line for line in [*shape_of(NEWER), "Payload and control (Tandem):"] if line not in lines] == []
    parts = {routine: text.partition(f"{routine:<22}    #calls")[2].partition("\n\n")[0] for routine in SIZES}
    assert {routine: re.findall(r"^ +(\d+) +([\d.]+) ", part, re.MULTILINE) for routine, part in parts.items()} == SIZES


ALONE = "from mpi4py import MPI; import os; print(os.getpid(), os.getppid()); MPI.COMM_WORLD.allreduce(1.5)"


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("variables", "job"),
    [({"PBS_JOBID": "12[3].server"}, r"12\[3\]"), ({}, "PID")],
)
def test_the_job_is_the_batch_systems_or_rank_0s_process(tmp_path, variables, job):
    done = run_python(tmp_path, ALONE, **variables)
    pid = done.printed.split()[0]
    (path,) = done.folder.iterdir()
    assert re.fullmatch(rf"mpi_profile\.{job.replace('PID', pid)}\.0", path.name)
    assert done.only().num_ranks == 1


@pytest.mark.matrix
def test_an_unwritable_folder_is_reported(tmp_path):
    (tmp_path / "profiles").write_text("no folder")
    done = run_python(tmp_path, ALONE)
    assert done.status == 0
    assert done.printed.count("cannot be written (Not a directory); set TRACE_DIR to another folder") == 1


def test_mpi_io_is_not_communication(tmp_path):
    text = f"""
from mpi4py import MPI
file = MPI.File.Open(MPI.COMM_WORLD, "{tmp_path}/data", MPI.MODE_CREATE | MPI.MODE_WRONLY)
file.Write_at_all(0, bytes({NUM_WRITTEN}))
file.Close()
"""
    counted = run_python(tmp_path, text).only()
    num_calls = sum(sums.num_calls for name, sums in counted.routines.items() if name.startswith("MPI_File_"))
    assert of(counted.kinds)["io"] == (num_calls, NUM_WRITTEN)
    assert num_calls > 2
    # Communication is told in milliseconds.
    assert counted.kinds["io"].seconds > 0.005
    seconds = sum(sums.seconds for kind, sums in counted.kinds.items() if kind != "io")
    assert counted.communication_seconds == pytest.approx(seconds, abs=1e-3)


WITH_THREADS = r"""
#include <mpi.h>
#include <pthread.h>
static void *call(void *comm)
{
    int rank, sum;
    for (int i = 0; i < 150000; i++)
        MPI_Comm_rank(*(MPI_Comm *)comm, &rank);
    for (int i = 0; i < 3000; i++)
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, *(MPI_Comm *)comm);
    return NULL;
}
int main(int argc, char **argv)
{
    int provided;
    MPI_Comm comms[4];
    pthread_t threads[4];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    for (int i = 0; i < 4; i++)
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, call, &comms[i]);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    MPI_Finalize();
    return provided != MPI_THREAD_MULTIPLE;
}
"""


def test_no_call_of_several_threads_is_lost(tmp_path):
    done = run(tmp_path, compiled(tmp_path, WITH_THREADS, "-pthread"))
    assert done.status == 0
    counted = done.only()
    routines = of(counted.routines)
    assert routines["MPI_Comm_rank"] == (4 * 150_000, 0)
    assert routines["MPI_Allreduce"] == (4 * 3000, 4 * 3000 * 4)
