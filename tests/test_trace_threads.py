"""Several threads that call MPI at once: no call is lost."""

import pytest

from tests.tracing import compiled, run, run_python

PROGRAM = r"""
#include <mpi.h>
#include <pthread.h>
#include <stdlib.h>
#define NUM_THREADS 4
#define NUM_CALLS 50000
static MPI_Comm comms[NUM_THREADS];
static void *call(void *argument)
{
    int rank, sum, thread = (int)(long)argument;
    for (int i = 0; i < NUM_CALLS; i++)
        MPI_Comm_rank(comms[thread], &rank);
    for (int i = 0; i < 1000; i++)
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comms[thread]);
    return NULL;
}
int main(int argc, char **argv)
{
    int provided, rounds = atoi(argv[1]);
    pthread_t threads[NUM_THREADS];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    for (int i = 0; i < NUM_THREADS; i++)
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < NUM_THREADS; i++)
            pthread_create(&threads[i], NULL, call, (void *)(long)i);
        for (int i = 0; i < NUM_THREADS; i++)
            pthread_join(threads[i], NULL);
    }
    MPI_Finalize();
    return provided != MPI_THREAD_MULTIPLE;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("program"), PROGRAM, "-pthread")


def test_no_call_of_several_threads_is_lost(program, tmp_path):
    done = run(tmp_path, program, "1", TANDEM_TRACE_EVENTS=10)
    assert done.status == 0
    routines = done.only().routines
    assert routines["MPI_Comm_rank"].sums.num_calls == 4 * 50_000
    assert routines["MPI_Allreduce"].sums[:2] == (4 * 1000, 4 * 1000 * 4)


@pytest.mark.matrix
def test_threads_that_ended_leave_their_counters_to_others(program, tmp_path):
    done = run(tmp_path, program, "3")
    assert done.only().routines["MPI_Comm_rank"].sums.num_calls == 3 * 4 * 50_000
    assert 1 < done.only().num_threads <= 5


@pytest.mark.matrix
def test_ranks_whose_threads_reduce_at_once(program, tmp_path):
    for profile in run(tmp_path, program, "1", ranks=2).profiles().values():
        assert profile.routines["MPI_Allreduce"].sums[:2] == (4 * 1000, 4 * 1000 * 4)


@pytest.mark.matrix
def test_threads_of_python_are_seen(tmp_path):
    text = """
import threading
from mpi4py import MPI
comms = [MPI.COMM_WORLD.Dup() for _ in range(3)]
threads = [threading.Thread(target=lambda comm=comm: [comm.Barrier() for _ in range(500)]) for comm in comms]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""
    assert run_python(tmp_path, text).only().routines["MPI_Barrier"].sums.num_calls == 1500
