"""Concurrent calls of MPI from several threads: no call is lost."""

from launch.trace import mpi_events
from tests.support.tracing import compiled, run

PROGRAM = r"""
#include <mpi.h>
#include <pthread.h>
#define NUM_THREADS 4
#define NUM_CALLS 50000
#define NUM_ROUNDS 3
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
    int provided;
    pthread_t threads[NUM_THREADS];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    for (int i = 0; i < NUM_THREADS; i++)
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    for (int round = 0; round < NUM_ROUNDS; round++) {
        for (int i = 0; i < NUM_THREADS; i++)
            pthread_create(&threads[i], NULL, call, (void *)(long)i);
        for (int i = 0; i < NUM_THREADS; i++)
            pthread_join(threads[i], NULL);
    }
    MPI_Finalize();
    return provided != MPI_THREAD_MULTIPLE;
}
"""


def test_no_call_of_several_threads_is_lost_and_counters_of_ended_threads_are_reused(tmp_path):
    done = run(tmp_path, compiled(tmp_path, PROGRAM, "-pthread"), TANDEM_TRACE_EVENTS=1_000_000)
    assert done.status == 0
    profile = done.only()
    assert profile.routines["MPI_Comm_rank"].num_calls == 3 * 4 * 50_000
    assert profile.routines["MPI_Allreduce"][:2] == (3 * 4 * 1000, 3 * 4 * 1000 * 4)
    # Its threads are numbered by their counters.
    assert mpi_events.read(done.files("mpi_events", ".bin")[0]).calls.thread.max() < 5
