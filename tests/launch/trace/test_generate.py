"""The generated wrappers: complete, and counting the right arguments."""

import subprocess

import pytest

from launch.trace import build
from tests.support.running import ROOT
from tests.support.tracing import library

HEADER = """
typedef int MPI_Comm; typedef int MPI_Datatype; typedef long MPI_Count;
struct thing { int member; };
extern struct thing ompi_mpi_comm_world;
extern int *MPI_UNWEIGHTED;
typedef int MPI_Copy_function(MPI_Comm, int, void *);
int MPI_Send_c(const void *buf, MPI_Count count, MPI_Datatype datatype, int dest, int tag,
               MPI_Comm comm) ;
extern  int MPI_Group_range_incl(int n, int ranges[][3], MPI_Comm *made);
double MPI_Wtime(void);
void * MPIX_Query(void);
int MPI_Finalize(void);
int MPI_Pcontrol(const int level, ...);
int PMPI_Finalize(void);
int OMPI_other(void);
"""


def test_functions_and_handles_of_mpi_are_found_and_no_others():
    assert build.prototypes(HEADER) == [
        ("MPIX_Query", "void * ", "void", ()),
        ("MPI_Group_range_incl", "int ", "int n, int ranges[][3], MPI_Comm *made", ("n", "ranges", "made")),
        (
            "MPI_Send_c", "int ", "const void *buf, MPI_Count count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm",
            ("buf", "count", "datatype", "dest", "tag", "comm"),
        ),
        ("MPI_Wtime", "double ", "void", ()),
    ]  # fmt: skip
    assert build.handles(HEADER) == {"ompi_mpi_comm_world": "struct thing"}
    assert "#define ompi_mpi_comm_world (*(struct thing *)(" in build.generated_h(HEADER)


PLAIN = "trace_moves(trace_bytes(count, datatype), TRACE_PAYLOAD)"


@pytest.mark.parametrize(
    ("name", "parameters", "expression"),
    [
        ("MPI_Imrecv", "buf count type message request", PLAIN.replace("datatype", "type")),
        ("MPI_Allreduce_init_c", "sendbuf recvbuf count datatype op comm info request", "trace_moves(0, TRACE_OTHER)"),
        ("MPI_Iallreduce_c", "sendbuf recvbuf count datatype op comm request", "trace_reduces(count, datatype, op)"),
        (
            "MPI_Neighbor_alltoallv", "sendbuf sendcounts sdispls sendtype recvbuf recvcounts rdispls recvtype comm",
            "trace_moves(0, TRACE_PAYLOAD)",
        ),
        (
            "MPI_Put", "origin_addr origin_count origin_datatype target_rank target_disp target_count target_datatype win",
            "trace_moves(trace_bytes(origin_count, origin_datatype), TRACE_PAYLOAD)",
        ),
        ("MPI_Win_unlock_all", "win", "trace_moves(0, TRACE_COMPLETION)"),
        ("MPI_Improbe", "source tag comm flag message status", "trace_moves(0, TRACE_COMPLETION)"),
        ("MPI_Status_set_elements", "status datatype count", "trace_moves(0, TRACE_OTHER)"),
    ],
)  # fmt: skip
def test_bytes_and_kind_follow_from_the_standards_names(name, parameters, expression):
    assert build.load_of(name, parameters.split()) == expression


def exported(path):
    """Names of the functions that a library exports."""
    listed = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True).stdout
    return {line.split()[2] for line in listed.splitlines() if line.split()[1] in "TW"}


def test_every_function_of_the_environments_mpi_is_intercepted():
    mpi_h = build.prototypes(build.preprocessed(build.mpicc_of_environment()))
    of_mpi = {name[1:] for name in exported(ROOT / ".venv" / "lib" / "libmpi.so.12") if name.startswith("PMPI")}
    ours = exported(library())
    assert {"MPI_Allreduce", "MPI_Allreduce_c", "MPI_Init_thread", "MPI_Pcontrol"} < of_mpi
    assert of_mpi - ours == set()
    assert {prototype.name for prototype in mpi_h} <= ours
    # No parameter has the name of a wrapper's own variable.
    assert not [name for prototype in mpi_h for name in prototype.arguments if name.startswith("trace_")]
