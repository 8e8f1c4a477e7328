"""The interposer's counters for programs with known calls, in C and mpi4py."""

import re

import pytest

from launch.trace import preload
from tests.support.tracing import Traced, compiled, run, run_python

PROGRAM = r"""
#include <mpi.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
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
    MPI_Pcontrol(0);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Pcontrol(1);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
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
}
CONTROL = (10, 127)
COMPLETION = (1, 0)
OTHER = (2, 0)
PAYLOAD = (sum(one[0] for one in EXPECTED.values()) - 13, sum(one[1] for one in EXPECTED.values()) - 127)


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


@pytest.mark.matrix
@pytest.mark.parametrize("rank", [0, 1])
def test_calls_bytes_and_control_are_exact(counted, rank):
    profile = counted.profiles()[rank]
    assert {name: (*of(one.sums), *of(one.control)) for name, one in profile.routines.items()} == EXPECTED
    kinds = {name: of(sums) for name, sums in profile.kinds.items()}
    assert kinds == {"payload": PAYLOAD, "control": CONTROL, "completion": COMPLETION, "other": OTHER, "io": (0, 0)}
    assert all(sum(size.num_calls for size in one.sizes) == one.sums.num_calls for one in profile.routines.values())
    assert [of(size) for size in profile.routines["MPI_Allreduce"].sizes] == [(7, 112), (10, 8000)]


@pytest.mark.matrix
def test_times_add_up(counted):
    for profile in counted.profiles().values():
        seconds = sum(one.sums.seconds for one in profile.routines.values())
        assert 0 < seconds == pytest.approx(profile.communication_seconds, abs=1e-6)
        assert profile.waited_seconds is None
        assert sum(one.seconds for one in profile.kinds.values()) == pytest.approx(seconds, abs=1e-6)
        assert profile.communication_seconds <= profile.elapsed_seconds
        for one in profile.routines.values():
            assert sum(size.seconds for size in one.sizes) == pytest.approx(one.sums.seconds, abs=1e-6)
        moving = profile.kinds["payload"].seconds + profile.kinds["completion"].seconds
        assert profile.payload_bytes_per_second() == pytest.approx(PAYLOAD[1] / moving)


@pytest.mark.matrix
def test_the_text_agrees_with_the_json(counted):
    for rank, text in counted.profiles(suffix="").items():
        found = counted.profiles()[rank]
        assert list(text.routines) == list(found.routines)
        for name, one in text.routines.items():
            assert one.sums.num_calls == found.routines[name].sums.num_calls
            assert one.sums.size_bytes == pytest.approx(found.routines[name].sums.size_bytes, abs=1)
            assert one.sums.seconds == pytest.approx(found.routines[name].sums.seconds, abs=6e-4)
        assert {name: of(sums) for name, sums in text.kinds.items()} == {name: of(sums) for name, sums in found.kinds.items()}
        assert text.elapsed_seconds == pytest.approx(found.elapsed_seconds, abs=6e-4)
        assert [task.rank for task in text.tasks] == [task.rank for task in found.tasks] == ([0, 1] if rank == 0 else [])
        assert (text.ended, text.no_summary_because) == ("MPI_Finalize()", None)


LAYOUT = r"""Data for MPI rank 0 of 2:
Times from MPI_Init\(\) to MPI_Finalize\(\)\.
-{71}
MPI Routine                        #calls     avg\. bytes      time\(sec\)
-{71}
(MPI_\w+ {2,}\d+ +\d+\.\d +\d+\.\d{3}\n){14}-{71}
(MPI task 0 of 2 had the (minimum|median|maximum) communication time\.\n){1,2}total communication time = \d+\.\d{3} seconds\.
total elapsed time       = \d+\.\d{3} seconds\.
user cpu time            = \d+\.\d{3} seconds\.
system time              = \d+\.\d{3} seconds\.
max resident set size    = \d+\.\d{3} MiB\.

-{65}
Message size distributions:

MPI_Allreduce             #calls    avg\. bytes      time\(sec\)
                               7          16\.0          \d\.\d{3}
                              10         800\.0          \d\.\d{3}

MPI_Allreduce_c           #calls    avg\. bytes      time\(sec\)
                               3          20\.0          \d\.\d{3}

"""


@pytest.mark.matrix
def test_the_text_has_the_layout_of_mpitrace(counted):
    text = counted.files(suffix="")[0].read_text()
    assert re.match(LAYOUT, text), text
    assert "\nSummary for all tasks:\n\n  Rank " in text
    assert re.search(r"\n\n  minimum communication time = \d\.\d{3} sec for task [01]\n  median ", text)
    assert re.search(r"\nMPI timing summary for all ranks:\ntaskid  .*\n     0 .*\n     1 .*\n", text)
    assert text.index("MPI timing summary") < text.index("Payload and control (Tandem)")


@pytest.mark.matrix
def test_files_are_named_by_job_and_rank(counted):
    assert {path.name for path in counted.folder.iterdir()} == {
        f"mpi_profile.4711.{rank}{suffix}" for rank in (0, 1) for suffix in ("", ".json")
    }


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
        ({"SAVE_ALL_TASKS": "", "SAVE_LIST": "0,3"}, {0}),
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
        ({}, "PID"),
    ],
)
def test_the_job_is_the_batch_systems_or_rank_0s_process(tmp_path, variables, job):
    done = run_python(tmp_path, ALONE, **variables)
    pattern = rf"mpi_profile\.{job.replace('PID', done.printed.split()[0])}\.0"
    assert all(re.fullmatch(pattern + r"(\.json)?", path.name) for path in done.folder.iterdir()), list(done.folder.iterdir())
    assert len(list(done.folder.iterdir())) == 2


@pytest.mark.matrix
def test_an_invalid_number_is_reported_and_ignored(tmp_path):
    done = run_python(tmp_path, ALONE, TANDEM_TRACE_EVENTS="many")
    assert "TANDEM_TRACE_EVENTS is 'many', not a whole number; using 0" in done.printed
    assert done.only().num_ranks == 1
    assert not done.files("mpi_events", ".bin")


@pytest.mark.matrix
def test_an_unwritable_folder_is_reported_once_per_file(tmp_path):
    (tmp_path / "profiles").write_text("no folder")
    done = run_python(tmp_path, ALONE)
    assert done.status == 0
    assert done.printed.count("cannot be written (Not a directory); set TRACE_DIR to another folder") == 2


WAITING = """
import time
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
comm.Barrier()
if comm.rank:
    time.sleep(1)
comm.Allreduce(MPI.IN_PLACE, np.ones(10))
"""


@pytest.mark.matrix
def test_a_barrier_separates_waiting_from_transfer(tmp_path):
    waited = {rank: one.routines["MPI_Allreduce_c"].sums for rank, one in
              run_python(tmp_path / "with", WAITING, ranks=2, COLLECTIVE_BARRIER="yes").profiles().items()}  # fmt: skip
    assert waited[0].waited_seconds > 0.7 > waited[1].waited_seconds
    assert waited[0].seconds < 0.5
    texts = Traced(0, "", tmp_path / "with" / "profiles").profiles(suffix="")
    assert {rank: one.waited_seconds > 0.7 for rank, one in texts.items()} == {0: True, 1: False}
    assert texts[0].routines["MPI_Allreduce_c"].sums.seconds < 0.5
    assert texts[0].communication_seconds > 0.7
    without = run_python(tmp_path / "without", WAITING, ranks=2).profiles()[0].routines["MPI_Allreduce_c"].sums
    assert (without.waited_seconds, without.seconds > 0.7) == (0, True)


@pytest.mark.matrix
def test_rank_0s_settings_are_those_of_all_ranks(tmp_path):
    only_there = 'import os\nif os.environ["PMI_RANK"] == "0":\n    os.environ["COLLECTIVE_BARRIER"] = "yes"\n'
    done = run_python(tmp_path, only_there + WAITING, ranks=2)
    assert done.profiles()[0].routines["MPI_Allreduce_c"].sums.waited_seconds > 0.7
    assert done.profiles()[1].routines["MPI_Allreduce_c"].sums.waited_seconds > 0


PAUSED = """
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
if not comm.rank:
    MPI.Pcontrol(0)
for _ in range(3):
    comm.Allreduce(MPI.IN_PLACE, np.ones(10))
MPI.Pcontrol(1)
comm.Allreduce(MPI.IN_PLACE, np.ones(10))
"""


@pytest.mark.matrix
def test_a_rank_that_does_not_record_takes_part_in_the_barrier(tmp_path):
    done = run_python(tmp_path, PAUSED, ranks=2, COLLECTIVE_BARRIER="yes")
    assert done.status == 0
    reduced = {rank: one.routines["MPI_Allreduce_c"].sums for rank, one in done.profiles().items()}
    assert {rank: sums.num_calls for rank, sums in reduced.items()} == {0: 1, 1: 4}
    assert all(sums.waited_seconds > 0 for sums in reduced.values())


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
    files = {name: one.sums for name, one in profile.routines.items() if name.startswith("MPI_File")}
    assert of(files["MPI_File_write_c"]) == (1, 5)
    assert profile.kinds["io"][:2] == (len(files) + files["MPI_File_open"].num_calls - 1, 5)
    rest = sum(one.sums.seconds for name, one in profile.routines.items() if name not in files)
    assert profile.communication_seconds == pytest.approx(rest, abs=1e-6)
    assert f"\ntotal MPI-IO time = {profile.kinds['io'].seconds:.3f} seconds.\n" in done.files(suffix="")[0].read_text()


SESSION = r"""
#include <mpi.h>
int main(void)
{
    int one = 1, sum = 0;
    MPI_Session session;
    MPI_Group group;
    MPI_Comm comm;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    MPI_Comm_create_from_group(group, "here", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
    MPI_Comm_free(&comm);
    MPI_Group_free(&group);
    MPI_Session_finalize(&session);
    return sum != 1;
}
"""


@pytest.mark.matrix
def test_a_program_with_sessions_and_without_a_world(tmp_path):
    done = run(tmp_path, compiled(tmp_path, SESSION))
    assert (done.status, done.printed) == (0, "")
    assert of(done.only().routines["MPI_Allreduce"].sums) == (1, 4)
    assert done.only().no_summary_because == "this rank did not call MPI_Init()"
    assert "\nTimes from MPI_Session_init() to exit().\n" in done.files(suffix="")[0].read_text()


NESTED = r"""
#include <mpi.h>
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
    MPI_Init(&argc, &argv);
    MPI_Op_create(add, 1, &op);
    MPI_Reduce_local(one, two, 3, MPI_INT, op);
    MPI_Finalize();
    return two[2] != 3;
}
"""


@pytest.mark.matrix
def test_calls_within_a_call_are_part_of_it(tmp_path):
    done = run(tmp_path, compiled(tmp_path, NESTED))
    assert (done.status, set(done.only().routines)) == (0, {"MPI_Op_create", "MPI_Reduce_local"})


@pytest.mark.parametrize(
    ("arguments", "more"),
    [
        ({}, {}),
        ({"events": 1000}, {"TANDEM_TRACE_EVENTS": "1000"}),
        ({"preloaded": "/lib/other.so"}, {"LD_PRELOAD": "/lib/trace.so:/lib/other.so"}),
    ],
)
def test_variables_of_a_traced_run(arguments, more):
    expected = {"LD_PRELOAD": "/lib/trace.so", "TRACE_DIR": "/results", "SAVE_ALL_TASKS": "yes"} | more
    assert preload.variables("/lib/trace.so", "/results", **arguments) == expected
