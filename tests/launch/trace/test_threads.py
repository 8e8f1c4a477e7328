"""Concurrent calls of MPI from several threads: no call is lost."""

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
    done = run(tmp_path, compiled(tmp_path, PROGRAM, "-pthread"), TANDEM_TRACE_EVENTS=10)
    assert done.status == 0
    profile = done.only()
    assert profile.routines["MPI_Comm_rank"].sums.num_calls == 3 * 4 * 50_000
    assert profile.routines["MPI_Allreduce"].sums[:2] == (3 * 4 * 1000, 3 * 4 * 1000 * 4)
    assert 1 < profile.num_threads <= 5


GOING_ON = r"""
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static _Atomic int is_over;
static void *call(void *comm)
{
    static int sent[1024], received[1024];
    for (int i = 0; !is_over; i++)
        MPI_Allreduce(sent, received, 1 << i % 10, MPI_INT, i % 2 ? MPI_BAND : MPI_SUM, *(MPI_Comm *)comm);
    return NULL;
}
static void handle(int number)
{
}
int main(int argc, char **argv)
{
    int provided;
    char command[100];
    MPI_Comm comm;
    pthread_t thread;
    signal(SIGTERM, handle);
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    pthread_create(&thread, NULL, call, &comm);
    for (int i = 0; i < 5; i++) {
        usleep(20000);
        pthread_kill(pthread_self(), SIGTERM);
        snprintf(command, sizeof command, "cp -r $TRACE_DIR $TRACE_DIR.%d", i);
        if (system(command))
            return 1;
    }
    is_over = 1;
    pthread_join(thread, NULL);
    MPI_Finalize();
    return provided != MPI_THREAD_MULTIPLE;
}
"""


def test_a_profile_written_during_calls_of_another_thread_is_consistent(tmp_path):
    done = run(tmp_path, compiled(tmp_path, GOING_ON, "-pthread"))
    assert (done.status, done.printed) == (0, "")
    for number in range(5):
        copy = done._replace(folder=tmp_path / f"profiles.{number}")
        text, (profile,) = copy.profiles(suffix="")[0], copy.profiles().values()
        allreduce = profile.routines["MPI_Allreduce"]
        assert text.routines["MPI_Allreduce"].sums.num_calls == allreduce.sums.num_calls == sum(size.num_calls for size in allreduce.sizes)
        num_calls = sum(routine.sums.num_calls for routine in profile.routines.values())
        assert sum(kind.num_calls for kind in profile.kinds.values()) == num_calls
