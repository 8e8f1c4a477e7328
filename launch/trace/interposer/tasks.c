/* The exchange of summaries in MPI_Finalize, and the choice of ranks that write their profile. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "load.h"
#include "process.h"

#define DEFAULT_TIMEOUT_SECONDS 60
#define POLL_MICROSECONDS 20

/* Whether all ranks answered in time. The exchange is nonblocking: a missing rank does not block the others. */
static int exchange(const struct trace_task *own, struct trace_task *tasks, int64_t timeout_seconds, char *missing)
{
    MPI_Request request;
    int done = 0, size = (int)sizeof *own;
    int64_t begun = trace_now();
    int status = PMPI(Iallgather)(own, size, MPI_BYTE, tasks, size, MPI_BYTE, MPI_COMM_WORLD, &request);
    while (status == MPI_SUCCESS && (status = PMPI(Test)(&request, &done, MPI_STATUS_IGNORE)) == MPI_SUCCESS && !done) {
        if (trace_now() - begun > timeout_seconds * INT64_C(1000000000)) {
            snprintf(missing, REASON_LENGTH, "not all ranks called MPI_Finalize() within %lld s", (long long)timeout_seconds);
            return 0;
        }
        usleep(POLL_MICROSECONDS);
    }
    if (!done)
        snprintf(missing, REASON_LENGTH, "the exchange between the ranks failed");
    return done;
}

static int by_communication(const void *left, const void *right, void *all)
{
    const struct trace_task *tasks = all;
    int first = *(const int *)left, second = *(const int *)right;
    double difference = tasks[first].communication_seconds - tasks[second].communication_seconds;
    return difference < 0 ? -1 : difference > 0 ? 1 : first - second;
}

/* Sets `tasks` and the ranks of least, median and most communication time, or `missing` to the reason why not. */
void trace_ask_all_tasks(struct trace_end *end)
{
    int num_ranks = trace_process.num_ranks;
    /* Never freed: an abandoned exchange may still write to it. */
    struct trace_task *tasks = calloc((size_t)num_ranks, sizeof *tasks);
    int *order = calloc((size_t)num_ranks, sizeof *order);
    MPI_Errhandler before;
    PMPI(Comm_get_errhandler)(MPI_COMM_WORLD, &before);
    PMPI(Comm_set_errhandler)(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int64_t timeout_seconds = trace_setting_number("TANDEM_TRACE_WAIT_SECONDS", DEFAULT_TIMEOUT_SECONDS);
    int answered = tasks && order && exchange(&end->own, tasks, timeout_seconds, end->missing);
    PMPI(Comm_set_errhandler)(MPI_COMM_WORLD, before);
    if (answered) {
        for (int rank = 0; rank < num_ranks; rank++)
            order[rank] = rank;
        qsort_r(order, (size_t)num_ranks, sizeof *order, by_communication, tasks);
        end->tasks = tasks;
        end->least = order[0];
        end->median = order[(num_ranks - 1) / 2];
        end->most = order[num_ranks - 1];
    }
    free(order);
}

static int is_listed(const char *list, int rank)
{
    char *after;
    for (; *list; list = after == list ? list + 1 : after)
        if (strtol(list, &after, 10) == rank && after != list)
            return 1;
    return 0;
}

/* Whether this rank writes its profile: always rank 0, which has the summary, and all ranks without a summary. */
int trace_is_saved(const struct trace_end *end)
{
    int rank = trace_process.rank;
    const char *list = getenv("SAVE_LIST");
    if (!end->tasks || rank == 0 || trace_setting_yes("SAVE_ALL_TASKS"))
        return 1;
    if (list && *list)
        return is_listed(list, rank);
    return rank == end->least || rank == end->median || rank == end->most;
}
