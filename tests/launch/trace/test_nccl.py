"""NCCL's calls, with a stand-in library of NCCL's public signatures: no GPU and no NCCL is used."""

import subprocess

import pytest

from tests.support.running import BIN
from tests.support.tracing import run, run_python

# The signatures of NCCL's public header; each call prints its arguments.
STAND_IN = r"""
#include <stddef.h>
#include <stdio.h>
typedef struct communicator *ncclComm_t;
typedef struct stream *cudaStream_t;
typedef struct { char internal[128]; } ncclUniqueId;
typedef enum { ncclSuccess, ncclInvalidUsage = 5 } ncclResult_t;
typedef enum {
    ncclInt8, ncclUint8, ncclInt32, ncclUint32, ncclInt64, ncclUint64, ncclFloat16, ncclFloat32, ncclFloat64, ncclBfloat16
} ncclDataType_t;
typedef enum { ncclSum } ncclRedOp_t;
static double sum;
#define TELL(...) do { printf(__VA_ARGS__); fflush(stdout); } while (0)
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank)
{
    *comm = (ncclComm_t)8;
    TELL("init %d of %d, id %d to %d\n", rank, ranks, id.internal[0], id.internal[127]);
    return ncclSuccess;
}
ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
    ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    sum += (double)(size_t)from + (size_t)to + count + type + op + (size_t)comm + (size_t)stream;
    return ncclSuccess;
}
ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type,
    ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return ncclInvalidUsage;
}
ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream)
{
    return root == 3 && stream == (cudaStream_t)7 ? ncclSuccess : ncclInvalidUsage;
}
ncclResult_t ncclGroupStart(void) { return ncclSuccess; }
ncclResult_t ncclGroupEnd(void) { return ncclSuccess; }
ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    TELL("sum %.0f\n", sum);
    return comm == (ncclComm_t)8 ? ncclSuccess : ncclInvalidUsage;
}
"""

# As PyTorch's own library does, the program is linked with NCCL, and loaded by Python out of sight of others.
PROGRAM = r"""
#include <stddef.h>
typedef struct { char internal[128]; } unique_id;
int ncclCommInitRank(void **, int, unique_id, int), ncclGroupStart(void), ncclGroupEnd(void), ncclCommDestroy(void *);
int ncclAllReduce(const void *, void *, size_t, int, int, void *, void *);
int ncclReduceScatter(const void *, void *, size_t, int, int, void *, void *);
int ncclBroadcast(const void *, void *, size_t, int, int, void *, void *);
int train(void)
{
    void *comm, *stream = (void *)7;
    unique_id id = {{1}};
    id.internal[127] = 9;
    int wrong = ncclCommInitRank(&comm, 4, id, 2);
    for (int i = 0; i < 10; i++)
        wrong += ncclAllReduce((void *)1, (void *)2, 1000, 7, 0, comm, stream);
    wrong += ncclAllReduce((void *)1, (void *)2, 50, 9, 0, comm, stream);
    wrong += ncclReduceScatter(NULL, NULL, 6, 8, 0, comm, stream) != 5;
    ncclGroupStart();
    wrong += ncclBroadcast(NULL, NULL, 5, 0, 3, comm, stream);
    ncclGroupEnd();
    return wrong + ncclCommDestroy(comm);
}
"""
MAIN = "int train(void); int main(void) { return train(); }"
EXPECTED = {
    "ncclAllReduce": (11, 10 * 4000 + 100),
    "ncclReduceScatter": (1, 48),
    "ncclBroadcast": (1, 5),
    "ncclGroupStart": (1, 0),
    "ncclGroupEnd": (1, 0),
    "ncclCommInitRank": (1, 0),
}
PRINTED = f"init 2 of 4, id 1 to 9\nsum {10 * (3 + 1000 + 7 + 8 + 7) + 3 + 50 + 9 + 8 + 7}\n"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with the stand-in, and a library and a program linked with it."""
    folder = tmp_path_factory.mktemp("nccl")
    for name, text in (("stand_in.c", STAND_IN), ("train.c", PROGRAM), ("main.c", MAIN)):
        (folder / name).write_text(text)
    library = ("-shared", "-fPIC", "-Wl,-rpath,$ORIGIN")
    for arguments in (
        (*library, "-Wl,-soname,libnccl.so.2", "-o", "libnccl.so.2", "stand_in.c"),
        (*library, "-o", "libtrain.so", "train.c", "./libnccl.so.2"),
        ("-Wl,-rpath,$ORIGIN", "-o", "program", "main.c", "train.c", "-L.", "-l:libnccl.so.2"),
    ):
        subprocess.run(["cc", *arguments], cwd=folder, check=True)
    return folder


def counted(profile):
    return {name: (sums.num_calls, round(sums.size_bytes)) for name, sums in profile.nccl.items()}


def test_nccls_calls_of_a_program_are_counted(built, tmp_path):
    done = run(tmp_path, built / "program")
    assert (done.status, done.printed) == (0, PRINTED)
    profile = done.profiles()[2]
    assert (profile.rank, profile.num_ranks, counted(profile), profile.routines) == (2, 4, EXPECTED, {})


def test_nccls_calls_are_found_where_python_loaded_it_locally_and_are_no_mpi_communication(built, tmp_path):
    text = f"from mpi4py import MPI; MPI.COMM_WORLD.Barrier(); import ctypes; ctypes.CDLL('{built}/libtrain.so').train()"
    profile = run_python(tmp_path, text).only()
    assert (counted(profile), profile.ended) == (EXPECTED, "MPI_Finalize()")
    assert profile.communication_seconds == pytest.approx(sum(sums.seconds for sums in profile.routines.values()), abs=1e-3)
    assert sum(sums.num_calls for sums in profile.kinds.values()) == sum(sums.num_calls for sums in profile.routines.values())


def test_a_missing_library_is_reported(tmp_path):
    done = run(tmp_path, BIN / "python", "-c", "import ctypes; ctypes.CDLL(None).ncclGroupStart()")
    assert (done.status, done.printed.count("\n")) == (127, 1)
    assert "no loaded library has ncclGroupStart" in done.printed
